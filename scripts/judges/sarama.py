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

from .go_suites import changed, copied, judged
from .suites import Outcome, Suite

VERSION: Final = "1.61.1"
_LIMIT_S: Final = 1_200
_PROXIES: Final = tuple(f"127.0.0.1:{port}" for port in range(29_091, 29_096))

_DOCKER: Final = "stops a broker, or runs a program, in a container"
_TRANSACTIONS: Final = "needs transactions"
_ASSIGNED: Final = "gives a topic with an assignment of replicas"
_FORMATS: Final = "sends records in a format before Kafka 0.11"
_PRODUCING: Final = ("", "Gzip", "Snappy", "NoResponse", "Flushing")
_MATRIX: Final = (
    "if upper.IsAtLeast(V4_0_0_0) {\n\t\tif !lower.IsAtLeast(V2_1_0_0) {\n\t\t\tlower = V2_1_0_0",
    "if upper.IsAtLeast(V2_1_0_0) {\n\t\tif !lower.IsAtLeast(V0_11_0_0) {\n\t\t\tlower = V0_11_0_0",
)
"""The matrix of versions has a bound for Kafka 4 (KIP-896); it begins with Kafka 0.11 here."""

LEFT_OUT: Final[Mapping[str, str]] = {
    "TestConsumerFetchFollowerFailover": _DOCKER,
    "TestFuncAdminDeleteRecords": _ASSIGNED,
    "TestFuncAdminDescribeLogDirs": "asks for the directories of the logs",
    "TestFuncAdminListConsumerGroupOffsets": _DOCKER,
    "TestFuncAdminListOffsets": _ASSIGNED,
    "TestFuncConsumerGroupRebalanceAfterAddingPartitions":
        "needs more partitions for a topic; a topic keeps their number",
    "TestFuncIdempotentBufferedSequence": _DOCKER,
    "TestFuncTxnAbortedProduce": _TRANSACTIONS,
    "TestFuncTxnCommitNoMessages": _TRANSACTIONS,
    "TestFuncTxnProduce": _TRANSACTIONS,
    "TestFuncTxnProduceAndCommitOffset": _TRANSACTIONS,
    "TestFuncTxnProduceMultiTxn": _TRANSACTIONS,
    "TestFuncTxnProduceNoBegin": _TRANSACTIONS,
    "TestFuncTxnProduceWithBrokerFailure": _DOCKER,
    "TestJavaConsumerCompressionRoundTrip": _DOCKER,
    "TestVersionMatrixZstd": "its versions of the client are all later than Kafka 2.1",
} | {
    f"TestFuncProducing{kind}/TestFuncProducing{kind}-v{version}": _FORMATS
    for kind in _PRODUCING for version in ("0.8.2.0", "0.10.0.0")
}  # fmt: skip


def _prepare(work: Path, source: Path | None) -> None:
    copy = copied(work, "github.com/IBM/sarama", VERSION, source)
    if copy is not None:
        changed(copy / "functional_consumer_test.go", _MATRIX)


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


SUITE: Final = Suite(VERSION, _prepare, _run, LEFT_OUT, partitions=0, nodes=5, advertised=_PROXIES)
