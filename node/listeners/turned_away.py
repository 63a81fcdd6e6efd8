"""Report closed connections: a metric for each, a log line for many."""

import asyncio
import logging
from typing import Final

from ..metrics import Metrics

_LINE_EVERY_S: Final = 10.0
_REASONS: Final = {
    "late": "the handshake took too long",
    "door": "too many handshakes ran at once",
    "full": "no connection was free",
    "displaced": "another client needed the connection, which was idle",
    "idle": "the client sent no request during the idle timeout",
    "slow": "a frame arrived too slowly",
    "crowded": "incomplete frames used too much memory",
    "peer_crowd": "a node had too many connections",
    "http_full": "no HTTP connection was free",
    "http_displaced": "another HTTP client needed the connection",
    "http_slow": "the HTTP request did not arrive in time",
    "http_bad": "an HTTP request was malformed",
    "lack": "the node could not accept a connection",
}
"""The text of the log line, by the label of the metric."""
_ORDINARY: Final = frozenset({"idle", "http_slow"})

log = logging.getLogger("lognode.connections")


class TurnedAway:
    """Call it with the reason, a label of the metric, and the address of the other side."""

    def __init__(self, metrics: Metrics) -> None:
        self._closed = metrics.connections_ended
        self._loop = asyncio.get_running_loop()
        self._count: dict[str, int] = {}
        self._silent_until: dict[str, float] = {}

    def __call__(self, reason: str, address: str) -> None:
        self._closed.labels(reason).inc()
        count = self._count[reason] = self._count.get(reason, 0) + 1
        now = self._loop.time()
        if now < self._silent_until.get(reason, 0.0):
            return  # an attacker must not fill the log
        self._silent_until[reason] = now + _LINE_EVERY_S
        self._count[reason] = 0
        log.log(
            logging.DEBUG if reason in _ORDINARY else logging.WARNING,
            "the node closed connections: %s", _REASONS.get(reason, reason),
            extra={"fields": {"reason": reason, "count": count, "last": address}},
        )  # fmt: skip
