"""Begins parts of a node again that keep only soft state and failed by a bug.

A heartbeat, a plan or a load report reads data of other nodes and old versions. Each field is
checked where it arrives. If such a part still meets a value that its author did not expect, it is
begun again after a pause, and the node continues: every other node may have read the same value,
and one record would end the whole cluster. A broken invariant and a failed disk still end the node.
So does a bug in a part that holds data of the disk: the node must not continue then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ...client.protocol.invariants import DiskFailure, InvariantError
from ..metrics import Metrics

_PAUSE_FIRST_S: Final = 0.5
_PAUSE_MAX_S: Final = 30.0

log = logging.getLogger("lognode.node")


async def supervised(name: str, begin: Callable[[], Awaitable[None]], metrics: Metrics) -> None:
    """Run the part until it returns; begin it again when it raises, a little later each time.

    Raises InvariantError and DiskFailure.
    """
    pause_s = _PAUSE_FIRST_S
    while True:
        try:
            await begin()
        except (InvariantError, DiskFailure):
            raise
        except Exception as error:
            metrics.restarted_parts.labels(name).inc()
            log.error(
                "a part of the node failed and starts again; this is a bug: report the log "
                "of the node", exc_info=error, extra={"fields": {"part": name, "after_s": pause_s}},
            )  # fmt: skip
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        else:
            return
