"""The log `_usage`: what each tenant has used, once a minute, by each node (X7).

A record has all counters of one tenant at one node since the node started, `since_ms` of the wall
clock. So no record is needed to understand another, none may be missed for a sum, and a record that
the log has twice counts once: of each node and start the newest record counts, and a bill is the
difference between two of them. A node that stops in order writes a last record; what a node counted
after its last record is lost when the node is killed.

A tenant that used nothing since its last record gets none. `stored_bytes` is no counter: it tells
what the tenant has in ranges that the node leads, at that time.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...client.protocol.quotas import COUNTERS, STORED
from ..quota.quotas import Quotas
from ..runtime.logs import timestamp

NAME: Final = "_usage"
RETENTION_MS: Final = 400 * 24 * 3_600_000
_EVERY_S: Final = 60.0
_COLUMNS: Final = (*COUNTERS, STORED)
_NOTHING: Final = [0] * len(_COLUMNS)

Record = dict[str, Any]


class UsageTrail:
    """`put(key, record)` takes what the log gets; the key is the tenant, without its slash.
    `node` and `boot` are of this node."""

    def __init__(
        self,
        node: int,
        boot: int,
        quotas: Quotas,
        wall_ms: Callable[[], int],
        put: Callable[[bytes, Record], None],
    ) -> None:
        self._who = {"node": node, "boot": boot, "since_ms": wall_ms()}
        self._quotas = quotas
        self._wall_ms = wall_ms
        self._put = put
        self._told: dict[str, list[int]] = {}

    async def run(self) -> None:
        """Write once a minute, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            self.write()

    def write(self) -> None:
        """Put a record for each tenant that has used anything since its last record."""
        self._quotas.fold()
        at = timestamp(self._wall_ms() / 1000)
        for name, tenant in sorted(self._quotas.tenants.items()):
            used = [*map(round, tenant.used), tenant.held]
            if name and used != self._told.get(name, _NOTHING):
                self._told[name] = used
                self._put(name.rstrip("/").encode(), self._record(name, at, used))

    def _record(self, name: str, at: str, used: Sequence[int]) -> Record:
        counters = dict(zip(_COLUMNS, used, strict=True))
        return {"at": at, "tenant": name, **self._who, **counters}
