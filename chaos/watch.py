"""Observation of the cluster during a test: the leaders of its ranges, and its health."""

import asyncio
import contextlib
from typing import Final

from ..client.client import AsyncClient
from ..client.protocol.errors import LognodeError
from .history import CLUSTER, Recorder

_LOOK_S: Final = 0.5
_ANSWER_S: Final = 1.0


async def watch_leaders(client: AsyncClient, recorder: Recorder) -> None:
    """Record the leaders of all ranges whenever one of them changes; run until cancelled."""
    known: dict[str, int] = {}
    while True:
        with contextlib.suppress(LognodeError):
            status = await client.status(timeout=_ANSWER_S)
            # A range without a leader keeps its last one: only elections count.
            seen = {str(row["id"]): row["leader"] for row in status["ranges"] if row["leader"]}
            if known | seen != known:
                known |= seen
                recorder.record(None, "info", CLUSTER, {"leaders": known.copy()})
        await asyncio.sleep(_LOOK_S)


async def healthy(client: AsyncClient, nodes: int, timeout_s: float) -> str | None:
    """Return None as soon as this number of nodes is healthy, or why it was not in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    why = "no node answered"
    while loop.time() < deadline:
        try:
            health = await client.health(nodes=nodes, timeout=_ANSWER_S)
        except LognodeError as error:
            why = str(error)
        else:
            if health["ok"]:
                return None
            why = "; ".join(health["reasons"])
        await asyncio.sleep(0.1)
    return why
