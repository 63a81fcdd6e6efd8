"""Parts of workloads: keys that come and go, appends and reads as operations."""

import random
from collections.abc import Sequence
from typing import Any, Final, Literal

from ...client.protocol.errors import LognodeError, PartialFailure
from ...client.protocol.types import ABSENT, ANY, Ack, Entry
from ..process import Process

Consistency = Literal["linearizable", "prefix"]
LOG: Final = "chaos"
"""The log that all workloads use."""
DEAD: Final = "chaos-dead"
"""The log of dead letters of the workload `group`."""
_OLD_KEYS: Final = 24
"""The number of keys that are still read after their last append."""


class Keys:
    """Keys in use: `open` at once, each for about `appends` appends, then a new one in its place.

    Reads stay short and histories cheap to judge, and even a long test always has young keys.
    """

    def __init__(self, open_at_once: int, appends: int, rng: random.Random) -> None:
        self._appends = appends
        self._rng = rng
        self._count = 0
        self._left: dict[str, int] = {}
        self._old: list[str] = []
        for _ in range(open_at_once):
            self._add()

    def to_append(self, records: int = 1) -> str:
        """Return a key for this number of further records."""
        key = self._rng.choice(list(self._left))
        self._left[key] -= records
        if self._left[key] <= 0:
            del self._left[key]
            self._old = [*self._old[1 - _OLD_KEYS :], key]
            self._add()
        return key

    def to_read(self) -> str:
        """Return a key that is appended to, or sometimes one that was."""
        old = self._old and self._rng.random() < 0.3
        return self._rng.choice(self._old if old else list(self._left))

    def _add(self) -> None:
        """Add a key.

        Keys spread over the key space, so that every range has some: `k000-0` to `k999-N`.
        """
        self._left[f"k{self._rng.randrange(1000):03}-{self._count}"] = self._appends
        self._count += 1


def logs_of(workload: str) -> tuple[str, ...]:
    """Return the logs of a workload."""
    return (LOG, DEAD) if workload == "group" else (LOG,)


def seqs(entries: Sequence[Entry]) -> list[list[Any]]:
    """Return the entries as [seq, value]; a foreign value stays readable."""
    return [[entry.seq, text(entry.value)] for entry in entries]


def settled(acks: Sequence[Ack | BaseException]) -> list[int | None]:
    """Return the seqs of several appends that were one operation.

    If any append failed, raises the error with the least certain outcome: it decides the outcome of
    the operation.
    """
    failed = [ack for ack in acks if isinstance(ack, BaseException)]
    for error in failed:
        if not isinstance(error, LognodeError) or error.outcome != "not_applied":
            raise error
    if failed and len(failed) < len(acks):
        raise PartialFailure(f"{len(failed)} of {len(acks)} records failed: {failed[0]}")
    if failed:
        raise failed[0]
    return [ack.seq for ack in acks if not isinstance(ack, BaseException)]


def text(value: bytes | None) -> str | None:
    """Return the text of a value that was read."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


async def append_one(
    process: Process, producer: str, key: str, value: str, *, expect: int | None = None
) -> dict[str, Any] | None:
    """Append one record; with `expect`, only if that is the key's last seq, 0 for no entry."""
    asked: dict[str, Any] = {"producer": producer, "records": [[key, value]]}
    if expect is not None:
        asked["expect"] = expect

    async def act() -> dict[str, Any]:
        wanted = ANY if expect is None else expect or ABSENT
        ack = await process.log.append(key, value.encode(), expect=wanted)
        return {"seqs": [ack.seq]}

    return await process.call("append", asked, act(), writes=True)


async def read_key(
    process: Process, key: str, consistency: Consistency = "linearizable", node: int | None = None
) -> list[Entry] | None:
    """Read the whole key, from the cluster or from one node. None when the read failed."""
    found: list[Entry] = []

    async def act() -> dict[str, Any]:
        async for entry in process.log.scan(key, consistency=consistency, node=node):
            found.append(entry)
        return {"entries": seqs(found), "last": found[-1].seq if found else 0}

    asked = {"key": key, "consistency": consistency}
    done = await process.call("read", asked, act(), writes=False, node=node)
    return None if done is None else found


def some_consistency(rng: random.Random) -> Consistency:
    """Draw a consistency, mostly linearizable."""
    return "prefix" if rng.random() < 0.25 else "linearizable"


def some_node(process: Process) -> int | None:
    """Draw no node, mostly; else a node whose own replica is read."""
    return process.rng.randint(1, process.nodes) if process.rng.random() < 0.25 else None


class Idle:
    """The end of a test for most workers."""

    async def drain(self) -> None:
        """Do nothing: no deliveries are missing."""

    async def close(self) -> None:
        """Do nothing: the worker holds nothing open except the client."""
