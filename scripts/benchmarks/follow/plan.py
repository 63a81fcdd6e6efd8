"""What the appends and the followers of one turn have to know, as JSON from process to process."""

import json
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from random import Random
from typing import Self

from ..stamps import Stamps

KEY_BYTES = 16


@dataclass(frozen=True)
class Plan:
    """One turn. The followed keys are spread evenly over all keys, and so over all ranges.

    `mode`: how followers ask, see `on_lognode` and `on_nats`. `clients`: connections to each node
    of the process that follows. `rate`: records a second of all `appenders` together.
    """

    system: str
    mode: str
    addresses: list[str]
    keys: int
    value_bytes: int
    followers: int
    clients: int
    rate: float
    batch: int
    seconds: float
    warmup_s: float
    ranges: int
    appenders: int
    timeout_s: float

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Undo `to_text`."""
        return cls(**json.loads(text))

    def to_text(self) -> str:
        """Return the plan as an argument of a program."""
        return json.dumps(asdict(self))

    @cached_property
    def stamps(self) -> Stamps:
        """The keys and values. Making their fills takes long."""
        return Stamps(self.keys, self.value_bytes)

    @property
    def step(self) -> int:
        """The distance between the numbers of followed keys."""
        return self.keys // self.followers

    def followed(self) -> Iterator[int]:
        """Yield the numbers of the followed keys."""
        return iter(range(0, self.step * self.followers, self.step))


@dataclass
class Records:
    """The records of one of the appenders, which have disjoint keys; keys are drawn at random."""

    plan: Plan
    appender: int
    to_followed: int = 0
    """Records made so far for keys that are followed."""
    _counts: "array[int]" = field(init=False)
    _rng: Random = field(init=False)
    _stamps: Stamps = field(init=False)

    def __post_init__(self) -> None:
        plan = self.plan
        self._stamps = plan.stamps
        self._counts = array("I", bytes(4 * (plan.keys // plan.appenders + 1)))
        self._rng = Random(self.appender)

    def draw(self, count: int, due: float) -> list[tuple[bytes, bytes]]:
        """Return new records that are due then."""
        plan, stamps, counts = self.plan, self._stamps, self._counts
        step, end = plan.step, plan.step * plan.followers
        own = (plan.keys - self.appender - 1) // plan.appenders + 1
        found = []
        for _ in range(count):
            at = int(self._rng.random() * own)
            number = at * plan.appenders + self.appender
            key, nth = stamps.key(number), counts[at]
            counts[at] = nth + 1
            self.to_followed += number % step == 0 and number < end
            found.append((key, stamps.value(key, nth, due)))
        return found
