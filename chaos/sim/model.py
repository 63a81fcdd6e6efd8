"""A reference state machine: ranges.md section 5 written down as plainly as can be.

It is slow, keeps everything in dicts, and is right by inspection. The simulator's replicas run on
it wherever the real state machine is not what is looked at.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import msgpack

from ...client.records import EXPECT_ANY, Batch, check_limits, decode_batch
from ...statemachine import commands

Reply = dict[str, Any]


@dataclass(slots=True)
class Producer:
    """What is remembered of one producer."""

    epoch: int = 0
    low: int = 0
    applied: dict[int, int] = field(default_factory=dict)
    """Record number to seq, for numbers at or above `low`."""


class ModelState:
    """Keys, producers and the next seq, after the entries up to `applied_index`."""

    def __init__(self) -> None:
        self.applied_index = 0
        self.applied_term = 0
        self.next_seq = 1
        self.state_hash = b""
        self.keys: dict[bytes, list[tuple[int, bytes]]] = {}
        self.producers: dict[int, Producer] = {}

    def apply(self, index: int, term: int, command: bytes) -> list[Reply]:
        """One reply for each batch of the entry."""
        self.applied_index, self.applied_term = index, term
        self.state_hash = hashlib.blake2b(self.state_hash + command, digest_size=16).digest()
        decoded = commands.decode(command)
        if decoded is None:
            return []
        return [self._append(decode_batch(data)) for data in decoded.payload]

    @staticmethod
    def admit(data: bytes) -> None:
        """Raise what a leader answers to a batch that it does not take."""
        check_limits(decode_batch(data))

    def last_seq(self, key: bytes) -> int:
        """The key's last seq, 0 without entries."""
        entries = self.keys.get(key)
        return entries[-1][0] if entries else 0

    def _append(self, batch: Batch) -> Reply:
        row = self.producers.setdefault(batch.producer, Producer())
        if batch.epoch < row.epoch:
            return _refused("FENCED", epoch=row.epoch)
        row.epoch = batch.epoch
        row.low = max(row.low, batch.low)
        row.applied = {n: seq for n, seq in row.applied.items() if n >= row.low}
        numbers = list(batch.numbers)
        for position, prev in enumerate(batch.prevs or ()):
            if prev >= row.low and prev not in row.applied and prev not in numbers[:position]:
                return _refused("OUT_OF_ORDER", number=prev)
        fresh = [n >= row.low and n not in row.applied for n in numbers]
        for position, expect in enumerate(batch.expects or ()):
            last = self.last_seq(batch.keys[position])
            if fresh[position] and expect not in (EXPECT_ANY, last):
                return _refused("SEQUENCE_MISMATCH", expected=expect, actual=last)
        seqs: list[int | None] = []
        for number, key, value, is_new in zip(
            numbers, batch.keys, batch.values(), fresh, strict=True
        ):
            if is_new:
                row.applied[number] = self.next_seq
                self.keys.setdefault(key, []).append((self.next_seq, value or b""))
                self.next_seq += 1
            seqs.append(row.applied.get(number))
        return {"status": "ok", "seqs": seqs}

    def image(self) -> bytes:
        """Everything, packed."""
        producers = {i: [p.epoch, p.low, p.applied] for i, p in self.producers.items()}
        image: bytes = msgpack.packb(
            [self.applied_index, self.applied_term, self.next_seq, self.state_hash, self.keys,
             producers]
        )  # fmt: skip
        return image

    @classmethod
    def from_image(cls, image: bytes) -> "ModelState":
        """The state that was packed."""
        state = cls()
        (state.applied_index, state.applied_term, state.next_seq, state.state_hash, keys,
         producers) = msgpack.unpackb(image, strict_map_key=False)  # fmt: skip
        state.keys = {key: [(seq, value) for seq, value in rows] for key, rows in keys.items()}
        state.producers = {i: Producer(*fields) for i, fields in producers.items()}
        return state


def _refused(code: str, **fields: int) -> Reply:
    return {"status": "error", "error": {"code": code, "fields": fields}}
