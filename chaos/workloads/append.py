"""`append`: unique values to keys by many producers, polls, reads and scans by many readers."""

import asyncio
import random
from typing import Any, Final

from ..process import Process
from .parts import (
    Consistency,
    Idle,
    Keys,
    append_one,
    read_key,
    seqs,
    settled,
    some_consistency,
    some_node,
    text,
)

_POLLS_A_KEY: Final = 30
_POLL_ENTRIES: Final = 20
_SUBMITTED_MAX: Final = 5
_ROLES: Final = ("producer", "producer", "poller", "reader")


class AppendWorkload:
    """Half of the processes produce, a quarter polls, a quarter reads and scans."""

    def __init__(self, rng: random.Random) -> None:
        self.keys = Keys(10, 60, rng)

    def role(self, slot: int) -> str:
        """Return a word for the work of processes in this slot."""
        return _ROLES[slot % len(_ROLES)]

    def worker(self, slot: int, process: Process) -> "Producer | Poller | Reader":
        """Return the worker of a new process in this slot."""
        role = self.role(slot)
        if role == "producer":
            return Producer(process, self.keys)
        return (Poller if role == "poller" else Reader)(process, self.keys)


class Producer(Idle):
    """Appends one record, several to one key at once and atomically, or several to many keys."""

    def __init__(self, process: Process, keys: Keys) -> None:
        self._process = process
        self._keys = keys
        self._name = f"p{process.number}"
        self._count = 0

    async def step(self) -> None:
        """Do one append of one of these kinds."""
        process = self._process
        await process.turn()
        kind = process.rng.choices(("one", "batch", "many"), (6, 1, 2))[0]
        if kind == "one":
            await append_one(process, self._name, self._keys.to_append(), self._value())
            return
        count = process.rng.randint(2, _SUBMITTED_MAX)
        if kind == "batch":
            key = self._keys.to_append(count)
            records = [[key, self._value()] for _ in range(count)]
        else:
            records = [[self._keys.to_append(), self._value()] for _ in range(count)]
        act = self._batch(records) if kind == "batch" else self._many(records)
        asked = {"producer": self._name, "records": records}
        await process.call("append", asked, act, writes=True)

    async def _batch(self, records: list[list[str]]) -> dict[str, Any]:
        batch = [(key, value.encode()) for key, value in records]
        first = (await self._process.log.append_batch(batch)).seq
        return {"seqs": [None if first is None else first + n for n in range(len(records))]}

    async def _many(self, records: list[list[str]]) -> dict[str, Any]:
        log = self._process.log
        appends = (log.append(key, value.encode()) for key, value in records)
        return {"seqs": settled(await asyncio.gather(*appends, return_exceptions=True))}

    def _value(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"


class Poller(Idle):
    """Polls one key from its last position, then another key."""

    def __init__(self, process: Process, keys: Keys) -> None:
        self._process = process
        self._keys = keys
        self._key = ""
        self._after = 0
        self._left = 0

    async def step(self) -> None:
        """Read the next entries of the key, if any."""
        process = self._process
        await process.turn()
        if not self._left:
            self._key, self._after, self._left = self._keys.to_read(), 0, _POLLS_A_KEY
        self._left -= 1
        consistency = some_consistency(process.rng)
        asked = {
            "key": self._key, "after": self._after, "consistency": consistency,
            "limit": _POLL_ENTRIES,
        }  # fmt: skip
        node = some_node(process)
        answer = self._poll(consistency, node)
        answered = await process.call("poll", asked, answer, writes=False, node=node)
        if answered is not None and answered["entries"]:
            self._after = answered["entries"][-1][0]

    async def _poll(self, consistency: Consistency, node: int | None) -> dict[str, Any]:
        scan = self._process.log.scan(
            self._key, start=self._after + 1, limit=_POLL_ENTRIES, consistency=consistency,
            node=node,
        )  # fmt: skip
        return {"entries": seqs([entry async for entry in scan])}


class Reader(Idle):
    """Reads whole keys, and sometimes all keys with a prefix."""

    def __init__(self, process: Process, keys: Keys) -> None:
        self._process = process
        self._keys = keys

    async def step(self) -> None:
        """Do one read or scan."""
        process = self._process
        await process.turn()
        consistency = some_consistency(process.rng)
        if process.rng.random() < 0.9:
            await read_key(process, self._keys.to_read(), consistency, some_node(process))
            return
        prefix = self._keys.to_read()[:2]
        asked = {"prefix": prefix, "consistency": consistency}
        await process.call("scan", asked, self._scan(prefix, consistency), writes=False)

    async def _scan(self, prefix: str, consistency: Consistency) -> dict[str, Any]:
        log = self._process.log
        found = [
            [key.decode(), entry.seq, text(entry.value)]
            async for key in log.keys(prefix=prefix, consistency=consistency)
            async for entry in log.scan(key, consistency=consistency)
        ]
        return {"entries": found}
