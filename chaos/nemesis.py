"""The schedule of faults while a test runs: several packages together, then none.

In every interval a random choice of up to three packages begins together and ends before the next
interval. A quarter of the intervals have no fault, much as in Jepsen's combined nemesis.
"""

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Final

from ..client.protocol.errors import LognodeError
from .history import Recorder
from .nemeses import Package, Target

_QUIET: Final = 0.25
"""The probability of an interval without faults."""
_AT_ONCE: Final = 3
"""The most packages at once. With up to 13 packages next to nothing succeeds, and so next to
nothing is tried: 15 operations a second of 500, on five nodes."""


class Nemesis:
    """Begins and ends faults of its packages, one choice after another."""

    def __init__(
        self, packages: Mapping[str, Package], target: Target, recorder: Recorder,
        *, interval_s: float, rng: random.Random,
    ) -> None:  # fmt: skip
        self._packages = packages
        self._target = target
        self._recorder = recorder
        self._interval_s = interval_s
        self._rng = rng
        self._numbers = itertools.count()
        self._open: dict[str, tuple[int, bool]] = {}
        """Number of each fault under way, and whether the history has its begin."""

    async def run(self) -> None:
        """Run until cancelled; then `heal` must follow."""
        while True:
            for name in self.chosen():
                await self._begin(name)
            await asyncio.sleep(self._interval_s)
            await self.heal()

    async def heal(self) -> None:
        """End all faults that this nemesis began."""
        for name in list(self._open):
            await self._packages[name].end(self._target)
            number, told = self._open.pop(name)
            if told:
                self._recorder.record(None, "info", name, {"id": number})

    def chosen(self) -> Sequence[str]:
        if not self._packages or self._rng.random() < _QUIET:
            return ()
        count = self._rng.randint(1, min(_AT_ONCE, len(self._packages)))
        return self._rng.sample(sorted(self._packages), count)

    async def _begin(self, name: str) -> None:
        # The fault counts as open from here on: a cancelled begin has to be healed too.
        number = next(self._numbers)
        self._open[name] = number, False
        since = self._recorder.now_ns()
        try:
            began = await self._packages[name].begin(self._target)
        except LognodeError as error:
            began = f"{name} that failed: {error.code}: {error.message}", []
        if began is None:
            del self._open[name]
            return
        what, nodes = began
        self._open[name] = number, True
        told = {"id": number, "what": what, "nodes": nodes, "since": since}
        self._recorder.record(None, "info", name, told)
