"""What the producer and the consumers of one turn have to know, and the values of records."""

import json
import os
import struct
from dataclasses import asdict, dataclass, field
from typing import Final, Self

TOPIC: Final = "door"
_HEAD: Final = struct.Struct("<dQ")
_FILL_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Plan:
    """One part of a turn.

    `settings`: of the topic. `rate`: records a second that are produced while consumers read; 0:
    as many as possible, before consumers read. Consumers share the partitions out. More consumers
    than partitions are a multiple of the partitions, and several read each partition.
    `fetches`: that wait for records, while nothing is produced.
    """

    addresses: list[str]
    settings: dict[str, str]
    partitions: int
    keys: int
    value_bytes: int
    rate: float
    seconds: float
    warmup_s: float
    consumers: int
    processes: int
    fetches: int = 0

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Undo `to_text`."""
        return cls(**json.loads(text))

    def to_text(self) -> str:
        """Return the plan as an argument of a program."""
        return json.dumps(asdict(self))

    @property
    def client(self) -> dict[str, object]:
        """The settings of every client."""
        return {"bootstrap.servers": ",".join(self.addresses)}

    def assigned(self, consumer: int) -> list[int]:
        """Return the partitions of a consumer."""
        if self.consumers >= self.partitions:
            return [consumer % self.partitions]
        return list(range(consumer, self.partitions, self.consumers))

    @property
    def readers(self) -> int:
        """How many consumers read each partition."""
        return max(1, self.consumers // self.partitions)


@dataclass(frozen=True)
class Values:
    """Values that hold their due time by `time.perf_counter`, and their number."""

    value_bytes: int
    _fill: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_fill", os.urandom(_FILL_BYTES))

    def value(self, number: int, due: float) -> bytes:
        """Return the value of a record."""
        size = self.value_bytes - _HEAD.size
        at = number * 61 % (_FILL_BYTES - size)
        return _HEAD.pack(due, number) + self._fill[at : at + size]


def due_of(value: bytes) -> float:
    """Return when a record was due."""
    due: float = _HEAD.unpack_from(value)[0]
    return due
