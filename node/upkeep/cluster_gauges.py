"""Count the nodes by state and the ranges without a leader, for `/metrics`.

Each node counts what it knows of the cluster, so that an alert needs no particular node. A cluster
has up to 12,288 ranges: they are counted in slices now and then, and not for each page.
"""

import asyncio
from collections import Counter
from typing import Final

from ...partitions.metadata import NODE_STATES
from ..metadata.view import View
from ..metrics import Metrics
from ..runtime.slices import in_slices

_PERIOD_S: Final = 5.0


class ClusterGauges:
    """Sets the gauges. Runs on every node."""

    def __init__(self, *, view: View, metrics: Metrics) -> None:
        self._view = view
        self._metrics = metrics

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_PERIOD_S)

    async def look(self) -> None:
        """Count once."""
        view, metadata = self._view, self._view.metadata
        states = Counter(node.state for node in metadata.nodes.values())
        for state in NODE_STATES:
            self._metrics.nodes.labels(state.lower()).set(states[state])
        ranges = (metadata.controller, *metadata.ranges.values())
        led = await in_slices(
            view.elected(range_.range_id, range_.generation) is not None for range_ in ranges
        )
        self._metrics.leaderless_ranges.set(led.count(False))
