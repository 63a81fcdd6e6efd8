"""Serve the operations of consumer groups on a range. The leader hands out keys; members read.

The controller keeps the names and options of groups (`group_catalog`). A request names a group by
its id: a node that does not know the id brings its metadata up to date first, and then the group
was deleted. The leader of a range forgets the state of deleted groups.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ...client.accepting.request import Room
from ...client.protocol import Operation, limits
from ...client.protocol.errors import (
    CorruptData,
    GenerationMismatch,
    InvalidArgument,
    LognodeError,
    NotFound,
    Overloaded,
    Timeout,
    Unavailable,
    Unsupported,
    from_wire,
)
from ...client.protocol.groups import (
    GROUP_APPEND,
    GROUP_DECIDE,
    GROUP_HISTORY,
    GROUP_KEYS,
    GROUP_LAG,
    GROUP_SETTLE,
    GROUP_TAKE,
    PARKED,
)
from ...client.protocol.key_spans import prefix_span
from ...client.protocol.levels import GROUPS_FROM
from ...partitions.groups import GroupRecord
from ...partitions.metadata import Metadata
from ...statemachine import commands
from ...statemachine.groups.entry_group import EntryGroup
from ...statemachine.groups.forms import SKIP
from ...statemachine.groups.group import Group
from ...statemachine.groups.lag import of_search
from ...statemachine.groups.row import Row
from ...statemachine.groups.selection import Selection
from ...statemachine.groups.undone import Search
from ...statemachine.spans import Span, common, has
from ..audit.own_appends import OwnAppends
from ..metrics import Metrics
from ..replicas.range_replica import RangeReplica
from ..replicas.read_turns import in_turns
from ..runtime.slices import stepped
from ..runtime.unexpected import OnBroken
from . import group_appends
from .data_service import DataService
from .dead_letters import Post
from .group_driver import GroupDriver, GroupDrivers, now_ms

Body = dict[str, Any]
Handler = Callable[[Body], Coroutine[Any, None, Body]]
PaidHandler = Callable[[Body, Room], Coroutine[Any, None, Body]]
_REOPENED_MAX = 16
"""Groups without consumers that a node opens at a time, for their dead letters."""
_SEARCHES_MAX = 3
"""Searches for lag that the removal of entries may disturb."""


class GroupService:
    """Serves groups on the ranges of this node.

    `metadata` returns the cluster as this node knows it, and `refresh` brings it up to date.
    `appends` takes dead letters.
    """

    def __init__(
        self,
        *,
        data: DataService,
        metadata: Callable[[], Metadata],
        refresh: Callable[[], Awaitable[None]],
        appends: OwnAppends,
        metrics: Metrics,
        on_broken: OnBroken,
    ) -> None:
        self._data = data
        self._metadata = metadata
        self._refresh = refresh
        post = Post(metadata, appends, metrics, data.on_damaged)
        self.drivers = GroupDrivers(post, on_broken)
        self._on_broken = on_broken
        self._reopening: dict[tuple[RangeReplica, int], asyncio.Task[None]] = {}
        self.handlers: Mapping[Operation, Handler] = {
            GROUP_SETTLE: self._settle,
            GROUP_APPEND: self._append,
            GROUP_DECIDE: self._decide,
        }
        self.paid_handlers: Mapping[Operation, PaidHandler] = {
            GROUP_TAKE: self._take,
            GROUP_LAG: data.reading(self._lag),
            GROUP_KEYS: data.reading(self._keys),
            GROUP_HISTORY: data.reading(self._history),
        }
        self._metrics = metrics
        metrics.show_groups(self.numbers)

    def numbers(self) -> dict[str, int]:
        """Return what the dispatchers of this node have, over all groups and ranges."""
        drivers = self.drivers.all()
        all_ = [driver.dispatcher for driver in drivers]
        return {
            "held_bytes": self.drivers.held.bytes,
            "behind": sum(driver.behind for driver in drivers),
            "dispatchers": len(all_),
            "consumers": sum(each.consumers for each in all_),
            "in_flight": sum(len(each.in_flight) for each in all_),
            "waiting": sum(each.waiting for each in all_),
            "parked": sum(each.parked for each in all_),
        }

    # Finding.

    async def _record(self, replica: RangeReplica, body: Body) -> GroupRecord:
        """Return the record of the group. Raises NotFound, Unavailable, Unsupported."""
        record = self._metadata().groups.get(body["group"])
        if record is None:
            await self._refresh()
            record = self._metadata().groups.get(body["group"])
        if record is None or record.log_id != replica.descriptor.log_id:
            raise NotFound(
                f"the log of range {replica.gid.range_id} has no group with id {body['group']}: "
                "the group was deleted. Ask for the group by its name again",
                group=body["group"],
            )
        level = self._metadata().feature_level
        if replica.state.level < GROUPS_FROM:
            if level >= GROUPS_FROM:
                raise Unavailable(
                    f"range {replica.gid.range_id} is at feature level {replica.state.level} and "
                    f"follows the cluster to level {level}; try again in a second",
                    reason="level",
                )
            raise Unsupported(
                f"the cluster is at feature level {level}; groups need level {GROUPS_FROM}. Run "
                "`lognode cluster finalize` when all nodes run this version"
            )
        return record

    async def _driver(self, replica: RangeReplica, body: Body) -> GroupDriver:
        present = self.drivers.present(replica, body["group"])
        if present is not None and body["group"] in self._metadata().groups:
            return present
        record = await self._record(replica, body)
        await replica.lead_settled()
        if not replica.leads:
            raise replica.not_leader()
        return await self.drivers.opened(replica, record, partial(_begin, replica, record))

    def has_consumers(self, replica: RangeReplica, group_id: int) -> bool:
        """Whether a consumer of the group lives, as this leader of the range knows."""
        driver = self.drivers.present(replica, group_id)
        return driver is not None and driver.dispatcher.consumers > 0

    # Consumers.

    async def _take(self, body: Body, room: Room) -> Body:
        """Return batches for a consumer, or wait for one."""
        replica = self._data.find(body)
        try:
            return await self._taken(replica, body, room)
        except CorruptData as error:
            self._data.on_damaged(replica, error)
            raise self._data.damage_refusal(replica.gid, error.message, body["node"]) from None

    async def _taken(self, replica: RangeReplica, body: Body, room: Room) -> Body:
        asked_s, until_ms = time.monotonic(), now_ms() + body["wait_ms"]
        driver = await self._driver(replica, body)
        self._check_prefix(body)
        consumer, dispatcher = body["consumer"], driver.dispatcher
        driver.join(consumer)
        refused: Sequence[bytes] = ()
        if body["fence"] != dispatcher.fence and body["holds"] != []:  # claim first what you have
            await room()
            return _answer(driver, None, refused)
        if body["holds"] is not None:
            refused = await driver.claim(consumer, body["holds"], body["seqs"], body["fences"])
        if body["count"] and not refused:
            await driver.until_ready(consumer, until_ms)
        await room()
        before = dispatcher.redelivered
        batches = driver.take(body)
        self._metrics.group_redeliveries.inc(dispatcher.redelivered - before)
        if batches.leases:
            # Another leader may have acknowledged these entries already (G3). Nobody had at any
            # moment at which this member was the leader, and the request was under way.
            if not replica.surely_led_since(asked_s):
                await replica.read_barrier()
            # One observation for an answer: an answer has hundreds of keys.
            lag_ms = replica.services.stamp_ms() - min(batches.timestamps)
            self._metrics.group_lag_seconds.observe(max(0, lag_ms) / 1000)
        replica.count_read()
        return _answer(driver, batches, refused)

    def _check_prefix(self, body: Body) -> None:
        """Raise InvalidArgument if the group has keys without the prefix of the request.

        The rights of the principal were checked for the keys with the prefix alone.
        """
        record = self._metadata().groups.get(body["group"])
        asked = prefix_span(body["prefix"])
        if record is not None and not all(common(span, asked) == span for span in record.spans):
            raise InvalidArgument(
                f"group {record.name!r} has keys without the prefix of the request; give a prefix "
                "of all keys of the group",
                what="prefix",
            )

    async def _settle(self, body: Body) -> Body:
        """Settle the keys of a consumer; answer when that is committed."""
        replica = self._data.find(body)
        driver = await self._driver(replica, body)
        if replica.proposed_bytes > limits.append_queue_bytes_max:
            raise Overloaded("the range's append queue is full", retry_after=0.05)
        return await driver.settle(body)

    async def _append(self, body: Body) -> Body:
        """Append a batch with acknowledgements; answer when both are committed.

        A repetition is answered first: its tokens are settled. No earlier attempt is applied later
        than this look, unless it was proposed here and keeps the keys busy: a leader begins to
        lease after it has applied all entries of earlier leaders, and fences their commands.
        """
        started = time.monotonic()
        replica = self._data.find(body)
        acks = group_appends.checked_acks(body["acks"])
        driver = await self._driver(replica, body)
        packed = group_appends.opened(body["batch"])
        allowed, payer = body.get("allowed"), body.get("payer")
        batch = await stepped(replica.check_append(packed, allowed, payer))
        group_appends.check_batch(batch, acks, _span(replica), replica.descriptor)
        driver.check()
        known = replica.state.repeated(batch)
        if known is None and batch.expects is not None:
            await replica.look_up_conditions(batch)
            driver.check()
            known = replica.state.repeated(batch)
        if known is not None:
            driver.repeated(body["consumer"], driver.units_of(acks))
            answer = {"result": known, "refused": []}
        else:
            replica.count_append(body["batch"], batch, allowed, payer)
            units = driver.units_of(acks)
            done = await driver.append(body["consumer"], units, body["batch"], batch.count)
            answer = group_appends.answer(done, driver.shown, is_fenced=driver.is_over)
        self._metrics.append_seconds.observe(time.monotonic() - started)
        return answer

    # Operators.

    async def _decide(self, body: Body) -> Body:
        """Retry and skip keys, and set positions. A repetition has no further effect."""
        replica = self._data.find(body)
        driver = await self._driver(replica, body)
        own = _span(replica)
        named = [*body["retry"], *(row[0] for row in (*body["skip"], *body["keys"]))]
        if not all(has(own, key) for key in named):
            raise GenerationMismatch(
                f"a key is outside of range {replica.gid.range_id}",
                ranges=[replica.descriptor.to_wire()],
            )
        group_id, who, why = (
            body["group"],
            body.get("by", "")[: limits.group_text_chars_max],
            body["why"],
        )
        refused: list[list[Any]] = []
        if body["retry"]:
            units, unknown = driver.parked_of(body["retry"])
            refused += [[key, 0] for key in unknown]
            for at in range(0, len(units), limits.group_keys_a_command_max):
                part = units[at : at + limits.group_keys_a_command_max]
                payload = [group_id, part, who]
                refused += await self._propose(replica, driver, commands.GROUP_RETRY, payload, part)
        if body["skip"]:
            skips = driver.skips_of(body["skip"])
            payload = [group_id, skips, SKIP, who, why]
            keys = [row[0] for row in skips]
            refused += await self._propose(replica, driver, commands.GROUP_SKIP, payload, keys)
        if body["spans"] or body["keys"]:
            asked = [(common(row[:2], own), row[2]) for row in body["spans"]]
            spans = [[*part, to] for part, to in asked if part is not None]
            payload = [group_id, spans, [list(row) for row in body["keys"]], who]
            if spans or body["keys"]:
                await self._propose(replica, driver, commands.GROUP_RESET, payload, [])
        return {"refused": refused}

    async def _propose(
        self, replica: RangeReplica, driver: GroupDriver, kind: int, payload: list[Any],
        keys: list[bytes],
    ) -> list[list[Any]]:  # fmt: skip
        reply = await replica.propose_and_wait(kind, payload)
        if reply.get("status") == "error":
            raise from_wire(reply["error"])
        driver.decided()
        places, actual = reply.get("refused", ()), reply.get("actual", ())
        return [
            [driver.key_of(keys[at]), position] for at, position in zip(places, actual, strict=True)
        ]

    # Reads.

    async def _lag(self, replica: RangeReplica, body: Body) -> Body:
        """Return what the group has not done, exactly at the index of the answer."""
        record = await self._record(replica, body)
        span = _asked(replica, body)
        selection = Selection(record.prefix, record.selector)
        driver = self.drivers.present(replica, record.group_id)
        try:
            async with asyncio.timeout(body["timeout_ms"] / 1000):
                for _ in range(_SEARCHES_MAX):
                    group = _group(replica, record)
                    index, flying = replica.applied_index, [] if driver is None else [
                        unit for unit in driver.dispatcher.in_flight
                        if has(span, group.key_of(unit))
                    ]  # fmt: skip
                    search = Search(replica.state, group, span, replica.state.next_seq, selection)
                    while not search.done:
                        await in_turns(replica, search.step)
                        await asyncio.sleep(0)
                    if not search.disturbed:
                        break
        except TimeoutError:
            raise Timeout(
                "the lag has more entries than a node counts in this time; ask with a longer "
                "timeout, or for a prefix",
                outcome="not_applied",
            ) from None
        found = of_search(search, index, flying)
        consumers = 0 if driver is None else driver.dispatcher.consumers
        return {**found._asdict(), "consumers": consumers, "applied": index}

    async def _keys(self, replica: RangeReplica, body: Body) -> Body:
        """Return a page of the keys or entries that are parked, or in flight, or of one key."""
        record = await self._record(replica, body)
        span = _asked(replica, body)
        group = _group(replica, record)
        driver = self.drivers.present(replica, record.group_id)
        leases = {} if driver is None else driver.dispatcher.in_flight
        if body["key"] is not None:
            units = _of_key(group, body["key"])
        elif body["what"] == PARKED:
            units = [unit for unit, row in group.rows.items() if row.parked]
        else:
            units = list(leases)
        after = None if body["after"] is None else (body["after"], body["after_seq"])
        found = sorted(
            (at, unit) for unit in units
            if has(span, (at := (group.key_of(unit), group.seq_of(unit)))[0])
            and (after is None or at > after)
        )  # fmt: skip
        page = found[: limits.group_page_rows]
        rows = []
        for (key, _), unit in page:
            row, lease = group.rows.get(unit), leases.get(unit)
            rows.append([
                key, group.position(unit), 0 if row is None else row.deliveries,
                0 if lease is None else lease.consumer, row is not None and row.parked,
                "" if row is None else _error(unit, row, driver),
            ])  # fmt: skip
        last = page[-1][0] if len(found) > len(page) else (None, 0)
        return {"rows": rows, "after": last[0], "after_seq": last[1]}

    async def _history(self, replica: RangeReplica, body: Body) -> Body:
        """Return a page of the decisions, the oldest first."""
        record = await self._record(replica, body)
        span = _asked(replica, body)
        group = _group(replica, record)
        found = [
            list(each)
            for each in group.decisions
            if common((each.start, each.end), span) is not None
        ]
        begin = body["after"]
        page = found[begin : begin + limits.group_page_rows]
        more = len(found) > begin + len(page)
        return {"decisions": page, "after": begin + len(page) if more else None}

    # Upkeep.

    def look_after(self, replica: RangeReplica) -> None:
        """As leader, forget deleted groups, and go on with dead letters that no consumer asks for.

        A consumer may be gone before the entries that it rejected are copied.
        """
        self.forget_deleted(replica)
        for group_id, group in replica.state.groups.by_id.items():
            record, at = self._metadata().groups.get(group_id), (replica, group_id)
            if (
                record is not None
                and record.dead_letters is not None
                and at not in self._reopening
                and len(self._reopening) < _REOPENED_MAX
                and self.drivers.present(*at) is None
                and any(row.parked for row in group.rows.values())
            ):
                task = asyncio.get_running_loop().create_task(self._reopen(*at))
                self._reopening[at] = task
                task.add_done_callback(partial(self._reopened, at))

    async def _reopen(self, replica: RangeReplica, group_id: int) -> None:
        with suppress(LognodeError):  # the next look tries again
            await self._driver(replica, {"group": group_id})

    def _reopened(self, at: tuple[RangeReplica, int], task: "asyncio.Task[None]") -> None:
        del self._reopening[at]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_broken(error)

    def forget_deleted(self, replica: RangeReplica) -> None:
        """As leader, forget the state of groups that were deleted."""
        metadata = self._metadata()
        given = metadata.next_ids.get("group", 1)
        for group_id in list(replica.state.groups.by_id):
            if group_id < given and group_id not in metadata.groups:
                replica.propose_in_passing(commands.GROUP_FORGET, [group_id])


def _group(replica: RangeReplica, record: GroupRecord) -> Group:
    """Return the state of the group, which may not have begun in the range."""
    present = replica.state.groups.by_id.get(record.group_id)
    return present or (EntryGroup() if record.by_entry else Group())


def _of_key(group: Group, key: bytes) -> list[bytes]:
    """Return the unit of a key; without an order the parked entries of the key, or the entry at the
    floor."""
    if not group.by_entry:
        return [key]
    parked = [unit for unit in group.rows_of({key}) if group.rows[unit].parked]
    return parked or [group.unit(key, group.floors.at(key))]


def _error(key: bytes, row: Row, driver: GroupDriver | None) -> str:
    """Return the last error of a key, or why its entry is not a dead letter yet."""
    letters = None if driver is None or not row.parked else driver.letters
    return (letters and letters.problem(key)) or row.error


def _answer(driver: GroupDriver, batches: Any, refused: Sequence[bytes]) -> Body:
    columns = ("keys", "tokens", "deliveries", "counts", "seqs", "timestamps", "values")
    return {
        "fence": driver.dispatcher.fence,
        "lease_ms": driver.dispatcher.lease_ms,
        **driver.not_claimed(refused),
        **{name: [] if batches is None else getattr(batches, name) for name in columns},
        "headers": (batches.headers or None) if batches is not None else None,
    }


async def _begin(replica: RangeReplica, record: GroupRecord) -> int:
    """Return where the group begins on keys of the range on which it has not begun."""
    if not record.begin_ms:
        return 1
    state = replica.state
    begins = []
    start: bytes | None = state.start
    while start is not None:
        seq, start = await in_turns(
            replica, partial(state.seq_at_timestamp, record.begin_ms, start, state.end)
        )
        begins.append(seq)
    return min(begins)


def _span(replica: RangeReplica) -> Span:
    return replica.descriptor.span.start, replica.descriptor.span.end


def _asked(replica: RangeReplica, body: Body) -> Span:
    """Return the part of the range's keys that the request is about."""
    asked = common((body["start_key"], body["end_key"]), prefix_span(body["prefix"]))
    found = None if asked is None else common(asked, _span(replica))
    return found or (b"\0", b"\0")
