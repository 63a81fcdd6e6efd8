"""Where the partitions of a log begin and end, as the ranges last told, and news of it.

All consumers of a node that wait for records of a log share one request to each range, which waits
for new entries (`tails`). So ten thousand idle consumers cost a listener each here, and nothing at
the ranges. The requests begin with the first consumer, and end a while after the last.

A request names the seq from which on entries are new. The seqs of a range rise, also when another
member leads, so no entry is missed. When a range has split, merged or moved, the next request asks
for everything: the partitions of merged ranges have unrelated seqs. A member that is cut off would
tell nothing; so after each wait without news, the next request is linearizable, which only a member
in contact with a majority serves.

The end of a partition never falls, so an older answer that comes later changes nothing.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ...client.cluster import Cluster, LogRoutes
from ...client.partition_tails import TIMEOUT_S, tails
from ...client.protocol.errors import LognodeError, LogNotFound, Unauthorized
from ...client.protocol.key_partitions import span
from ...client.protocol.types import Consistency
from ...client.routing import Range

_WAIT_MS: Final = 5_000
_SURE: Final[Consistency] = "linearizable"
_QUICK: Final[Consistency] = "prefix"
_AGAIN_S: Final = 0.1
_IDLE_S: Final = 30.0
"""How long the requests go on without anybody who listens."""


class Tail(NamedTuple):
    """The first offset of a partition, and the offset that its next record gets at least."""

    begin: int = 0
    end: int = 0


Body = dict[str, Any]
_EMPTY: Final = Tail()


class PartitionNews:
    """The partitions of one log. All calls run on the loop's thread."""

    def __init__(self, cluster: Cluster, routes: LogRoutes) -> None:
        self._cluster = cluster
        self._routes = routes
        self._tails: dict[int, Tail] = {}
        self._listeners: dict[int, set[Callable[[], None]]] = {}
        self._known = asyncio.Event()
        """Set while all ranges have told of their partitions."""
        self._task: asyncio.Task[None] | None = None
        self._used_at = 0.0
        self._ended: LogNotFound | Unauthorized | None = None

    def tail(self, partition: int) -> Tail:
        """Return where a partition begins and ends, as last told."""
        return self._tails.get(partition, _EMPTY)

    async def known(self, deadline: float) -> bool:
        """Wait until all ranges have told of their partitions; return whether they have. Raises
        LogNotFound, Unauthorized."""
        self._used_at = self._cluster.now()
        if self._task is None or self._task.done():
            self._known.clear()
            self._ended = None
            self._task = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout_at(deadline):
                await self._known.wait()
        except TimeoutError:
            return False
        if self._ended is not None:
            raise type(self._ended)(self._ended.message)
        return True

    def listen(self, partitions: Iterable[int], listener: Callable[[], None]) -> None:
        """Call the listener after the end of one of the partitions has risen."""
        for partition in partitions:
            self._listeners.setdefault(partition, set()).add(listener)

    def unlisten(self, partitions: Iterable[int], listener: Callable[[], None]) -> None:
        """Undo `listen`."""
        for partition in partitions:
            own = self._listeners.get(partition, set())
            own.discard(listener)
            if not own:
                self._listeners.pop(partition, None)
        self._used_at = self._cluster.now()

    def begins(self, partition: int, begin: int) -> None:
        """Take the news that a partition begins at an offset now."""
        was = self.tail(partition)
        self._tails[partition] = Tail(max(begin, was.begin), max(begin, was.end))

    async def ask(self, partition: int, deadline: float) -> Tail:
        """Return where a partition begins and ends, with all that was acknowledged before the call.
        Raises the errors of a read."""
        start, end = span(partition)
        answer, _ = await tails(self._cluster, self._routes, start, end, deadline)
        self._take(answer)
        return self.tail(partition)

    async def ask_all(self, deadline: float) -> None:
        """Bring all partitions up to date, as `ask` does."""
        ranges = await self._cluster.all_ranges(self._routes, deadline)
        await asyncio.gather(*(self._ask_range(known, deadline) for known in ranges))

    async def _ask_range(self, known: Range, deadline: float) -> None:
        at: bytes | None = known.start
        while at is not None and (known.end is None or at < known.end):
            answer, found = await tails(self._cluster, self._routes, at, known.end, deadline)
            self._take(answer)
            at = found.end

    def _take(self, answer: Body) -> None:
        """Take an answer, and call the listeners of the partitions with news."""
        told: set[Callable[[], None]] = set()
        for partition, begin, end in answer["rows"]:
            was = self.tail(partition)
            self._tails[partition] = Tail(max(begin, was.begin), max(end, was.end))
            if end > was.end:
                told |= self._listeners.get(partition, set())
        for listener in told:
            listener()

    # The requests that wait.

    async def _run(self) -> None:
        """Ask all ranges, until nobody has listened for a while, or the log is gone, or a node
        refuses the token."""
        while self._listeners or self._cluster.now() - self._used_at < _IDLE_S:
            try:
                await self._watch_all()
            except (LogNotFound, Unauthorized) as error:
                self._ended = error
                self._known.set()
                return
            except LognodeError:
                await asyncio.sleep(_AGAIN_S)

    async def _watch_all(self) -> None:
        """Ask each range until one of them has changed. Raises the errors of a read."""
        deadline = self._cluster.now() + TIMEOUT_S
        ranges = await self._cluster.all_ranges(self._routes, deadline)
        left = set(ranges)

        def told(known: Range) -> None:
            left.discard(known)
            if not left:
                self._known.set()

        watching = [asyncio.create_task(self._watch(known, told)) for known in ranges]
        try:
            done, _ = await asyncio.wait(watching, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def _watch(self, known: Range, told: Callable[[Range], None]) -> None:
        """Ask a range until another generation answers, or nobody listens any more."""
        above, consistency = 0, _SURE
        while True:
            wait_ms = _WAIT_MS if above else 0
            deadline = self._cluster.now() + wait_ms / 1000 + TIMEOUT_S
            answer, found = await tails(
                self._cluster, self._routes, known.start, known.end, deadline,
                consistency=consistency, above=above, wait_ms=wait_ms,
            )  # fmt: skip
            self._take(answer)
            if found[:2] != known[:2]:
                return
            told(known)
            above, consistency = answer["next"], _QUICK if answer["rows"] else _SURE
            if not self._listeners and self._cluster.now() - self._used_at > _IDLE_S:
                return

    async def close(self) -> None:
        """End the requests."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
