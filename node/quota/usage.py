"""Serve `usage`: what tenants and principals have used of this node."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...client.accepting.request import Room
from ...client.protocol import limits
from ...client.protocol.quotas import COUNTERS, STORED
from ..runtime.slices import in_slices
from .quotas import Quotas

_NO_TENANT: Final = "(none)"
"""Names the row of the logs without a tenant: their names have no slash."""
_FORMER: Final = "(deleted)"
"""Names the row of forgotten tenants, which have no log any more."""

Row = dict[str, Any]


class Usage:
    """Serves `usage`. Counters begin at 0 when the node starts, which was at `started_ms`."""

    def __init__(self, quotas: Quotas, started_ms: int) -> None:
        self._quotas = quotas
        self._started_ms = started_ms

    async def serve(self, _: Row, room: Room) -> Row:
        """Return all tenants, by name, and the principals that used the most time of the loop."""
        await room()
        self._quotas.fold()
        largest = self._quotas.largest(limits.usage_rows_max)
        principals = await in_slices(_row(each.name, each.total()) for each in largest)
        return {
            "since_ms": self._started_ms,
            "tenants": await in_slices(self._tenants()),
            "principals": principals,
        }

    def _tenants(self) -> Iterator[Row]:
        for name, tenant in sorted(self._quotas.tenants.items()):
            yield {**_row(name or _NO_TENANT, tenant.used), STORED: tenant.held}
        if any(self._quotas.others):
            yield {**_row(_FORMER, self._quotas.others), STORED: 0}


def _row(name: str, used: Sequence[float]) -> Row:
    return {"name": name} | {
        counter: round(amount) for counter, amount in zip(COUNTERS, used, strict=True)
    }
