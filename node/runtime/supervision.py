"""Parts of a node that read what others say and keep only soft state: a bug costs a turn of theirs.

A heartbeat, a plan or a look at loads reads what other nodes and old versions have left. Each field
is checked where it comes in. Should one of these parts meet a value that its author did not think
of, the part is begun again after a pause, and the node goes on: every other node may have read the
same value, and a cluster would end at one record. A broken invariant and a failed disk end the node
as ever, and so does a bug in a part that holds what is on the disk: going on there is not safe.
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
    """Run the part until it returns; begin it again, a little later each time, when it raises.

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
                "a part of the node failed and is begun again; this is a bug: report it with the "
                "log", exc_info=error, extra={"fields": {"part": name, "after_s": pause_s}},
            )  # fmt: skip
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        else:
            return
