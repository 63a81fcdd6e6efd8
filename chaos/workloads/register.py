"""`register`: conditional appends to keys that several clients compete for, and reads.

The value of a key is its last entry. An append with `expect` is a compare-and-set of it, by seq.
"""

import random
from typing import Final

from ..process import Process
from .parts import Idle, Keys, append_one, read_key, some_node

_KEYS: Final = 3
_APPENDS: Final = 60
"""The appends tried on one key. With its reads, a key stays below the 200 operations that can be
judged in time."""
_STALE: Final = 0.1


class RegisterWorkload:
    """All processes do the same work."""

    def __init__(self, rng: random.Random) -> None:
        self.keys = Keys(_KEYS, _APPENDS, rng)
        self.seen: dict[str, int] = {}
        """The last seq of each key that any process was told."""

    def role(self, slot: int) -> str:
        """Return a word for the work of processes in this slot."""
        return "client"

    def worker(self, slot: int, process: Process) -> "Register":
        """Return the worker of a new process in this slot."""
        return Register(process, self)


class Register(Idle):
    """Reads a key, or appends to it on the condition that its last known seq is still the last."""

    def __init__(self, process: Process, workload: RegisterWorkload) -> None:
        self._process = process
        self._workload = workload
        self._count = 0

    async def step(self) -> None:
        """Do one read or one conditional append."""
        process, seen = self._process, self._workload.seen
        await process.turn()
        if process.rng.random() < 0.4:
            key = self._workload.keys.to_read()
            found = await read_key(process, key, node=some_node(process))
            if found:
                seen[key] = max(seen.get(key, 0), found[-1].seq)
            return
        key = self._workload.keys.to_append()
        self._count += 1
        name = f"p{process.number}"
        # Sometimes use a condition that surely no longer holds.
        expect = 0 if process.rng.random() < _STALE else seen.get(key, 0)
        answered = await append_one(process, name, key, f"{name}-{self._count}", expect=expect)
        if answered is not None:
            seen[key] = max(seen.get(key, 0), answered["seqs"][0] or 0)
        elif seen.get(key, 0) == expect:
            await self._look(key)

    async def _look(self, key: str) -> None:
        """Read the key after a refused condition."""
        found = await read_key(self._process, key)
        if found:
            self._workload.seen[key] = max(self._workload.seen.get(key, 0), found[-1].seq)
