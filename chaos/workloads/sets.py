"""`set`: adds to keys, and linearizable reads of whole keys."""

import random
from typing import Final

from ..process import Process
from .parts import Idle, Keys, append_one, read_key, some_node

_KEYS: Final = 4
_ADDS: Final = 150


class SetWorkload:
    """Two of three processes add, the others read."""

    def __init__(self, rng: random.Random) -> None:
        self.keys = Keys(_KEYS, _ADDS, rng)

    def role(self, slot: int) -> str:
        """Return a word for the work of processes in this slot."""
        return "reader" if slot % 3 == 2 else "adder"

    def worker(self, slot: int, process: Process) -> "Adder | SetReader":
        """Return the worker of a new process in this slot."""
        if self.role(slot) == "adder":
            return Adder(process, self.keys)
        return SetReader(process, self.keys)


class Adder(Idle):
    """Adds one value after another."""

    def __init__(self, process: Process, keys: Keys) -> None:
        self._process = process
        self._keys = keys
        self._count = 0

    async def step(self) -> None:
        """Add one value to one key."""
        await self._process.turn()
        self._count += 1
        name = f"p{self._process.number}"
        await append_one(self._process, name, self._keys.to_append(), f"{name}-{self._count}")


class SetReader(Idle):
    """Reads whole keys."""

    def __init__(self, process: Process, keys: Keys) -> None:
        self._process = process
        self._keys = keys

    async def step(self) -> None:
        """Read one key."""
        await self._process.turn()
        await read_key(self._process, self._keys.to_read(), node=some_node(self._process))
