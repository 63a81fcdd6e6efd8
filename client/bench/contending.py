"""Conditional appends: read, then append on the condition that nobody else has appended (S9).

A value holds a count, one more than the count of the entry before it. A lost update shows as a
count that comes twice, or as a missing acknowledged entry.
"""

import asyncio
import math
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..log import AsyncLog
from ..protocol.errors import CorruptData, LognodeError, PartialFailure, SequenceMismatch
from ..protocol.types import ABSENT, Ack
from . import pace
from .fairness import Caller, Fairness
from .garbage import few_collections
from .report import Recorder
from .shape import Shape

_VERIFIED_MAX: Final = 500
"""Keys that are read back."""
_ORDERED_MAX: Final = 1_000
"""The order of successes is collected for pools of at most this many keys."""
_DRAWN: Final = 1_024


@dataclass(frozen=True, slots=True)
class Contending:
    """`window` callers, or `rate` appends a second, over the shape's keys.

    `update`: the callers call `AsyncLog.update`. Otherwise they append with `expect=`, and read the
    key and repeat after a refusal. `batch` above 1: they append to so many keys in one call of
    `append_many`, and count the refused records.
    """

    seconds: float
    rate: float = 0.0
    window: int = 256
    warmup_s: float = 0.0
    update: bool = False
    batch: int = 1


@dataclass(slots=True)
class _View:
    """A client, and the last entries of keys as its callers know them: seq and count."""

    log: AsyncLog
    known: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    busy: set[bytes] = field(default_factory=set)
    """Keys of calls with many keys that are under way; callers of one client leave them out."""

    def learn(self, key: bytes, seq: int, count: int) -> None:
        if seq > self.known.get(key, (0, 0))[0]:
            self.known[key] = (seq, count)


class Contender:
    """Callers of one or several clients. The callers of one client share a view of the keys' last
    entries, like the callers in one program."""

    def __init__(self, logs: Sequence[AsyncLog], shape: Shape, load: Contending) -> None:
        self._views = list(map(_View, logs))
        self._by_caller: dict[Caller, _View] = {}
        self._shape = shape
        self._load = load
        self._rng = random.Random(shape.seed)
        self._run = secrets.token_hex(4).encode()
        self._drawn: list[bytes] = []
        numbers = random.Random(1).sample(range(shape.keys), min(_VERIFIED_MAX, shape.keys))
        self._seqs: dict[bytes, list[int]] = {shape.key(number): [] for number in numbers}
        """The acknowledged seqs of the keys that are read back."""
        self._fairness = Fairness(in_order=shape.keys <= _ORDERED_MAX)
        self._refused = 0
        self._until = math.inf

    async def run(self) -> dict[str, Any]:
        """Run, and return the report. Raises CorruptData when an update was lost."""
        load = self._load
        recorder = Recorder(warmup_s=load.warmup_s)
        seconds = load.warmup_s + load.seconds
        self._until = time.perf_counter() + seconds
        call = self._append if load.batch == 1 else self._append_many
        call = self._update if load.update else call
        processor_s = time.process_time()
        with few_collections():
            await pace.paced(load.rate, load.window, seconds, call, recorder)
        processor_s = time.process_time() - processor_s
        fairness = self._fairness.report(time.perf_counter())
        return recorder.report(
            "update" if load.update else "conditional append",
            {
                "keys": self._shape.keys,
                "value_bytes": self._shape.value_bytes,
                "zipf": self._shape.zipf,
                "rate": load.rate or None,
                "window": None if load.rate > 0 else load.window,
                "clients": len(self._views),
                "batch": load.batch,
                "refused": self._refused,
                "load_us": round(processor_s * 1e6 / max(1, recorder.records), 1),
                **(fairness if load.rate <= 0 else {}),
                "verified": await self._verify(),
            },
        )

    def _begin(self) -> tuple[Caller, _View, bytes]:
        """Begin a call; return the caller, its client, and a key."""
        caller, view = self._caller()
        if not self._drawn:
            self._drawn = self._shape.draw(_DRAWN, self._rng)
        return caller, view, self._drawn.pop()

    def _caller(self) -> tuple[Caller, _View]:
        """Begin a call; return the caller and its client."""
        caller = asyncio.current_task()
        view = self._by_caller.get(caller)
        if view is None:
            view = self._views[len(self._by_caller) % len(self._views)]
            if self._load.rate <= 0:  # at a rate, each call is a task of its own
                self._by_caller[caller] = view
        self._fairness.begin(caller, time.perf_counter())
        return caller, view

    def _served(self, caller: Caller, key: bytes, seq: int | None) -> int:
        self._fairness.served(caller, key, seq, time.perf_counter())
        self._note(key, seq)
        return 1

    def _note(self, key: bytes, seq: int | None) -> None:
        """Note an acknowledged seq."""
        if seq is not None and key in self._seqs:
            self._seqs[key].append(seq)

    async def _append(self, _: int, __: float) -> int:
        caller, view, key = self._begin()
        while True:
            seq, count = view.known.get(key, (0, 0))
            value = self._value(key, count + 1)
            try:
                ack = await view.log.append(key, value, expect=seq or ABSENT)
            except SequenceMismatch:
                self._refused += 1
                if view.known.get(key, (0, 0))[0] == seq:  # no caller has learned more since
                    await self._read(view, key)
                if time.perf_counter() > self._until:
                    return 0
                continue
            if ack.seq is not None:
                view.learn(key, ack.seq, count + 1)
            return self._served(caller, key, ack.seq)

    async def _append_many(self, _: int, __: float) -> int:
        caller, view = self._caller()
        keys = list(set(self._shape.draw(self._load.batch, self._rng)) - view.busy)
        view.busy.update(keys)
        known = [view.known.get(key, (0, 0)) for key in keys]
        values = [self._value(key, count + 1) for key, (_, count) in zip(keys, known, strict=True)]
        acks: Sequence[Ack | None]
        try:
            acks = await view.log.append_many(
                list(zip(keys, values, strict=True)), expects=[seq or ABSENT for seq, _ in known]
            )
        except PartialFailure as error:
            acks = error.fields["acks"]
            await self._learn_refused(view, error.fields["errors"])
        for key, (_, count), ack in zip(keys, known, acks, strict=True):
            if ack is not None and ack.seq is not None:
                view.learn(key, ack.seq, count + 1)
                self._note(key, ack.seq)
        view.busy.difference_update(keys)
        done = len(acks) - acks.count(None)
        if done:
            self._fairness.served(caller, keys[0], None, time.perf_counter())
        return done

    async def _learn_refused(self, view: _View, errors: Sequence[LognodeError | None]) -> None:
        """Read the keys of refused records. Raises any other error."""
        for error in errors:
            if isinstance(error, SequenceMismatch):
                self._refused += 1
                await self._read(view, error.fields["key"])
            elif error is not None:
                raise error

    async def _update(self, _: int, __: float) -> int:
        caller, view, key = self._begin()

        def following(value: bytes | None) -> bytes:
            return self._value(key, 1 + (0 if value is None else self._count(key, value)))

        updated = await view.log.update(key, following)
        return self._served(caller, key, updated.seq)

    async def _read(self, view: _View, key: bytes) -> None:
        entry = await view.log.latest(key)
        if entry is not None and entry.value is not None:
            view.learn(key, entry.seq, self._count(key, entry.value))

    def _value(self, key: bytes, count: int) -> bytes:
        return (key + b"%s%016d" % (self._run, count)).ljust(self._shape.value_bytes, b".")

    def _count(self, key: bytes, value: bytes) -> int:
        at = self._shape.key_bytes
        count = value[at + 8 : at + 24]
        if value[:at] != key or not count.isdigit():
            raise CorruptData(f"key {key!r} holds {value!r:.80}, which no run has written")
        return int(count)

    async def _verify(self) -> int:
        """Check some keys: their counts are consecutive, and their entries of this run are
        exactly the acknowledged ones. Return the number of entries read."""
        at = self._shape.key_bytes
        read = 0
        for key, acknowledged in self._seqs.items():
            if not acknowledged:
                continue
            seqs = sorted(acknowledged)
            entries = [entry async for entry in self._views[0].log.scan(key, start=seqs[0])]
            read += len(entries)
            counts = [self._count(key, entry.value or b"") for entry in entries]
            ours = [e.seq for e in entries if (e.value or b"")[at : at + 8] == self._run]
            if ours != seqs or counts != list(range(counts[0], counts[0] + len(counts))):
                raise CorruptData(f"an update of key {key!r} was lost or applied twice")
        return read
