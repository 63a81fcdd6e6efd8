"""The identity of a producer: id and epoch, requested once, and the proof of ownership."""

import asyncio

from .cluster import Cluster, LogRoutes
from .pool import shared
from .protocol.appends import FENCE
from .protocol.cluster import PRODUCER_OPEN
from .protocol.errors import Timeout


class Identity:
    """The identity of one producer, named or anonymous. All calls run on the loop's thread."""

    def __init__(self, cluster: Cluster, log: LogRoutes, name: str | None) -> None:
        self.grant: dict[str, bytes] = {}
        """The proof that every request carries with the id; empty without authorisation."""
        self._cluster = cluster
        self._log = log
        self._name = name
        self._opening: asyncio.Task[tuple[int, int]] | None = None

    @property
    def producer(self) -> int | None:
        """The id, None before it is known."""
        opening = self._opening
        if opening is None or not opening.done() or opening.cancelled() or opening.exception():
            return None
        return opening.result()[0]

    async def opened(self, deadline: float) -> tuple[int, int]:
        """Return the producer id and epoch; request them again after a failure.

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
                "no node gave a producer id in time: the controller has no leader, or no "
                "node is reachable; `lognode health` says which nodes are down",
                outcome="not_applied",
            ) from None

    async def close(self) -> None:
        """Stop requesting; returns within a second."""
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
        """Tell every range the epoch: otherwise an older holder of the name could still append
        to ranges that this holder has not used yet (x27). A holder that may use only some keys
        tells the ranges of its own keys."""
        body = {"id": producer, "epoch": epoch, **self.grant}
        await self._cluster.call_each(self._log, FENCE, body, deadline)


def _retrieve(task: "asyncio.Task[tuple[int, int]]") -> None:
    """Retrieve the exception of a task on which nobody waits any more, to avoid asyncio's
    warning."""
    if not task.cancelled():
        task.exception()
