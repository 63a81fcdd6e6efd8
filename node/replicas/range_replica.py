"""A replica of a range of keys: gathers appends into entries, serves reads and follows."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from ...client.accepting.access import Allowed
from ...client.protocol import limits
from ...client.protocol.errors import (
    InvalidArgument,
    LognodeError,
    Overloaded,
    Sealed,
    Unavailable,
)
from ...client.protocol.records import Batch, PackedBatch
from ...partitions.load_sample import HotKey, Sample
from ...partitions.model import Descriptor
from ...raft.group_log import GroupLog
from ...raft.types import LogEntry
from ...statemachine import commands
from ...statemachine.admission import SenderCheck, admit, admit_steps
from ...statemachine.commands import Command
from ...statemachine.range_state import Ahead, RangeState
from ...statemachine.turn_limits import NotPrepared, TurnOver, Turns
from ..quota.quotas import APPEND_RECORDS, Payer
from ..rules.flushing import freeze_pending, may_freeze, may_propose
from ..runtime.waiters import Waiters
from .contact_watch import ContactWatch
from .far_conditions import AGAIN_S, FarConditions
from .gathered import Gathered, Waiting
from .idle_memtables import Cooling
from .key_turns import KeyTurns
from .load import LoadMeter
from .log_pins import LogPins
from .news import News
from .prepare import prepare
from .producer_use import ProducerUse, retire_at_once_max
from .proposed_batches import ProposedBatches, kept_queue_bytes_max
from .replica import Replica, Services, brim
from .view_waits import ViewWaits

Reply = dict[str, Any]
_LOOK_S = 0.25
"""How often a replica with waiters for a seq checks whether a leader is known."""


class RangeReplica(Replica):
    """See the module.

    `on_change` tells the host to look at the replica: its generation ended, it became or ceased to
    be leader, or it needs a base.
    """

    def __init__(
        self,
        *,
        descriptor: Descriptor,
        raft_log: GroupLog,
        state: RangeState,
        services: Services,
        on_change: Callable[["RangeReplica"], None],
    ) -> None:
        super().__init__(
            descriptor=descriptor,
            raft_log=raft_log,
            applied_index=state.applied_index,
            services=services,
        )
        self.state = state
        self._on_change = on_change
        self._gathered = Gathered()
        self._proposed = ProposedBatches()
        self._far_conditions = FarConditions()
        self._closed_producers: dict[int, None] = {}
        """Closed producers whose rows are removed in the next round."""
        self.news = News(services.on_broken)
        """Tells follows what was applied."""
        self.key_turns = KeyTurns(services.on_broken)
        """Turns of the clients that update a key, while this member leads."""
        self.view_waits = ViewWaits(services.on_broken)
        """Waits of appends for views, while this member leads."""
        self.contact = ContactWatch(
            self.group, timeout_s=services.options.election_timeout_min_s,
            on_lost=self.news.tell_all, on_broken=services.on_broken,
        )  # fmt: skip
        """Tells follows that this member is cut off."""
        self._seq_waiters = Waiters(services.on_broken)
        """Waiters for a seq that wait here only while a leader is known."""
        self._seq_waiters_alone = Waiters(services.on_broken)
        """Waiters for a seq that must wait at this member."""
        self._look_timer: asyncio.TimerHandle | None = None
        self._seal_proposed = False
        self._freeze_index = 0
        """Index of the last FREEZE that this member proposed as leader."""
        self._flush_not_before = 0.0
        """Earliest time of the next flush; see `put_off_flushes`."""
        self.base_turn = asyncio.Lock()
        """Held while a new durable base is derived from the last one, until meta has it."""
        self.merge_not_before = 0.0
        """Earliest time of the next merge; see `put_off_merges`."""
        self._flushed_index: int | None = None
        """Index of the last flush; see `flushed_before`."""
        self.log_pins = LogPins()
        self._base_wanted = False
        self._measured_index = -1
        """The last applied index at which the memtable was found not to be full."""
        self._memtable_since = time.monotonic()
        """When the live memtable was begun, by the monotonic clock."""
        self.cooling = Cooling()
        self._producer_use = ProducerUse(time.monotonic)
        self.load = LoadMeter(time.monotonic())
        """Counts appends where they are acknowledged, which is at the leader."""
        self.sample: Sample | None = None
        """Collects the keys that are appended and read while `hot` asks for them."""
        self.hot_key: HotKey | None = None
        """The hot key that the sample has found."""
        self._ahead: tuple[int, Ahead, Turns] | None = None
        """The next entry to apply: its index, its prepared state, the turns it took so far."""
        self._preparing: asyncio.Task[None] | None = None
        """Makes ready a file that the next entry needs."""
        self._again: asyncio.TimerHandle | None = None
        """Tries the next entry again, which needs a file of a tier that is away."""

    # Appends.

    def append(
        self,
        data: bytes | PackedBatch,
        allowed: Allowed | None = None,
        payer: Payer | None = None,
    ) -> "asyncio.Future[Reply]":
        """Take one client batch into the next round and return a future of the apply reply.

        `allowed`: what the batch may hold; None: anything. Batches of different principals share
        the rounds. Raises NotLeader, Sealed, Overloaded, or an error of `admit`; nothing was
        appended then.
        """
        self._check_takes(payer)
        packed = data.data if isinstance(data, PackedBatch) else data
        _check_size(packed)
        start, end = self.state.start, self.state.end
        return self._gather(packed, admit(data, start, end, _check_of(allowed)), allowed, payer)

    def check_append(
        self, packed: PackedBatch, allowed: Allowed | None = None, payer: Payer | None = None
    ) -> Generator[None, None, Batch]:
        """Check a batch, in steps of at most a few milliseconds. Raises the errors of `append`."""
        self._check_takes(payer)
        _check_size(packed.data)
        start, end = self.state.start, self.state.end
        return (yield from admit_steps(packed, start, end, _check_of(allowed)))

    def append_checked(
        self, data: bytes, batch: Batch, allowed: Allowed | None = None, payer: Payer | None = None
    ) -> "asyncio.Future[Reply]":
        """Do the same as `append` with a batch that `check_append` has returned for the data."""
        self._check_takes(payer)  # again: other work may have run between the steps of the check
        return self._gather(data, batch, allowed, payer)

    def _gather(
        self, data: bytes, batch: Batch, allowed: Allowed | None, payer: Payer | None
    ) -> "asyncio.Future[Reply]":
        """Keep an admitted batch for the next round."""
        self.count_append(data, batch, allowed, payer)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self._far_conditions.may_need(self.state, batch):
            then = partial(self._gather_checked, data, batch, payer, future)
            self._far_conditions.look(self, batch, len(data), future, then)
        else:
            self._keep(data, batch, payer, future)
        return future

    async def look_up_conditions(self, batch: Batch) -> None:
        """Look up the conditions of a batch whose files are in the tier only, before a command with
        the batch is proposed (`far_conditions`). Raises Unavailable while the store is away."""
        await self._far_conditions.looked_up(self, batch)

    def _gather_checked(
        self, data: bytes, batch: Batch, payer: Payer | None, future: "asyncio.Future[Reply]"
    ) -> None:
        """Keep a batch whose conditions were looked up. Raises the errors of `_check_takes`."""
        self._check_takes(payer)
        self._keep(data, batch, payer, future)

    def _keep(
        self, data: bytes, batch: Batch, payer: Payer | None, future: "asyncio.Future[Reply]"
    ) -> None:
        kept = batch if self._gathered.size < kept_queue_bytes_max else None
        self._gathered.add(_name(payer), Waiting(data, batch.count, future, kept))
        self.services.rounds.gather(self)

    def count_append(
        self, data: bytes, batch: Batch, allowed: Allowed | None, payer: Payer | None
    ) -> None:
        """Count a checked batch that is about to be proposed."""
        if batch.producer and allowed is None:
            self._producer_use.used(batch.producer)
        elif batch.producer:
            rows = self.state.producers.rows
            self._producer_use.bring(batch.producer, _name(payer), rows)
        if self.sample is not None:
            self.sample.appended(batch.key_column, together=batch.atomic)
        self.services.room.spent(len(data))
        if payer is not None:
            payer.use(APPEND_RECORDS, batch.count)
        self.services.memory.brought.add(_name(payer), len(data))

    def check_takes(self) -> None:
        """Raise an error if this replica takes no restored entries now."""
        self._check_takes(None)

    def _check_takes(self, payer: Payer | None) -> None:
        """Raise an error if this replica takes no append now."""
        principal = _name(payer)
        if not self.leads and not self.resigning:
            raise self.not_leader()
        if self.is_sealed or self._seal_proposed:
            raise Sealed(f"generation {self.gid.generation} of range {self.gid.range_id} ended")
        self.check_applies()
        no_room = self.services.room.refusal(self.members)
        if no_room is not None:
            raise no_room
        if (
            self._gathered.size_of(principal) + self.proposed_bytes > limits.append_queue_bytes_max
            or self._gathered.size + self.proposed_bytes > limits.append_queues_bytes_max
        ):
            raise Overloaded("the range's append queue is full", retry_after=0.05)
        self._check_memory(principal)

    def _check_memory(self, principal: str) -> None:
        """Raise Overloaded when there is no memory for the principal's appends."""
        held, memory = self.state.memtable_bytes, self.services.memory
        range_is_full = held > limits.memtable_hard_bytes_max
        if not (range_is_full or memory.full):
            return
        is_light = memory.brought.is_light(principal)
        if range_is_full and not (is_light and held <= brim(limits.memtable_hard_bytes_max)):
            raise Overloaded(
                "the range waits until the node has built its segments", retry_after=1.0
            )
        if memory.full and not (is_light and not memory.brim):
            raise Overloaded("the node waits until it has built segments", retry_after=1.0)

    def propose_gathered(self, *, all_of_it: bool = False) -> None:
        """Propose Raft entries of the gathered batches, when a WAL round begins.

        Unless `all_of_it` is set, only a bounded size is proposed and not yet applied at a time:
        batches that wait here are still in fair order, and proposed batches are not.
        """
        if self.resigning:
            return  # `resigned` proposes them later
        while self._gathered and not self.stopped and (all_of_it or self._may_propose):
            # An entry is applied in one step, so its size is bounded.
            most = limits.entry_bytes_max - limits.KIB if all_of_it else self._entry_bytes
            self._propose_batches(self._gathered.take(most, limits.batch_records_max))
        self.propose_light()  # where the window is closed by a heavy principal's batches
        if self._closed_producers:
            closed = list(islice(self._closed_producers, retire_at_once_max))
            for producer in closed:
                del self._closed_producers[producer]
            self.propose_in_passing(commands.RETIRE_PRODUCERS, closed)
            if self._closed_producers:
                self.services.rounds.gather(self)
        self.wake()

    def propose_light(self) -> bool:
        """Propose one Raft entry of light principals' batches when a light WAL round begins.

        A principal is light when it appends little; light rounds exist while a heavy principal
        appends to this node. The heavy principal's proposals do not keep light batches back.
        Return whether there were light batches.
        """
        brought = self.services.memory.brought
        if self.resigning or self.stopped or not self._gathered or not brought.has_heavy:
            return False
        if self.proposed_bytes >= limits.proposed_bytes_max:
            return False
        light = [who for who in self._gathered.principals() if brought.is_beside_a_heavy(who)]
        if not light:
            return False
        most = limits.proposed_scarce_bytes_max
        self._propose_batches(self._gathered.take_of(light, most, limits.batch_records_max))
        self.wake()
        return True

    def _propose_batches(self, taken: Sequence[Waiting]) -> None:
        """Propose an entry of these batches; a refusal goes to their futures."""
        batches = [each.data for each in taken]
        futures: list[asyncio.Future[Reply]] = [each.future for each in taken]
        stamp_ms = self.services.stamp_ms()
        try:
            command = commands.proposal(commands.APPEND, stamp_ms, batches)
            index = self.propose(command, futures, records=sum(each.records for each in taken))
        except LognodeError as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        else:
            if self.services.traces is not None:
                self.services.traces.proposed(self.gid, index, futures)
            decoded = [each.batch for each in taken]
            self._proposed.keep(
                index, command, Command(commands.APPEND, stamp_ms, batches), decoded
            )

    @property
    def _may_propose(self) -> bool:
        return self.proposed_bytes < self._window_bytes

    @property
    def _window_bytes(self) -> int:
        """The limit of bytes that are proposed and not yet applied.

        The limit is lower when the disk is the bottleneck (segments are built more slowly than
        entries come), and when principals share the range or the node's rounds, so that nobody
        waits long.
        """
        if self.services.memory.scarce or self._is_shared:
            return limits.proposed_scarce_bytes_max
        return limits.proposed_bytes_max

    @property
    def _entry_bytes(self) -> int:
        """The limit of bytes of one entry.

        Where principals share the range or the node's rounds, the limit leaves room for others
        beside a large batch.
        """
        if self._is_shared and not self.services.memory.scarce:
            return limits.proposed_shared_entry_bytes_max
        return self._window_bytes

    @property
    def _is_shared(self) -> bool:
        return self._gathered.is_shared or self.services.memory.brought.is_shared

    def propose_seal(self, operation: int) -> None:
        """End this generation, if this member leads and has not done so yet (idempotent)."""
        ended = self.state.sealed is not None
        if may_propose(leads=self.leads, ended=ended, seal_proposed=self._seal_proposed):
            self.propose_gathered(all_of_it=True)
            self.propose(commands.proposal(commands.SEAL, self.services.stamp_ms(), operation), ())
            self._seal_proposed = True

    def propose_freeze(self) -> None:
        """As leader, let every member begin a new memtable at one index. Idempotent until then."""
        if not may_freeze(
            leads=self.leads and not self.resigning,
            ended=self.is_sealed,
            seal_proposed=self._seal_proposed,
            pending=self.freeze_proposed,
        ):
            return
        with contextlib.suppress(LognodeError):  # the next turn tries again
            command = commands.proposal(commands.FREEZE, self.services.stamp_ms(), None)
            self._freeze_index = self.propose(command, ())

    @property
    def freeze_proposed(self) -> bool:
        """Whether a FREEZE that this member proposed is not applied yet."""
        return freeze_pending(self.applied_index, self._freeze_index, self.raft_log.last_index)

    def freeze(self) -> None:
        """Begin a new memtable on this member alone.

        Its segment differs from the segments of other members in content and name, so that no
        member can fetch it instead of building its own.
        """
        if self.state.freeze() is not None:
            self._memtable_since = time.monotonic()

    def memtable_age_s(self, now: float) -> float:
        """Return the age of the live memtable in seconds; `now` is of the monotonic clock."""
        return now - self._memtable_since

    def put_off_flushes(self, until: float) -> None:
        """Begin no flush before this time of the monotonic clock: a flush has failed."""
        self._flush_not_before = until

    def may_flush(self, now: float) -> bool:
        """Whether a flush may begin at this time of the monotonic clock."""
        return self._flush_not_before <= now

    def flushed_before(self, index: int) -> int | None:
        """Note a flush of the entries up to `index`; return the index of the flush before.

        The log is cut up to the flush before, or not at all after None. So the log keeps the
        entries of one memtable, and a member that was away for a moment needs no base.
        """
        before, self._flushed_index = self._flushed_index, index
        return before

    def put_off_merges(self, until: float) -> None:
        """Begin no merge before this time of the monotonic clock."""
        self.merge_not_before = max(self.merge_not_before, until)

    async def propose_and_wait(self, kind: int, payload: Any) -> Any:
        """Propose a command that is not an append and return the answer of apply."""
        await self.lead_settled()
        if not self.leads:
            raise self.not_leader()
        if self.is_sealed or self._seal_proposed:
            raise Sealed(f"generation {self.gid.generation} of range {self.gid.range_id} ended")
        self.check_applies()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.propose(commands.proposal(kind, self.services.stamp_ms(), payload), (future,))
        try:
            return await future
        finally:
            del future  # the error of a future refers to this frame: break the cycle

    def propose_in_passing(self, kind: int, payload: Any) -> bool:
        """As leader, propose a command without waiting for it; False: it was not proposed."""
        leads = self.leads and not self.resigning
        if not may_propose(leads=leads, ended=self.is_sealed, seal_proposed=self._seal_proposed):
            return False
        try:
            self.propose(commands.proposal(kind, self.services.stamp_ms(), payload), ())
        except LognodeError:
            return False
        return True

    def retire_unused_producers(self) -> None:
        """As leader, propose to remove rows unused for 24 h (x11)."""
        if self.leads and not self.resigning and not self.is_sealed:
            unused = self._producer_use.unused(self.state.producers.rows)
            if unused:
                self.retire_producers(unused)

    def close_producer(self, producer: int) -> None:
        """As leader, forget a closed producer, in one command of the next round with others.

        Do nothing for a producer without a row.
        """
        if self.leads and producer in self.state.producers.rows:
            self._closed_producers[producer] = None
            self.services.rounds.gather(self)

    def retire_producers(self, producers: Sequence[int]) -> None:
        """Forget producers that are no longer used. Raises NotLeader."""
        self.propose_gathered()
        if not self._seal_proposed:
            command = commands.proposal(
                commands.RETIRE_PRODUCERS, self.services.stamp_ms(), producers
            )
            self.propose(command, ())

    # Reads.

    async def take_turn(self, key: bytes, wait_s: float) -> None:
        """Return when the caller's turn to update the key begins; see `key_turns`. Raises
        NotLeader."""
        if self.leads and key in self.descriptor.span:
            await self.key_turns.take(key, wait_s)
        if not self.leads:
            raise self.not_leader()

    def check_tells_views(self) -> None:
        """Raise NotLeader or Sealed if no more positions of views will be applied here first."""
        if not self.leads:
            raise self.not_leader()
        if self.is_sealed:
            raise Sealed(f"generation {self.gid.generation} of range {self.gid.range_id} ended")

    async def wait_seq(self, seq: int, *, alone: bool) -> None:
        """Return when the seq is applied here, or when the replica has stopped.

        `alone`: wait at this member even without a leader. Otherwise raises NotLeader when no
        leader is known, and Unavailable while the next entry waits for the tier.
        """
        while self.state.next_seq <= seq and not self.stopped:
            self.check_applies()
            if alone:
                await self._seq_waiters_alone.wait(seq)
                continue
            if self.leader is None:
                raise self.not_leader()
            if self._look_timer is None:
                self._look_timer = self._loop.call_later(_LOOK_S, self._look_for_leader)
            await self._seq_waiters.wait(seq)

    def _look_for_leader(self) -> None:
        """Check once for all waiters; each woken waiter finds the reason itself."""
        self._look_timer = None
        if self.stopped or not self._seq_waiters:
            return
        if self.leader is None:
            self._seq_waiters.release()
        else:
            self._look_timer = self._loop.call_later(_LOOK_S, self._look_for_leader)

    # Replica.

    def has_room(self) -> Callable[[], bool]:
        return self.services.room.takes_entries

    @property
    def is_sealed(self) -> bool:
        # A member that continues alone after its peers are lost only seals, and serves no client.
        return self.state.sealed is not None or self.descriptor.state == "SEALING"

    @property
    def waits(self) -> bool:
        return self._preparing is not None or self._again is not None

    def may_apply(self, entry: LogEntry) -> bool:
        """Whether the entry's conditions are looked up and its files are ready (x28).

        Conditions depend on files. They are looked up one turn's worth at a time, and a thread
        makes the files ready.
        """
        if self.waits:
            return False
        if self._ahead is None or self._ahead[0] != entry.index:
            ahead = self._proposed.take(entry.index, entry.command)
            self._ahead = (entry.index, ahead, Turns())
        _, ahead, turns = self._ahead
        try:
            with self.state.store.on_hand(turns):
                self.state.look_up(ahead)
        except TurnOver:
            return False
        except NotPrepared as missing:
            self._preparing = asyncio.get_running_loop().create_task(
                prepare(self.state, missing, turns)
            )
            self._preparing.add_done_callback(self._prepared)
            return False
        self._far_conditions.goes_on()
        return True

    def _prepared(self, task: "asyncio.Task[None]") -> None:
        self._preparing = None
        error = None if task.cancelled() else task.exception()
        if self.stopped:
            return
        if isinstance(error, Unavailable):
            # The tier is away. The entry waits, and this member goes on to lead or to follow.
            self._far_conditions.hold_up(error)
            self._release_waiting()
            self._again = self._loop.call_later(AGAIN_S, self._try_again)
        elif isinstance(error, Exception):
            self._broke(error)
        else:
            self.wake()

    def check_applies(self) -> None:
        self._far_conditions.check(self.gid)

    def _release_waiting(self) -> None:
        """Wake all who wait for an entry; each checks by itself whether to wait on."""
        for waiters in (self._applied_waiters, self._seq_waiters, self._seq_waiters_alone):
            waiters.release()

    def _try_again(self) -> None:
        self._again = None
        self.wake()

    def apply(self, entry: LogEntry) -> Sequence[Reply] | None:
        memtable, next_seq = self.state.memtable, self.state.next_seq
        moves = self.state.position_moves
        ahead, self._ahead = self._ahead, None
        applied = self.state.apply(
            entry.index, entry.term, entry.command, None if ahead is None else ahead[1]
        )
        if self.state.memtable is not memtable:
            self._memtable_since = time.monotonic()
        if applied.columns and entry.index in self.proposals:
            records = sum(column.count for column in applied.columns)
            self.load.appended(records, len(entry.command))
            self.services.metrics.appended_bytes.inc(len(entry.command))
            self.services.on_appended(self.gid.range_id, records, len(entry.command))
        elif applied.columns:
            self.services.room.spent(len(entry.command))
        if applied.columns:
            self.news.tell(applied.keys, next_seq)
            self.key_turns.applied(applied.keys)
            self._seq_waiters.reach(self.state.next_seq - 1)
            self._seq_waiters_alone.reach(self.state.next_seq - 1)
        if self.state.position_moves != moves:
            self.view_waits.tell()
        if self.state.sealed is not None and self.state.sealed.final_index == entry.index:
            self._ended()
        return applied.replies

    def role_changed(self, *, leads: bool) -> None:
        if leads:
            self.load.begin(time.monotonic())
            self._producer_use.began_to_lead()
        else:
            self._seal_proposed = False
            self._proposed.clear()
            self._closed_producers.clear()
            self.key_turns.end_all()
            self.view_waits.end_all(self.not_leader())
            if not self.resigning:
                self._refuse_gathered()
        self._on_change(self)

    def watch_keys(self, sample: Sample | None, hot: HotKey | None) -> None:
        """Collect the keys that are appended and read in `sample`; `hot` is the hot key so far."""
        self.sample, self.hot_key = sample, hot

    def count_read(self) -> None:
        """Count a read that was answered here."""
        self.load.read()
        self.services.metrics.reads.inc()

    def count_push(self, waited_s: float | None) -> None:
        """Count a page that was pushed to a follow. `waited_s`: how long its news had waited."""
        self.load.pushed()
        self.services.metrics.reads.inc()
        if waited_s is not None:
            self.services.metrics.follow_delivery_seconds.observe(waited_s)

    def resigned(self) -> None:
        if self.leads:
            self.services.rounds.gather(self)
        else:
            self._refuse_gathered()

    def pumped(self) -> None:
        if self.group.base_wanted != self._base_wanted:
            self._base_wanted = self.group.base_wanted
            self._on_change(self)
        if self._measured_index != self.applied_index:
            if self.state.memtable_full:
                self.propose_freeze()
            else:
                self._measured_index = self.applied_index  # the memtable grows by entries
        if self._gathered and self._may_propose and not self.resigning:
            self.services.rounds.gather(self)

    def stop(self) -> None:
        super().stop()
        self._refuse_gathered()
        self._proposed.clear()
        self.news.tell_all()
        self.contact.end()
        self.key_turns.end_all()
        self.view_waits.end_all(self.not_leader())
        self._release_waiting()
        for timer in (self._look_timer, self._again):
            if timer is not None:
                timer.cancel()

    def _refuse_gathered(self) -> None:
        for waiting in self._gathered.clear():
            if not waiting.future.done():
                waiting.future.set_exception(self.not_leader())

    def _ended(self) -> None:
        error = Sealed(f"generation {self.gid.generation} of range {self.gid.range_id} ended")
        for waiting in self._gathered.clear():
            if not waiting.future.done():
                waiting.future.set_exception(error)
        self.news.tell_all()
        self.key_turns.end_all()
        self.view_waits.end_all(error)
        self._on_change(self)


def _name(payer: Payer | None) -> str:
    """Return the principal who appends; the empty name: no principal."""
    return "" if payer is None else payer.principal.name


def _check_size(data: bytes) -> None:
    if len(data) > limits.entry_bytes_max - limits.KIB:
        raise InvalidArgument(
            f"the batch has {len(data)} bytes; at most "
            f"{limits.entry_bytes_max - limits.KIB} are allowed. Send several batches",
            what="batch",
        )


def _check_of(allowed: Allowed | None) -> SenderCheck | None:
    return None if allowed is None else allowed.check
