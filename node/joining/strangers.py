"""Nodes and clients of another cluster that ask this node for that cluster.

A founder whose volume was not mounted comes up empty, and founds a cluster anew at an address that
others know by the first cluster. Such a founder must not go on (x24). But anybody can
name a cluster in a hello. So only a node that has proved itself is believed, by the secret or the
certificate that the nodes of one cluster share. A hello without proof is refused, and costs a line
in the log at most every ten seconds. Without a secret and without TLS nobody can prove anything,
and the line is all.
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
    """`founding`: whether this node founded its cluster. `on_end` gets the error that ends it."""

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
        """A node or client says that it is of that cluster; a `proven` node is one for sure."""
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
            log.log(level, "another cluster has asked for this node", extra={"fields": told})
