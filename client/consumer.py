"""Consume a log as a member of a consumer group: each key is with at most one consumer.

The consumer asks the leader of each range for keys, keeps the leases of its batches alive, and
settles batches for all callers together. When a range is split, merged or led by another node, the
consumer goes on there with the keys that it has.
"""

import asyncio
import random
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from . import group_names
from .append_acks import AppendAcks
from .cluster import Body, Cluster, LogRoutes
from .group_batch import AsyncGroupBatch
from .group_credit import HeldKeys
from .group_held import Held, Unit, told
from .group_names import prefix_of, spans_of
from .group_settles import ACKS, EXTENDS, REJECTS, RELEASES, Settles, fenced
from .group_takes import RangeTakes
from .protocol import limits
from .protocol.errors import InvalidArgument, LognodeError, Timeout, Unavailable, bare
from .protocol.groups import BY_ENTRY, EARLIEST, GROUP_SETTLE, LATEST, TIME
from .protocol.key_spans import Span
from .protocol.types import GroupInfo, GroupStart, Pattern, Timestamp
from .routing import Range

keys_default: Final = 4_096
bytes_default: Final = 16 * limits.MIB
hold_s_default: Final = 600.0
_RANDOM_BITS: Final = 62
_EXTENDS_A_LEASE: Final = 3
"""How often a lease is extended while it lasts: one lost request does not end it."""
leave_s_default: Final = 2.0
"""Time limit for what a consumer tells the ranges when it ends."""


class Options:
    """What a consumer asks for: `group` for a group that does not exist yet, the rest for
    itself."""

    def __init__(
        self, group: Mapping[str, Any], *, prefix: bytes | str | None, pattern: Pattern | None,
        keys_max: int, bytes_max: int, hold_s: float, timeout: float,
    ) -> None:  # fmt: skip
        if type(keys_max) is not int or not 1 <= keys_max <= limits.group_holds_max:
            raise InvalidArgument(
                f"keys_max is {keys_max!r}; give 1 to {limits.group_holds_max:,} keys",
                what="keys_max",
            )
        if type(bytes_max) is not int or bytes_max < 1:
            raise InvalidArgument(
                f"bytes_max is {bytes_max!r}; give a number of bytes", what="bytes_max"
            )
        if not hold_s > 0:
            raise InvalidArgument(f"hold_s is {hold_s!r}; give seconds", what="hold_s")
        self.group = {name: value for name, value in group.items() if value is not None}
        self.prefix = prefix
        self.pattern = pattern
        self.keys_max = keys_max
        self.bytes_max = bytes_max
        self.hold_s = hold_s
        self.timeout = timeout


def begin_of_group(start: GroupStart | None) -> dict[str, Any]:
    """Return the fields of GROUP_CREATE about where a group begins; None: the caller leaves it
    open. Raises InvalidArgument."""
    if start is None:
        return {}
    if isinstance(start, Timestamp):
        return {"begin": TIME, "begin_ms": start.ms}
    if start not in (EARLIEST, LATEST):
        raise InvalidArgument(
            f"start is {start!r}; a group begins at 'earliest', 'latest' or Timestamp(ms)",
            what="start",
        )
    return {"begin": start}


class AsyncConsumer:
    """A consumer of a group: `async for batch in consumer`. Made by `AsyncLog.consume`; a context
    manager.

    Several tasks may take batches from one consumer and settle them. A slow caller takes no more
    than its credit. When the context ends by an error, the batches that the caller has and has not
    settled count as failed deliveries, with the error; everything else is given back without a
    failure.
    """

    def __init__(self, cluster: Cluster, routes: LogRoutes, name: str, options: Options) -> None:
        self._cluster = cluster
        self._routes = routes
        self._name = group_names.checked_name(name)
        self._options = options
        self._number = random.getrandbits(_RANDOM_BITS) | 1
        self._info: GroupInfo | None = None
        self._spans: list[Span] = []
        self._common: Body = {}
        self._lease_s = 0.0
        self._by_entry = False
        self._keys = HeldKeys(options.keys_max, options.bytes_max, self._unwanted, cluster.now)
        self._settles: Settles | None = None
        self._takes: dict[int, tuple[RangeTakes, asyncio.Task[None]]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._reconciling = asyncio.Lock()
        self._failure: LognodeError | None = None
        self._lost: LognodeError | None = None
        """The first refusal of an acknowledgement that nobody waited for."""
        self._closed = False
        self._settler = _Settler(self)

    def __repr__(self) -> str:
        return f"<AsyncConsumer of group {self._name!r} of log {self._routes.name!r}>"

    @property
    def group(self) -> GroupInfo:
        """The group. Raises InvalidArgument before the consumer is open."""
        if self._info is None:
            raise InvalidArgument(
                "the consumer is not open; enter its context first", what="consumer"
            )
        return self._info

    @property
    def held(self) -> int:
        """How many keys the consumer has: batches that wait, and batches that are not settled."""
        return len(self._keys)

    async def open(self) -> None:
        """Create the group unless it exists, and begin to take keys. Entering the context calls
        `open`.

        Raises Conflict when the group exists with other options than the given ones, with both
        values; LogNotFound, InvalidArgument, LimitExceeded with too many groups, Unauthorized,
        Unavailable, Timeout, and Unsupported below feature level 4.
        """
        if self._info is not None:
            return
        options, deadline = self._options, self._cluster.now() + self._options.timeout
        info, created = await group_names.created(
            self._cluster, self._routes, self._name, options.group, options.prefix,
            options.pattern, deadline,
        )  # fmt: skip
        self._spans = spans_of(info)
        self._lease_s = info.lease_ms / 1000
        self._common = {"group": info.id, "consumer": self._number}
        self._settles = Settles(
            self._cluster,
            self._routes,
            self._common,
            options.timeout,
            self._keys.lost,
            self._reached,
            self._claimed,
        )
        self._common = {**self._common, "prefix": prefix_of(info)}
        self._by_entry = info.ordering == BY_ENTRY
        await self._reconcile(deadline)
        self._info = info
        self._spawn(self._keep(self._lease_s))
        if created and info.begin == LATEST:
            await self._begun(deadline)

    async def _begun(self, deadline: float) -> None:
        """Wait until the group has begun in every range: what is appended from then on comes."""
        try:
            async with asyncio.timeout_at(deadline):
                for takes, _ in list(self._takes.values()):
                    await takes.begun.wait()
        except TimeoutError:
            raise Timeout(
                f"the group {self._name!r} has not begun in every range in time; consume again",
                outcome="unknown",
            ) from None

    async def close(self, timeout: float = leave_s_default) -> None:
        """Settle what was acknowledged with `wait=False`, and give back everything else that the
        consumer has. Always returns; the iteration ends."""
        await self._end(timeout, "")

    async def flush(self) -> None:
        """Wait until all acknowledgements so far are settled. Raises Fenced when one of those
        without `wait` was refused since the last flush."""
        if self._settles is not None:
            await self._settles.flush()
        lost, self._lost = self._lost, None
        if lost is not None:
            raise bare(lost)

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        failed = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else ""
        await self._end(leave_s_default, told(failed))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncGroupBatch:
        if self._info is None:
            await self.open()
        while True:
            if self._closed:
                raise StopAsyncIteration
            held = self._keys.next_ready()
            if held is not None:
                return AsyncGroupBatch(self._settler, held)
            if self._failure is not None:
                raise bare(self._failure)
            await self._keys.news()

    # Settling, for batches.

    async def _settle(self, held: Held, kind: str, *more: Any) -> None:
        if held.is_ended:
            raise self._not_held(held)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        row = [held.key, held.token, *more]
        self._settling().add(kind, row, partial(_tell, done), held.unit)
        await done

    def _ack(self, held: Held, position: int, *, wait: bool) -> Awaitable[None] | None:
        """Acknowledge what is below the position. Return what to wait for, with `wait`."""
        if held.is_ended:
            raise self._not_held(held)
        done = asyncio.get_running_loop().create_future() if wait else None
        row, on_over = [held.key, held.token, position], partial(self._acked, held, position, done)
        self._settling().add(ACKS, row, on_over, held.unit, is_patient=not wait)
        return done

    def _acked(
        self, held: Held, position: int, done: "asyncio.Future[None] | None",
        error: LognodeError | None,
    ) -> None:  # fmt: skip
        if error is None:
            self._is_acked(held, position)
        elif done is None:
            self._lost = self._lost or error
        if done is not None:
            _tell(done, error)

    def _with_append(self, batches: Sequence[Held], log: LogRoutes) -> AppendAcks:
        """Return what an append to the log acknowledges."""
        if log is not self._routes:
            raise InvalidArgument(
                f"acks has batches of log {self._routes.name!r}, and the append is to log "
                f"{log.name!r}, or by another client; append to the log of the batches with the "
                "client of the consumer",
                what="acks",
            )
        for held in batches:
            if held.is_ended:
                raise self._not_held(held)
        self._settling()
        common = {"group": self.group.id, "consumer": self._number}
        return AppendAcks(
            common, batches, claimed=self._claimed, acked=self._is_acked, lost=self._keys.lost
        )

    def _is_acked(self, held: Held, position: int) -> None:
        held.acked(position)
        if held.is_ended:
            self._keys.over(held)

    async def _give(self, held: Held, kind: str, *more: Any) -> None:
        """End a batch by a request that gives the key back."""
        await self._settle(held, kind, *more)
        self._keys.over(held)

    async def _keep_longer(self, held: Held) -> None:
        if held.is_ended:
            raise self._not_held(held)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._extend(held, done)
        await done

    def _reached(self, unit: Unit, token: int) -> None:
        """Give a key back whose whole batch the leader before had acknowledged: the next leader let
        the consumer claim the key, and would keep the next entry from all others."""
        if not self._keys.has(unit, token) and not self._closed:
            self._unwanted(unit, token)

    def _unwanted(self, unit: Unit, token: int) -> None:
        self._settling().add(RELEASES, [unit[0], token, 0, ""], _forget, unit)

    def _not_held(self, held: Held) -> LognodeError:
        if held.is_lost or self._closed:
            return fenced(held.key)
        return InvalidArgument(
            f"the batch of key {held.key!r} was settled before; settle each batch once",
            what="batch",
        )

    def _settling(self) -> Settles:
        if self._settles is None or self._closed:
            raise Unavailable("the consumer is closed", reason="closed")
        return self._settles

    # Tasks.

    def _spawn(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if not isinstance(error, LognodeError):
            error = Unavailable(f"the consumer has failed: {error!r}", reason="internal")
        self._failure = self._failure or error
        self._keys.wake()

    async def _keep(self, lease_s: float) -> None:
        """Extend the leases of the keys that the consumer has, each for `hold_s` at most."""
        while True:
            await asyncio.sleep(lease_s / _EXTENDS_A_LEASE)
            now = self._cluster.now()
            for held in self._keys.all:
                age = now - held.taken_s
                if age < self._options.hold_s:
                    self._extend(held)
                elif age > self._options.hold_s + lease_s:
                    self._keys.over(held, lost=True)

    def _extend(self, held: Held, done: "asyncio.Future[None] | None" = None) -> None:
        """Let the lease of a key begin again."""
        on_over = partial(self._extended, held, self._cluster.now(), done)
        self._settling().add(EXTENDS, [held.key, held.token], on_over, held.unit)

    def _extended(
        self, held: Held, asked_s: float, done: "asyncio.Future[None] | None",
        error: LognodeError | None,
    ) -> None:  # fmt: skip
        if error is None:
            held.asked_s = max(held.asked_s, asked_s)
        if done is not None:
            _tell(done, error)

    async def _claimed(self, known: Range, node: int) -> int:
        if self._closed:
            return node
        if known.range_id not in self._takes:  # the range is new
            await self._moved()
        found = self._takes.get(known.range_id)
        return node if found is None else await found[0].claimed(known, node)

    async def _moved(self) -> None:
        await self._reconcile(self._cluster.now() + self._options.timeout)

    async def _reconcile(self, deadline: float) -> None:
        """Take from the ranges that have the keys of the group now, and from no others."""
        async with self._reconciling:
            wanted: dict[int, Range] = {}
            for span in self._spans:
                for known in await self._cluster.all_ranges(self._routes, deadline, span):
                    wanted[known.range_id] = known
            for range_id in self._takes.keys() - wanted.keys():
                takes, task = self._takes.pop(range_id)
                takes.end()
                if task is not asyncio.current_task():
                    task.cancel()
            self._keys.share(wanted.values())
            for range_id, known in wanted.items():
                if range_id in self._takes:
                    self._takes[range_id][0].at(known)
                    continue
                takes = RangeTakes(
                    self._cluster, self._routes, self._common, known, self._keys, self._lease_s,
                    self._moved, by_entry=self._by_entry,
                )  # fmt: skip
                self._takes[range_id] = takes, self._spawn(takes.run())

    async def _end(self, timeout: float, error: str) -> None:
        """Give back what the consumer has. `error`: why the batches of the caller have failed."""
        if self._closed:
            return
        settles = self._settles
        if settles is not None:
            await asyncio.wait([asyncio.ensure_future(settles.flush())], timeout=timeout)
        self._closed = True
        self._keys.wake()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if settles is not None:
            await settles.close()
            ranges = [takes.known for takes, _ in self._takes.values()]
            leaving = [asyncio.create_task(self._leave(known, timeout, error)) for known in ranges]
            if leaving:
                await asyncio.wait(leaving)
        for held in self._keys.all:
            self._keys.over(held, lost=True)

    async def _leave(self, known: Range, timeout: float, error: str) -> None:
        """Give the keys of a range back; what does not arrive ends with the leases."""
        releases = [
            [held.key, held.token, 0, error] for held in self._keys.holds(known) if held.is_handed
        ]
        body = {
            "group": self._common["group"], "consumer": self._number, "leave": True,
            "releases": releases[: limits.group_keys_a_command_max],
        }  # fmt: skip
        try:
            await self._cluster.call(
                self._routes, known.start, GROUP_SETTLE, body,
                deadline=self._cluster.now() + timeout,
            )  # fmt: skip
        except LognodeError:
            return


class _Settler:
    """A consumer as its batches know it."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer

    def ack(self, held: Held, position: int, *, wait: bool) -> Awaitable[None] | None:
        return self._consumer._ack(held, position, wait=wait)

    async def release(self, held: Held, delay_ms: int, error: str) -> None:
        await self._consumer._give(held, RELEASES, delay_ms, error)

    async def reject(self, held: Held, error: str) -> None:
        await self._consumer._give(held, REJECTS, error)

    async def extend(self, held: Held) -> None:
        await self._consumer._keep_longer(held)

    def with_append(self, batches: Sequence[Held], log: LogRoutes) -> AppendAcks:
        return self._consumer._with_append(batches, log)


def _tell(done: "asyncio.Future[None]", error: LognodeError | None) -> None:
    """End the wait of a caller, who may be gone."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _forget(error: LognodeError | None) -> None:
    """Take the end of what nobody waits for."""
