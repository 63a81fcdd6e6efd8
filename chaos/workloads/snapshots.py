"""`snapshot`: snapshots taken and read repeatedly, while producers append.

The workload removes nothing, so that the final read shows what a snapshot must show.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Any, Final

from ...client.snapshot import AsyncSnapshot
from ..process import Process
from .append import Producer
from .parts import Idle, Keys, text

LEASE_S: Final = 60.0
_READ_S: Final = 40.0
"""The age from which a snapshot is not read any more: its lease, by other clocks, may end soon."""
_HELD_MAX: Final = 4
"""The most snapshots of one process: a range has room for 64 leases, those of dead processes
included."""


class SnapshotWorkload:
    """Two of three processes produce, the others take snapshots and read them."""

    def __init__(self, rng: random.Random) -> None:
        self._keys = Keys(10, 60, rng)

    def role(self, slot: int) -> str:
        """Return a word for the work of processes in this slot."""
        return "snapshotter" if slot % 3 == 2 else "producer"

    def worker(self, slot: int, process: Process) -> "Producer | Snapshotter":
        """Return the worker of a new process in this slot."""
        if self.role(slot) == "producer":
            return Producer(process, self._keys)
        return Snapshotter(process, self._keys)


@dataclass(slots=True)
class _Held:
    name: str
    saved: str
    taken: float


class Snapshotter(Idle):
    """Takes snapshots, and reads its saved snapshots, through some of their keys."""

    def __init__(self, process: Process, keys: Keys) -> None:
        self._process = process
        self._keys = keys
        self._held: list[_Held] = []

    async def step(self) -> None:
        """Take one snapshot, or read one."""
        process = self._process
        await process.turn()
        now = asyncio.get_running_loop().time()
        self._held = [held for held in self._held if now - held.taken < _READ_S]
        if not self._held or process.rng.random() < 0.2:
            await process.call("snapshot", {"lease_s": LEASE_S}, self._take(now), writes=False)
            return
        held = process.rng.choice(self._held)
        prefix = self._keys.to_read()[:2]
        asked = {"snapshot": held.name, "prefix": prefix}
        await process.call("read_snapshot", asked, self._read(held, prefix), writes=False)

    async def _take(self, now: float) -> dict[str, Any]:
        if len(self._held) == _HELD_MAX:
            oldest = self._held.pop(0)
            await self._process.log.open_snapshot(oldest.saved).release()
        snapshot: AsyncSnapshot = await self._process.log.snapshot(lease_s=LEASE_S)
        vector = snapshot.vector
        self._held.append(_Held(vector.lease, snapshot.to_json(), now))
        parts = [[p.start.decode(), p.end and p.end.decode(), p.through_seq] for p in vector.parts]
        return {"snapshot": vector.lease, "parts": parts}

    async def _read(self, held: _Held, prefix: str) -> dict[str, Any]:
        snapshot = self._process.log.open_snapshot(held.saved)
        found = [
            [entry.key.decode(), entry.seq, text(entry.value)]
            async for entry in snapshot.read(prefix=prefix)
        ]
        return {"entries": found}
