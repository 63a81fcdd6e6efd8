"""`lognode serve-tier` as a process of its own, for tests."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import lognode
from lognode import testing
from lognode.client.protocol.errors import LognodeError


@dataclass
class ServedTier:
    """A running process. `servers`: its address as clients need it."""

    servers: str
    process: subprocess.Popen[bytes]
    log: Path

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


@contextlib.contextmanager
def served(
    place: str, root: Path, *flags: str, environment: Mapping[str, str] | None = None,
    query: str = "",
) -> Iterator[ServedTier]:  # fmt: skip
    """Serve a tier; the cache and the log of the process are under `root`. `query`: the files that
    clients need for TLS, as in a URL of servers."""
    (port,) = testing.free_ports(1)
    address = f"127.0.0.1:{port}"
    log = root / f"serve-tier-{port}.log"
    command = [
        sys.executable, "-m", "lognode.node.main", "serve-tier", place, "--listen", address,
        "--cache", str(root / "serve-tier-cache"), *flags,
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
    found = ServedTier(f"lognodes://{address}?{query}" if query else address, process, log)
    try:
        testing.eventually(lambda: _answers(found), what="the tier is served")
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(20) == 0, log.read_text()


def _answers(served: ServedTier) -> bool:
    assert served.process.poll() is None, served.log.read_text()
    with contextlib.suppress(LognodeError), lognode.Client(served.servers, timeout=1) as client:
        client.status()
        return True
    return False
