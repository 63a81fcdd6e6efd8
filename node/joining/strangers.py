"""Handle nodes and clients of another cluster that ask this node for their cluster.

A founder whose volume was not mounted starts empty, and founds a second cluster at an address that
others know as part of the first cluster. Such a founder must not continue (x24). But anybody can
name a cluster in a hello. So only a node that has proved itself is believed, by the secret or the
certificate that the nodes of one cluster share. A hello without proof is refused, and costs at most
one log line every ten seconds. Without a secret and without TLS nobody can prove anything, so a log
line is all that happens.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from ...client.protocol.errors import Conflict
from ...partitions.metadata import Metadata
from ..config import Config
from .bootstrap import foreign_founder

_LINE_S: Final = 10.0

log = logging.getLogger("lognode.strangers")


class Strangers:
    """Meets strangers. `founding`: this node founded its cluster. `on_end` gets the error that
    ends this node."""

    def __init__(
        self,
        *,
        cluster: str,
        config: Config,
        founding: bool,
        metadata: Callable[[], Metadata],
        on_end: Callable[[Conflict], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._founding = founding
        self._metadata = metadata
        self._on_end = on_end
        self._line_at = float("-inf")

    def met(self, cluster: str, proven: bool) -> None:
        """Handle a dialler that names another cluster; `proven`: it has proved to be a node."""
        metadata = self._metadata()
        fresh = self._founding and len(metadata.nodes) <= 1 and not metadata.logs
        error = foreign_founder(self._config, cluster, self._cluster)
        if fresh and proven:
            self._on_end(error)
        elif time.monotonic() - self._line_at > _LINE_S:
            self._line_at = time.monotonic()
            told = {"cluster": cluster, "own": self._cluster}
            if fresh:
                told["reason"] = error.message
            level = logging.ERROR if fresh else logging.WARNING
            log.log(level, "a node of another cluster has called this node", extra={"fields": told})
