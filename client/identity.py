"""The identity of a producer: id and epoch, asked for once, and the proof that they are its own."""

import asyncio

from .cluster import Cluster, LogRoutes
from .pool import shared
from .protocol.appends import FENCE
from .protocol.cluster import PRODUCER_OPEN
from .protocol.errors import Timeout


class Identity:
    """Of a producer with a name, or of an anonymous one. All calls on the loop's thread."""

    def __init__(self, cluster: Cluster, log: LogRoutes, name: str | None) -> None:
        self.grant: dict[str, bytes] = {}
        """Goes with the id in every request; nothing without authorisation."""
        self._cluster = cluster
        self._log = log
        self._name = name
        self._opening: asyncio.Task[tuple[int, int]] | None = None

    @property
    def producer(self) -> int | None:
        """The id, once it is known."""
        opening = self._opening
        if opening is None or not opening.done() or opening.cancelled() or opening.exception():
            return None
        return opening.result()[0]

    async def opened(self, deadline: float) -> tuple[int, int]:
        """Producer id and epoch. A request that failed is made again.

        Raises Unavailable, Timeout, Unauthorized.
        """
        if self._opening is None or (self._opening.done() and self.producer is None):
            self._opening = asyncio.get_running_loop().create_task(self._open(deadline))
            self._opening.add_done_callback(_retrieve)
        if self._opening.done():
            return self._opening.result()
        try:
            async with asyncio.timeout_at(deadline):
                return await shared(self._opening)
        except TimeoutError:
            raise Timeout(
                "no producer id in time: the controller has no leader, or nobody could be reached",
                outcome="not_applied",
            ) from None

    async def close(self) -> None:
        """Ask no more; returns within a second."""
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait([self._opening], timeout=1.0)

    async def _open(self, deadline: float) -> tuple[int, int]:
        answer = await self._cluster.call_any(
            PRODUCER_OPEN, {"name": self._name}, deadline=deadline
        )
        producer, epoch = answer["id"], answer["epoch"]
        self.grant = {} if answer["grant"] is None else {"grant": answer["grant"]}
        if self._name is not None:
            await self._fence(producer, epoch, deadline)
        return producer, epoch

    async def _fence(self, producer: int, epoch: int, deadline: float) -> None:
        """Tell every range of the epoch: an older holder of the name might otherwise still append
        where this one has not been yet (x27). A holder that may not use every key tells
        the ranges of its own keys."""
        body = {"id": producer, "epoch": epoch, **self.grant}
        await self._cluster.call_each(self._log, FENCE, body, deadline)


def _retrieve(task: "asyncio.Task[tuple[int, int]]") -> None:
    """Those who wait get the error; when nobody waits any more it is none."""
    if not task.cancelled():
        task.exception()
