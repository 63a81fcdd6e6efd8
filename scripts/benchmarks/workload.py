"""The shape of the load: keys, values, and the schedule of an open loop.

Latency counts from the time a request was due, not from when it could be sent, so that a stall
is seen by all that queued behind it (Tene, "How NOT to Measure Latency").
"""

import random
from dataclasses import dataclass

_DIGITS = random.Random(7).randbytes(1 << 20).hex().encode()


@dataclass(frozen=True, slots=True)
class Shape:
    """What is written and for how long."""

    keys: int
    value_bytes: int
    seconds: float
    batch: int
    rate: float
    """Records a second that fall due in the latency run."""
    seed: int = 1

    def key(self, number: int) -> bytes:
        """16 bytes, zero-padded."""
        return b"%016d" % number

    def random_keys(self, count: int, rng: random.Random) -> list[bytes]:
        """Uniform over the keys."""
        keys = self.keys
        return [b"%016d" % rng.randrange(keys) for _ in range(count)]

    def value(self, number: int) -> bytes:
        """The record's number, then random hexadecimal digits, which compress to half."""
        at = number * 97 % (len(_DIGITS) - self.value_bytes)
        return (b"%020d:" % number + _DIGITS[at : at + self.value_bytes])[: self.value_bytes]
