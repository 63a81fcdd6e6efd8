"""Sarama's functional tests, from the Go module proxy.

The tests reach five brokers through proxies with fixed ports, and make some connections slow or cut
them. So the nodes give clients the addresses of the proxies.
"""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lognode.chaos.proxyserver import ProxyServer, choose

from .go_suites import copied, judged
from .suites import Outcome, Suite

VERSION: Final = "1.61.1"
_LIMIT_S: Final = 1_200
_PROXIES: Final = tuple(f"127.0.0.1:{port}" for port in range(29_091, 29_096))

LEFT_OUT: Final[Mapping[str, str]] = {}


def _prepare(work: Path, source: Path | None) -> None:
    copied(work, "github.com/IBM/sarama", VERSION, source)


def _functional(folder: Path) -> list[str]:
    """Return the names of the tests that need brokers."""
    texts = [path.read_text() for path in sorted(folder.glob("functional_*_test.go"))]
    return [name for text in texts for name in re.findall(r"^func (Test\w+)\(", text, re.MULTILINE)]


def _run(work: Path, addresses: str, left_out: Mapping[str, str]) -> Outcome:
    async def run() -> Outcome:
        server = ProxyServer(choose("toxiproxy"), log_path=work / "toxiproxy.log")
        await server.start()
        try:
            for number, (listen, upstream) in enumerate(
                zip(_PROXIES, addresses.split(","), strict=True), start=1
            ):
                await server.api.create(f"kafka{number}", upstream, listen=listen)
            return await asyncio.to_thread(
                judged, work, work / "sarama", left_out, limit_s=_LIMIT_S,
                flags=("-tags", "functional"), only=_functional(work / "sarama"),
                KAFKA_VERSION="2.1.0", TOXIPROXY_ADDR=f"http://{server.api.address}",
            )  # fmt: skip
        finally:
            await server.stop()

    return asyncio.run(run())


SUITE: Final = Suite(VERSION, _prepare, _run, LEFT_OUT, nodes=5, advertised=_PROXIES)
