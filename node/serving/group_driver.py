"""Drives the dispatcher of a consumer group on a replica that leads: see `node.dispatch`.

A driver begins with GROUP_OPEN, and is over when the member ceases to lead, or when the group has
another fence. Requests that wait for an answer then get an error, and clients ask again.

Nothing here holds the loop: a page is read in bounded turns, and a command names at most
`group_keys_a_command_max` keys. Settlements of one turn of the loop become one command.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ...client.protocol import limits
from ...client.protocol.errors import (
    InvalidArgument,
    LognodeError,
    Overloaded,
    Sealed,
    Unavailable,
    from_wire,
    of_unknown_outcome,
)
from ...partitions.groups import GroupRecord
from ...statemachine import commands
from ...statemachine.groups.group import Group
from ...statemachine.groups.selection import Selection
from ..dispatch.batches import Batches
from ..dispatch.commands import AckFrom, Appending, Proposal
from ..dispatch.dispatcher import Dispatcher, Options
from ..dispatch.ready_keys import AFFINITY_MS
from ..dispatch.settling import Refused, Settling
from ..dispatch.supply import KeyRead, PageRead
from ..replicas.range_replica import RangeReplica
from ..replicas.read_turns import in_turns
from ..runtime.unexpected import OnBroken
from .dead_letters import DeadLetters, Post

log = logging.getLogger("lognode.groups")

Body = dict[str, Any]
_IDLE_S: Final = 1.0
"""How often a driver looks at the time and at the floor while nothing else happens."""
_ASLEEP_S: Final = 60.0
"""The same for a group without consumers, since a node may have thousands of these."""
_NODE_BYTES_MAX: Final = 128 * limits.MIB
"""Entries in the memory of all drivers of a node. At the limit a driver reads only if it has none.
"""
_FAR_REST_S: Final = (1.0, 15.0)
"""The shortest and the longest pause after a read of entries that are in a tier which is away."""
_READ_S: Final = 0.002
"""How long a driver reads in one turn of the loop: one page, or dozens of keys."""
_LONG_MS: Final = 1 << 40
_KINDS: Final = ("acks", "releases", "rejects", "extends")
_KEYS_A_TURN: Final = 512
"""Keys of a request that one turn of the loop takes: a key takes about 5 us."""


def now_ms() -> int:
    """Return the time of a clock that never goes back, in ms."""
    return time.monotonic_ns() // 1_000_000


class Held:
    """The bytes of entries that all drivers of a node have in memory."""

    def __init__(self) -> None:
        self.bytes = 0

    def changed(self, by: int) -> None:
        """Note that a driver has more or less."""
        self.bytes += by


class GroupDriver:
    """One group on one leading member. `on_broken` ends the node after a bug."""

    def __init__(
        self, replica: RangeReplica, record: GroupRecord, group: Group, *, reclaims: bool,
        held: Held, post: Post, on_broken: OnBroken,
    ) -> None:  # fmt: skip
        self._replica = replica
        self._held = held
        self._counted = 0
        self._group = group
        self._group_id = record.group_id
        self._term = replica.group.term
        self._on_broken = on_broken
        selection = Selection(record.prefix, record.selector)
        self.dispatcher = Dispatcher(
            record.group_id, group, (replica.state.start, replica.state.end),
            Options(record.lease_ms, record.max_deliveries, selection),
            now_ms=now_ms(), reclaims=reclaims,
        )  # fmt: skip
        self._removals = replica.state.removal.changes
        self._error: LognodeError | None = None
        self._waiters: dict[asyncio.Future[None], int] = {}
        """Consumers that wait for a key, the longest first."""
        self._idle: dict[asyncio.Future[None], None] = {}
        """Those of them that began to wait when no key was ready."""
        self._settling: dict[asyncio.Future[None], None] = {}
        self._stirred = asyncio.Event()
        self._flush_due = False
        self._reads_again_s = 0.0
        """When the driver reads again after a read that a tier did not answer."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)
        self.letters: DeadLetters | None = None
        """What copies the entries of parked keys, if the group has a log of dead letters."""
        if record.dead_letters is not None:
            self.letters = DeadLetters(
                replica, record, group, post, parked=lambda: self.dispatcher.parked_keys,
                is_over=lambda: self.is_over, on_moved=self.decided, on_ended=self.end,
                on_broken=on_broken,
            )  # fmt: skip

    # Life.

    @property
    def is_over(self) -> bool:
        """Whether another driver, here or elsewhere, has to go on."""
        replica = self._replica
        return (
            self._error is not None
            or not replica.leads
            or replica.group.term != self._term
            or replica.is_sealed
            or replica.state.groups.by_id.get(self._group_id) is not self._group
            or self._group.fence != self.dispatcher.fence
        )

    def end(self, error: LognodeError | None = None) -> None:
        """Hand out nothing more; answer everybody with an error.

        A command that was proposed may still be applied: the outcome of a settlement is unknown.
        """
        if self._error is None:
            self._error = error or self._reason()
            self._held.changed(-self._counted)
            if self.letters is not None:
                self.letters.stop()
        self._stirred.set()
        unsure = of_unknown_outcome(self._error)
        for futures, told in ((self._waiters, self._error), (self._settling, unsure)):
            for future in futures:
                if not future.done():
                    future.set_exception(told)
                    future.exception()  # the waiting request may be gone

    def _reason(self) -> LognodeError:
        replica = self._replica
        if replica.is_sealed:
            return Sealed(
                f"generation {replica.gid.generation} of range {replica.gid.range_id} ended"
            )
        if not replica.leads:
            return replica.not_leader()
        return Unavailable("the group begins anew in the range; ask again", outcome="unknown")

    def check(self) -> None:
        """Raise the error of a request that comes when the driver is over."""
        if self.is_over:
            self.end()
        if self._error is not None:
            raise self._error

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        self.end()
        if error is not None and not isinstance(error, LognodeError):
            self._on_broken(error)

    async def _run(self) -> None:
        """Read ahead, and let time pass, until the driver is over."""
        replica = self._replica
        replica.news.listen_span(self._on_news, replica.state.start, replica.state.end)
        try:
            while not self.is_over:
                self._stirred.clear()
                self._look()
                self.dispatcher.tick(now_ms())
                self._count()
                self._flush_soon()
                self.wake()
                read = self.dispatcher.next_read(replica.state.next_seq)
                if read is not None and self.dispatcher.consumers and self._may_read():
                    until = time.perf_counter() + _READ_S
                    while read is not None and not self.is_over and self._may_read():
                        try:
                            await self._read(read)
                        except Unavailable as error:
                            self._put_off(error)
                        if time.perf_counter() > until:
                            break
                        read = self.dispatcher.next_read(replica.state.next_seq)
                    await asyncio.sleep(0)
                else:
                    await self._rest()
        except LognodeError as error:
            self.end(error)
        finally:
            replica.news.unlisten_span(self._on_news, replica.state.start, replica.state.end)

    def _put_off(self, error: Unavailable) -> None:
        """Read later what is in a tier that is away. Raises another error again.

        The driver goes on: keys in memory are handed out, and what consumers settle is proposed.
        """
        wanted: Any = error.fields.get("retry_after")
        if wanted is None:
            raise error
        least, most = _FAR_REST_S
        self._reads_again_s = time.monotonic() + min(max(wanted, least), most)
        fields = {"range": self._replica.gid.range_id, "group": self._group_id}
        log.warning("a group waits for entries in the tier: %s", error.message,
                    extra={"fields": fields})  # fmt: skip

    def _may_read(self) -> bool:
        if time.monotonic() < self._reads_again_s:
            return False
        return not self.dispatcher.size or self._held.bytes < _NODE_BYTES_MAX

    def _count(self) -> None:
        """Count the entries in memory."""
        if self._error is None:
            self._held.changed(self.dispatcher.size - self._counted)
            self._counted = self.dispatcher.size

    async def _rest(self) -> None:
        """Wait until something happens, or until it is time to look."""
        at, now = self.dispatcher.next_tick_ms(now_ms()), now_ms()
        rest_s = _IDLE_S if self._is_awake else _ASLEEP_S
        if at is not None:
            rest_s = min(rest_s, max(1, at - now) / 1000)
        far_s = self._reads_again_s - time.monotonic()
        if far_s > 0:
            rest_s = min(rest_s, far_s)
        timer = asyncio.get_running_loop().call_later(rest_s, self._stirred.set)
        try:
            await self._stirred.wait()
        finally:
            timer.cancel()

    async def _read(self, read: PageRead | KeyRead) -> None:
        state = self._replica.state
        if isinstance(read, KeyRead):
            call = partial(
                state.scan, read.key, read.from_seq, read.end_seq, limit=read.limit,
                bytes_max=read.bytes_max,
            )  # fmt: skip
        else:
            call = partial(
                state.read_span, read.start, read.end, read.from_seq, read.end_seq,
                limit=read.limit, bytes_max=read.bytes_max,
            )  # fmt: skip
        page = await in_turns(self._replica, call)
        self._look()
        self.dispatcher.take_page(read, page, now_ms())
        self._count()

    @property
    def _is_awake(self) -> bool:
        """Whether somebody asks or has a key, or the floor may rise over rows. A consumer that
        joins stirs the driver."""
        dispatcher = self.dispatcher
        rows = len(self._group.rows) - dispatcher.parked
        return bool(dispatcher.consumers or dispatcher.in_flight or rows > 0)

    def _on_news(self, keys: Any, seq: int) -> None:
        if self._is_awake:
            self._stirred.set()

    def _look(self) -> None:
        """Forget what was read of entries that were removed since."""
        changes = self._replica.state.removal.changes
        if changes != self._removals:
            self._removals = changes
            self.dispatcher.removed()

    # Commands.

    def _flush_soon(self) -> None:
        """Propose at the end of this turn of the loop what is gathered until then."""
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._replica.resigning and not self.is_over:
            task = asyncio.get_running_loop().create_task(self._replica.lead_settled())
            task.add_done_callback(lambda _: self._flush())
            self._flush_due = True
            return
        try:
            self.check()
            for proposal in self.dispatcher.proposals(self._replica.state.next_seq, now_ms()):
                self._propose(proposal)
        except LognodeError as error:
            self.end(error)

    def _propose(self, proposal: Proposal) -> None:
        replica = self._replica
        future: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
        stamp_ms = replica.services.stamp_ms()
        command = commands.proposal(proposal.kind, stamp_ms, proposal.payload)
        records = 0 if proposal.appending is None else proposal.appending.records
        replica.propose(command, (future,), records=records)
        future.add_done_callback(partial(self._applied, proposal))

    def _applied(self, proposal: Proposal, future: "asyncio.Future[Body]") -> None:
        error = future.exception()
        if self._error is not None:
            return
        if error is not None:
            self.end(error if isinstance(error, LognodeError) else None)
            return
        reply = future.result()
        if proposal.appending is not None:
            self.dispatcher.append_applied(proposal, reply, now_ms())
        elif reply.get("status") != "error":
            places, actual = reply.get("refused", ()), reply.get("actual", ())
            self.dispatcher.applied(proposal, places, actual, now_ms())
            if proposal.kind == commands.GROUP_NOTE and self.letters is not None:
                self.letters.stir()
            self._flush_soon()  # acknowledgements may have gathered
        elif proposal.kind == commands.GROUP_FLOOR and not self.is_over:
            self.dispatcher.claim_refused()
        else:
            self.end()
        self._stirred.set()

    # Units.

    def _rows(self, body: Body) -> Body:
        """Return the rows of a request to settle, with units in place of keys."""
        if not self._group.by_entry:
            return body
        units = {}
        for name in ("releases", "rejects", "extends"):
            units[name] = [[self._unit(key, token), token, *more] for key, token, *more
                           in body[name]]  # fmt: skip
        acks = [[self._group.unit(key, through - 1), token, through]
                for key, token, through in body["acks"]]  # fmt: skip
        return {**body, **units, "acks": acks}

    def _unit(self, key: bytes, token: int) -> bytes:
        """Return the unit of a key and a token; for an unknown token one that nobody has."""
        unit = self.dispatcher.unit(token)
        if unit is not None and self._group.key_of(unit) == key:
            return unit
        return self._group.unit(key, token)

    def units_of(self, acks: Sequence[AckFrom]) -> list[AckFrom]:
        """Return acknowledgements that name units."""
        return [ack._replace(key=self._group.unit(ack.key, ack.first)) for ack in acks]

    def key_of(self, unit: bytes) -> bytes:
        """Return the key of a unit."""
        return self._group.key_of(unit)

    def parked_of(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Return the units of keys to retry, and the keys of which no entry is parked."""
        group = self._group
        if not group.by_entry:
            return list(keys), []
        units = [unit for unit in group.rows_of(frozenset(keys)) if group.rows[unit].parked]
        known = {group.key_of(unit) for unit in units}
        return units, [key for key in keys if key not in known]

    def skips_of(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the rows of a request to pass entries, with units in place of keys."""
        if not self._group.by_entry:
            return [list(row) for row in rows]
        return [[self._group.unit(key, seq), seq, seq + 1] for key, seq, _ in rows]

    def not_claimed(self, refused: Sequence[bytes]) -> Body:
        """Return the fields of an answer about units that the consumer no longer has."""
        group = self._group
        told: Body = {"refused": list(group.keys_of(refused))}
        if group.by_entry:
            told["refused_seqs"] = list(map(group.seq_of, refused))
        return told

    def shown(self, refused: Sequence[Refused], tokens: Mapping[bytes, int]) -> Body:
        """Return the fields of an answer about units that were refused. `tokens` has the tokens of
        the units in the request."""
        group = self._group
        rows = [[group.key_of(unit), reason, position] for unit, reason, position in refused]
        told: Body = {"refused": rows}
        if group.by_entry:
            told["tokens"] = [tokens[unit] for unit, *_ in refused]
        return told

    # Consumers.

    def wake(self) -> None:
        """Let consumers ask again for which a key is ready."""
        if silent := self.dispatcher.silent:
            for future, consumer in self._waiters.items():
                if consumer in silent:
                    _wake(future)  # a consumer that lives asks again
        left = self.dispatcher.ready
        for future, consumer in list(self._waiters.items()):
            if left <= 0:
                return
            if not future.done() and self.dispatcher.has_for(consumer, now_ms()):
                future.set_result(None)
                left -= 1
        # The other keys are of consumers that do not ask; after AFFINITY_MS they are for all (G5).
        for future in [each for each in self._idle if not each.done()][:left]:
            _wake(future)

    def join(self, consumer: int) -> None:
        """Note that a consumer lives. Raises Overloaded."""
        self.check()
        if not self.dispatcher.join(consumer, now_ms()):
            raise Overloaded(
                f"the group has {limits.group_consumers_max} consumers in the range, the limit; "
                "use fewer consumers, each with more keys at a time",
                retry_after=1.0,
            )
        self._stirred.set()

    async def until_ready(self, consumer: int, deadline_ms: int) -> None:
        """Return when a key is ready for the consumer, or at the deadline."""
        loop = asyncio.get_running_loop()
        while (now := now_ms()) < deadline_ms:
            self.check()
            if self.dispatcher.has_for(consumer, now) or consumer in self.dispatcher.silent:
                return
            wait_ms = min(deadline_ms - now, AFFINITY_MS if self.dispatcher.ready else _LONG_MS)
            future: asyncio.Future[None] = loop.create_future()
            self._waiters[future] = consumer
            if not self.dispatcher.ready:
                self._idle[future] = None
            timer = loop.call_later(wait_ms / 1000, _wake, future)
            try:
                await future
            finally:
                timer.cancel()
                del self._waiters[future]
                self._idle.pop(future, None)
            if wait_ms == AFFINITY_MS and self.dispatcher.ready:
                return  # a key of another consumer has waited long enough

    def take(self, body: Body) -> Batches:
        """Lease keys to a consumer."""
        self.check()
        self._look()
        found = self.dispatcher.take(body["consumer"], body["count"], body["bytes"], now_ms())
        if found.leases:
            self._stirred.set()
        return found

    async def claim(
        self, consumer: int, rows: Sequence[Sequence[Any]], seqs: Sequence[int],
        fences: Sequence[int],
    ) -> list[bytes]:  # fmt: skip
        """Let a consumer keep the units that it holds, each with its token; return the refused
        units. `seqs` has the seqs of the entries in a group without an order, `fences` those of
        `Dispatcher.claim`."""
        self.check()
        keys, tokens = [key for key, _ in rows], [token for _, token in rows]
        if self._group.by_entry and len(seqs) != len(rows):
            raise InvalidArgument(
                f"the request holds {len(rows)} entries and names {len(seqs)} seqs; give the seq "
                "of each entry",
                what="seqs",
            )
        if fences and len(fences) != len(rows):
            raise InvalidArgument(
                f"the request holds {len(rows)} keys and names {len(fences)} fences; give the "
                "fence of each key, or none",
                what="fences",
            )
        holds = list(zip(self._group.units(keys, seqs), tokens, strict=True))
        self.dispatcher.keep_only(consumer, {key for key, _ in holds}, now_ms())
        refused: list[bytes] = []
        for at in range(0, len(holds), _KEYS_A_TURN):
            if at:
                await asyncio.sleep(0)
                self.check()
            next_seq = self._replica.state.next_seq
            part, known = holds[at : at + _KEYS_A_TURN], fences[at : at + _KEYS_A_TURN]
            refused += self.dispatcher.claim(consumer, part, next_seq, now_ms(), known)
        self._stirred.set()
        return refused

    async def settle(self, body: Body) -> Body:
        """Settle the keys of a consumer; return the answer, which has the refused keys."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        settling = Settling(partial(_wake, done))
        rows = self._rows(body)
        parts = list(_in_parts(rows))
        for at, (acks, releases, rejects, extends) in enumerate(parts):
            if at:
                await asyncio.sleep(0)
            self.check()
            is_last = at == len(parts) - 1
            if not is_last:
                settling.awaits()
            self.dispatcher.settle(
                body["consumer"], acks, releases, rejects, extends, settling, now_ms=now_ms(),
                leaves=body["leave"] and is_last, patient=body["patient"],
            )  # fmt: skip
            self._flush_soon()
        await self._until_settled(done)
        tokens = {row[0]: row[1] for name in _KINDS for row in rows[name]}
        return self.shown(settling.refused, tokens)

    async def _until_settled(self, done: "asyncio.Future[None]") -> None:
        """Wait until a request is settled. Raises the error that ends the driver."""
        self._stirred.set()
        if not done.done():
            self._settling[done] = None
            try:
                await done
            finally:
                self._settling.pop(done, None)

    async def append(
        self, consumer: int, acks: Sequence[AckFrom], data: bytes, records: int
    ) -> Appending:
        """Append a batch with acknowledgements; return the request when its outcome is known."""
        self.check()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        appending = Appending(acks, data, records, partial(_wake, done))
        self.dispatcher.append(consumer, appending, now_ms())
        self._flush_soon()
        await self._until_settled(done)
        return appending

    def repeated(self, consumer: int, acks: Sequence[AckFrom]) -> None:
        """Note that a batch with these acknowledgements came again."""
        self.check()
        self.dispatcher.repeated(consumer, acks, now_ms())
        self._stirred.set()

    @property
    def behind(self) -> int:
        """How many seqs lie above the lowest floor: at least the entries that are not done."""
        return self._replica.state.next_seq - min(self._group.floors.values)

    def decided(self) -> None:
        """Look again after a command of an operator."""
        if not self.is_over:
            self.dispatcher.decided()
            self._stirred.set()


def _in_parts(body: Body) -> Iterator[list[list[Any]]]:
    """Yield the rows of a request to settle, of at most `_KEYS_A_TURN` keys each time."""
    names = _KINDS
    most = max(len(body[name]) for name in names)
    each = _KEYS_A_TURN // len(names) if sum(len(body[name]) for name in names) > most else most
    each = min(each, _KEYS_A_TURN)
    for at in range(0, max(most, 1), max(each, 1)):
        yield [list(body[name][at : at + each]) for name in names]


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class GroupDrivers:
    """The drivers of a node. `record` returns the record of a group by its id, or None."""

    def __init__(self, post: Post, on_broken: OnBroken) -> None:
        self._post = post
        self._on_broken = on_broken
        self.held = Held()
        self._drivers: dict[tuple[RangeReplica, int], GroupDriver] = {}
        self._opening: dict[tuple[RangeReplica, int], asyncio.Lock] = {}

    def present(self, replica: RangeReplica, group_id: int) -> GroupDriver | None:
        """Return the driver of a group, if this member leads and has one."""
        driver = self._drivers.get((replica, group_id))
        return None if driver is None or driver.is_over else driver

    def all(self) -> list[GroupDriver]:
        """Return the drivers that are not over."""
        for at, driver in list(self._drivers.items()):
            if driver.is_over:
                driver.end()
                del self._drivers[at]
        return list(self._drivers.values())

    async def opened(
        self, replica: RangeReplica, record: GroupRecord, begin: Callable[[], Any]
    ) -> GroupDriver:
        """Return the driver of a group on the leader; begin to lease if there is none.

        `begin` returns where the group begins where it has not begun. Raises NotLeader, Sealed,
        Overloaded.
        """
        at = replica, record.group_id
        driver = self.present(*at)
        if driver is not None:
            return driver
        lock = self._opening.setdefault(at, asyncio.Lock())
        try:
            async with lock:
                driver = self.present(*at)
                return driver or await self._open(replica, record, await begin())
        finally:
            if not lock.locked():
                self._opening.pop(at, None)

    async def _open(self, replica: RangeReplica, record: GroupRecord, begin: int) -> GroupDriver:
        self.all()
        before = replica.state.groups.by_id.get(record.group_id)
        term, fence = replica.group.term, 0 if before is None else before.fence
        payload = [record.group_id, begin, record.waits, *[True] * record.by_entry]
        reply = await replica.propose_and_wait(commands.GROUP_OPEN, payload)
        if reply.get("status") == "error":
            raise from_wire(reply["error"])
        group = replica.state.groups.by_id.get(record.group_id)
        if group is None or group.fence != reply["fence"] or replica.group.term != term:
            raise Unavailable("the group was changed meanwhile; ask again", reason="group")
        driver = GroupDriver(
            replica, record, group, reclaims=fence > 0, held=self.held, post=self._post,
            on_broken=self._on_broken,
        )  # fmt: skip
        self._drivers[replica, record.group_id] = driver
        return driver
