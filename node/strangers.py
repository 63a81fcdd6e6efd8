"""Other sides that take this node for one of another cluster: what follows from what they say.

A founder whose volume was not mounted comes up empty, and founds a cluster anew at an address that
others know by the first one. It must not go on (executions 1.24). But anybody can name a cluster in
a hello. So only who has proved to hold the secret of this cluster is believed: a node of the first
cluster has the same secret file. What comes without a proof is refused, and costs a line in the log
at most every ten seconds. Without a secret nobody can prove anything, and the line is all.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from ..client.errors import Conflict
from .config import Config

_LINE_S: Final = 10.0

log = logging.getLogger("lognode.strangers")


class Strangers:
    """`just_founded`: whether this node founded its cluster, and nothing is in it yet. `on_end`
    gets the error that ends this node."""

    def __init__(
        self,
        *,
        cluster: str,
        config: Config,
        just_founded: Callable[[], bool],
        on_end: Callable[[Conflict], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._just_founded = just_founded
        self._on_end = on_end
        self._line_at = float("-inf")

    def met(self, cluster: str, proven: bool) -> None:
        """The other side is of that cluster, as it says, and has proved to hold the secret."""
        fresh = self._just_founded()
        told = (
            f"a node or client of cluster {cluster!r} has asked for {self._config.advertised}, and "
            f"this node is of cluster {self._cluster}"
        )
        if fresh:
            told += (
                f", which it has just founded in {self._config.data}: is that the right directory, "
                "and its volume mounted?"
            )
        if fresh and proven:
            self._on_end(Conflict(told))
        elif time.monotonic() - self._line_at > _LINE_S:
            self._line_at = time.monotonic()
            level = logging.ERROR if fresh else logging.WARNING
            log.log(
                level, "a side of another cluster is refused", extra={"fields": {"reason": told}}
            )
