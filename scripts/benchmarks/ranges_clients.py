"""The processes of a load on ranges, started and ended.

Their acknowledged records are read back.
"""

import asyncio
import json
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import lognode

from .ranges_load import RangesLoad

_READ_AT_ONCE = 16
_END_S = 180.0


class Clients:
    """Followers and producers of a log under way; `end` returns their figures.

    It is a context manager.
    """

    def __init__(self, servers: str, log: str, load: RangesLoad) -> None:
        self._servers = servers
        self._log = log
        self._load = load
        self._started: list[tuple[str, Process, IO[bytes]]] = []

    async def __aenter__(self) -> "Clients":
        try:
            # The followers first: no follower has to catch up.
            for role in ("follow", "produce"):
                await self._start(role)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for _role, process, said in self._started:
            if process.returncode is None:
                process.kill()
            await process.wait()
            said.close()

    def check(self) -> None:
        """Raise RuntimeError with the output of a process that has ended: it found wrong data."""
        for role, process, said in self._started:
            if process.returncode is not None:
                said.seek(0)
                text = said.read().decode("utf-8", "replace").strip()[-2_000:]
                raise RuntimeError(f"the process that is to {role} has ended: {text}")

    async def end(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the figures of producers and followers, once each has had everything."""
        (_, follow, _), (_, produce, _) = self._started
        produced = await self._told(produce, "")
        return produced, await self._told(follow, json.dumps(produced["counts"]))

    async def _start(self, role: str) -> None:
        paths = (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))
        # A file, since no process reads a pipe before the end.
        said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__aexit__`
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.ranges_load", role, self._servers, self._log,
            self._load.to_json(), stdin=PIPE, stdout=PIPE, stderr=said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )  # fmt: skip
        self._started.append((role, process, said))
        assert process.stdout is not None
        if await process.stdout.readline() != b"ready\n":
            await process.wait()
            self.check()

    async def _told(self, process: Process, line: str) -> dict[str, Any]:
        out, _ = await asyncio.wait_for(process.communicate(f"{line}\n".encode()), _END_S)
        if process.returncode != 0:
            self.check()
        found: dict[str, Any] = json.loads(out)
        return found


async def read_back(log: lognode.AsyncLog, load: RangesLoad, counts: Sequence[int]) -> int:
    """Return the number of records: each key has the acknowledged records, in their order.

    Raises CorruptData when a record is missing, wrong, in another place, or there twice.
    """
    stamps, numbers = load.stamps(), iter(range(load.keys))

    async def some() -> None:
        for number in numbers:
            key, nth, seq = stamps.key(number), 0, 0
            async for entry in log.scan(key):
                stamps.due(key, nth, entry.value)
                if entry.seq <= seq:
                    raise lognode.CorruptData(f"key {key!r}: seq {entry.seq} after {seq}")
                nth, seq = nth + 1, entry.seq
            if nth != counts[number]:
                raise lognode.CorruptData(
                    f"key {key!r} holds {nth} records of {counts[number]} acknowledged"
                )

    await asyncio.gather(*(some() for _ in range(_READ_AT_ONCE)))
    return sum(counts)
