"""Reserve the processor time that a request is expected to take, until the request has ended.

The cost of a request is known only afterwards. If it were charged only then, all requests that a
principal sends at once would pass the gate together, and use a second's worth of the event loop
while others wait. So a request of a principal with a quota reserves the mean cost of its operation
in advance. The real cost is charged as the request runs, and the reserved time is given back.
"""

from typing import Final

from ...client.protocol import Operation
from .quotas import CPU, MS_PER_S, Payer

_WEIGHT: Final = 1 / 8
"""The weight of the newest request in the mean."""


class Foretold:
    """The mean milliseconds of each operation, over requests with a quota."""

    def __init__(self) -> None:
        self._means: dict[Operation, float] = {}

    def begin(self, operation: Operation, payer: Payer) -> "Running":
        """Reserve the mean for a request that has passed the gate; `end` must follow."""
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
        """Charge a turn of the loop."""
        self._used_ms += seconds * MS_PER_S
        self._payer.ran(seconds)

    def end(self) -> None:
        """Give back what is reserved, and add the request's real cost to the mean."""
        self._payer.take(CPU, -self._held_ms)
        mean = self._means.get(self._operation, self._used_ms)
        self._means[self._operation] = mean + _WEIGHT * (self._used_ms - mean)
