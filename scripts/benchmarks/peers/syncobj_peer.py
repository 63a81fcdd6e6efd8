"""Stock PySyncObj: three members that keep a list, with the library's own journal.

    python -m benchmarks.peers.syncobj_peer SELF PARTNER,PARTNER JOURNAL

starts one member. The load takes part as an observer, which passes its commands to the leader.
"""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from pysyncobj import SyncObj, SyncObjConf, replicated

from lognode.client.bench.shape import Shape
from lognode.client.ports import free_ports

from .system import (
    Client,
    Members,
    Record,
    System,
    processes,
    wait_listening,
    with_modules,
)


class Records(SyncObj):  # type: ignore[misc]
    """A list of records, the same on every member."""

    def __init__(self, own: str | None, partners: list[str], journal: str | None) -> None:
        super().__init__(own, partners, SyncObjConf(journalFile=journal))
        self.records: list[Record] = []

    @replicated  # type: ignore[untyped-decorator]
    def append(self, records: list[Record]) -> int:
        """Append the records; return the place of the first."""
        at = len(self.records)
        self.records += records
        return at


class PySyncObj(System):
    """PySyncObj with its defaults, with a journal file."""

    name: ClassVar[str] = "pysyncobj"
    durability = "in a mapped file of a majority, which the kernel writes back"
    batch = 100
    window = 16
    limits = "100 records a command"

    def missing(self, cache: Path) -> str | None:
        return None

    def version(self, cache: Path) -> str:
        return f"PySyncObj {version('pysyncobj')}"

    def settings(self) -> str:
        return "SyncObjConf(journalFile=DIR/journal)\n"

    @contextlib.contextmanager
    def start(self, directory: Path, cache: Path) -> Iterator[Members]:
        ports = free_ports(3)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        commands = [
            [
                sys.executable, "-m", "benchmarks.peers.syncobj_peer", own,
                ",".join(address for address in addresses if address != own),
                str(directory / f"journal{number}"),
            ]
            for number, own in enumerate(addresses)
        ]  # fmt: skip
        with processes(commands, directory, with_modules()) as started:
            wait_listening(ports, started)
            yield Members(addresses, [process.pid for process in started])

    def client(self) -> Client:
        return _Observer()


class _Observer(Client):
    async def open(self, addresses: Sequence[str], shape: Shape) -> None:
        self._loop = asyncio.get_running_loop()
        self._records = Records(None, list(addresses), None)
        deadline = time.monotonic() + 60
        while True:
            try:
                await asyncio.wait_for(self.append([(b"begin", b"")]), 2)
                return
            except (RuntimeError, TimeoutError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)

    async def append(self, records: Sequence[Record]) -> Any:
        done: asyncio.Future[int] = self._loop.create_future()

        def called(result: Any, error: int) -> None:
            self._loop.call_soon_threadsafe(settle, result, error)

        def settle(result: Any, error: int) -> None:
            if done.done():
                return
            if error:
                done.set_exception(RuntimeError(f"PySyncObj: error {error}"))
            else:
                done.set_result(result)

        self._records.append(list(records), callback=called)
        return await done

    async def read(self, record: Record, found_by: Any) -> bytes | None:
        for _ in range(600):
            if len(self._records.records) > found_by:
                found: bytes = self._records.records[found_by][1]
                return found
            await asyncio.sleep(0.05)
        return None

    async def close(self) -> None:
        self._records.destroy()


if __name__ == "__main__":
    _own, _partners, _journal = sys.argv[1:]
    # A reference is held, since its thread has a weak one: a garbage collection would end the
    # member.
    _member = Records(_own, _partners.split(","), _journal)
    threading.Event().wait()
