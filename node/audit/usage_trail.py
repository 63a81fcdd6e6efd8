"""Record in the log `_usage` what each tenant has used, once a minute, on each node (X7).

A record has all counters of one tenant on one node since the node started, at `since_ms` of the
wall clock. So a record is understood without others, a sum needs no earlier record, and a duplicate
changes nothing: for each node and start only the newest record counts. A bill is the difference
between two records. A node that stops in order writes a last record. A node that is killed loses
what it counted after its last record.

A tenant that used nothing since its last record gets no new record. `stored_bytes` is not a
counter: it is what the tenant has at that time in the ranges that the node leads.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...client.protocol import log_names
from ...client.protocol.quotas import COUNTERS, STORED
from ..quota.quotas import Quotas
from ..runtime.logs import timestamp

NAME: Final = log_names.USAGE
RETENTION_MS: Final = 400 * 24 * 3_600_000
_EVERY_S: Final = 60.0
_COLUMNS: Final = (*COUNTERS, STORED)
_NOTHING: Final = [0] * len(_COLUMNS)

Record = dict[str, Any]


class UsageTrail:
    """Writes usage records. `put(key, record)` queues a record for the log; the key is the tenant,
    without its slash. `node` and `boot` are this node's."""

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
        """Put a record for each tenant whose use changed since its last record."""
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
