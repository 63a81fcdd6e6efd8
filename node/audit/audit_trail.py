"""Write audit records to the node's own log as JSON lines, and to the log `_audit`."""

import logging
from collections.abc import Callable
from typing import Any, Final

from ...client.protocol import log_names
from ..runtime.logs import timestamp

NAME: Final = log_names.AUDIT
RETENTION_MS: Final = 90 * 24 * 3_600_000

log = logging.getLogger("lognode.audit")


class AuditTrail:
    """Adds the time, the node and an id to each record, and passes it on.

    While `is_known`, `put(key, record)` takes the records for the log `_audit`. The id is
    `NODE.BOOT.NUMBER`; a record whose append had an unknown outcome may be in the log twice, with
    the same id. The key is the principal, so that each principal has one ordered history.
    """

    def __init__(
        self,
        node: int,
        boot: int,
        wall_ms: Callable[[], int],
        put: Callable[[bytes, dict[str, Any]], None],
        *,
        is_known: Callable[[], bool],
    ) -> None:
        self._node = node
        self._boot = boot
        self._wall_ms = wall_ms
        self._put = put
        self._is_known = is_known
        self._number = 0

    def emit(self, record: dict[str, Any]) -> None:
        """Take one record of `Audit`."""
        self._number += 1
        whole = {
            "id": f"{self._node}.{self._boot}.{self._number}",
            "at": timestamp(self._wall_ms() / 1000), "node": self._node, **record,
        }  # fmt: skip
        log.info("audit", extra={"fields": {"record": whole}})
        if self._is_known():
            self._put(str(record["principal"]).encode(), whole)
