"""The processor time that a request is expected to take, held from its quota until it has ended.

The cost of a request is known only after it. Charged then alone, all that a principal sends at once
would pass the gate together, and a burst of them would use a second's worth of the event loop while
the others wait. So a request of a principal with a quota takes the mean of its operation in
advance. What it takes in truth is charged as it goes, and the rest is given back.
"""

from typing import Final

from ...client.protocol import Operation
from .quotas import CPU, MS_PER_S, Payer

_WEIGHT: Final = 1 / 8
"""Of the newest request, in the mean."""


class Foretold:
    """The mean milliseconds of each operation, of requests with a quota."""

    def __init__(self) -> None:
        self._means: dict[Operation, float] = {}

    def begin(self, operation: Operation, payer: Payer) -> "Running":
        """A request has passed the gate; `end` must follow."""
        return Running(self._means, operation, payer)


class Running:
    """A request that is under way."""

    __slots__ = ("_held_ms", "_means", "_operation", "_payer", "_used_ms")

    def __init__(self, means: dict[Operation, float], operation: Operation, payer: Payer) -> None:
        self._means = means
        self._operation = operation
        self._payer = payer
        self._held_ms = means.get(operation, 0.0)
        self._used_ms = 0.0
        payer.take(CPU, self._held_ms)

    def ran(self, seconds: float) -> None:
        """A turn of the loop was used."""
        self._used_ms += seconds * MS_PER_S
        self._payer.ran(seconds)

    def end(self) -> None:
        """Give back what is held, and remember what the request has taken."""
        self._payer.take(CPU, -self._held_ms)
        mean = self._means.get(self._operation, self._used_ms)
        self._means[self._operation] = mean + _WEIGHT * (self._used_ms - mean)
