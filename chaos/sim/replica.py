"""A replica of a range on a simulated host: the real RangeState behind the real Group.

The replica proposes the clients' commands, answers after apply, serves reads at their read index,
checkpoints and cuts the log, and ends its generation with a seal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...client.protocol.errors import CorruptData, GenerationMismatch, LognodeError, NotFound
from ...node.rules.flushing import cut_log, freeze_pending, may_freeze, may_propose
from ...node.serving.read_wait import BARRIER, wait_before
from ...partitions.model import Descriptor
from ...raft.group_log import GroupLog
from ...raft.types import SENTINEL_INDEX, LogEntry, NotLeaderError
from ...statemachine import commands
from ...statemachine.range_state import Base
from . import cursor_port
from .clients import Reply
from .clock import Timer
from .deliveries import APPLIED
from .group_leader import GroupLeader
from .member import Member
from .store import Contents, ReplicaStore
from .views import ViewLeader
from .violation import Violation

if TYPE_CHECKING:
    from .host import Host

_LINGER_S: Final = 0.001
_BUILD_S: Final = 0.2
_PATIENCE: Final = 2
_LEASE_MS: Final = 120_000
"""Longer than a run, unless clocks jump."""
_MERGES: Final = 0.7
"""The probability of a merge, below 1 so that members have merged different files."""

Answer = Callable[[Reply], None]


@dataclass(slots=True)
class _Waiting:
    """A read with a known index; `serve` answers the read when the index is applied."""

    index: int
    serve: Callable[[Answer], None]
    answer: Answer


class RangeReplica(Member):
    """One member of a range; its leader serves clients."""

    def __init__(self, host: "Host", descriptor: Descriptor, log: GroupLog, base: Base) -> None:
        self.store: ReplicaStore = ReplicaStore(host.durable, descriptor, base, host.rng)
        self._queue: list[tuple[bytes, Answer]] = []
        self._ready: list[_Waiting] = []
        self._building: Timer | None = None
        self._freeze_index = 0
        self._last_contents: tuple[int, Contents] = (-1, {})
        self._seal_proposed = False
        self._consumers = GroupLeader(self)
        self._views = ViewLeader(self)
        super().__init__(host, descriptor, log, base.applied_index)

    @property
    def applied_index(self) -> int:
        return max(self.store.state.applied_index, SENTINEL_INDEX)

    @property
    def is_sealed(self) -> bool:
        # A survivor goes on alone only for the seal, and serves no client.
        return self._has_ended or self.descriptor.state == "SEALING"

    @property
    def _has_ended(self) -> bool:
        return self.store.state.sealed is not None

    @property
    def takes_commands(self) -> bool:
        """Whether this member leads, and the generation goes on."""
        return self.leads and not self.is_sealed and not self._seal_proposed

    def contents(self) -> Contents:
        """Return every key's (seq, value)."""
        return self.store.contents()

    def last_contents(self) -> Contents:
        """Return the same, read and checked again only after an entry was applied: who waits for
        convergence asks all the time."""
        applied, contents = self._last_contents
        if applied != self.applied_index:
            contents = self.contents()
            self._last_contents = self.applied_index, contents
        return contents

    # Appends.

    def request(self, body: dict[str, Any], answer: Answer) -> None:
        """Handle a client's request."""
        group = self.group
        writes = body["op"] in ("append", "remove", "cursor", "group")
        if self.stopped or self.is_sealed or (self._seal_proposed and writes):
            answer({"status": "error", "hint": None})
        elif body["op"] in ("read", "prefix"):
            self._read_entries(body, answer)
        elif body["op"] == "number":
            self._read(partial(self._serve_number, body["producer"], body["number"]), answer)
        elif body["op"] == "cursor_read":
            self._read(partial(cursor_port.read, self, body), answer)
        elif group.role != "leader":
            answer({"status": "error", "hint": group.leader})
        elif body["op"] == "cursor":
            cursor_port.change(self, body, answer)
        elif body["op"] == "group":
            self._consumers.request(body, answer)
        elif body["op"] == "views":
            self._views.request(body, answer)
        elif body["op"] == "remove":
            kind, payload = body["command"]
            if kind in (commands.TRIM_KEYS, commands.DELETE_KEYS):
                self._read(partial(self._trim, kind, payload), answer)
                return
            if kind == commands.TAKE_LEASE:
                log_ms = max(self.host.wall_ms(), self.store.state.last_timestamp_ms)
                payload = [*payload, log_ms + _LEASE_MS]
            self._propose_removal(kind, payload, answer)
        else:
            try:
                self.store.admit(body["batch"])
            except GenerationMismatch:
                answer({"status": "spans", "span": self.descriptor.span})
                return
            except LognodeError:
                answer({"status": "error", "hint": None})
                return
            self._queue.append((body["batch"], answer))
            if len(self._queue) == 1:
                self.host.later(_LINGER_S, self._propose_queue)

    def _trim(self, kind: int, trims: Sequence[tuple[bytes, int]], answer: Answer) -> None:
        """Trim keys; keys without visible entries are left out of the command, as on a node."""
        hiding = [trim for trim in trims if self.store.state.shows_below(*trim)]
        if not hiding:
            self._removed(answer, {"status": "ok"})
        elif self.group.role != "leader" or self._seal_proposed:
            answer({"status": "error", "hint": self.group.leader})
        else:
            self._propose_removal(kind, hiding, answer)

    def _propose_removal(self, kind: int, payload: Sequence[Any], answer: Answer) -> None:
        command = commands.encode(kind, self.host.wall_ms(), payload)
        self.propose(command, partial(self._appended, [partial(self._removed, answer)]))

    def _removed(self, answer: Answer, reply: Reply) -> None:
        """Answer a removal: it goes as far as the range does, in keys and in seqs."""
        answer({**reply, "end": self.descriptor.span.end, "next_seq": self.store.state.next_seq})

    def _propose_queue(self) -> None:
        queue, self._queue = self._queue, []
        if not self.leads or self._seal_proposed:
            for _, answer in queue:
                answer({"status": "error", "hint": self.group.leader})
            return
        if not queue:
            return
        batches = [batch for batch, _ in queue]
        command = commands.encode(commands.APPEND, self.host.wall_ms(), batches)
        self.propose(command, partial(self._appended, [answer for _, answer in queue]))
        self.host.pump()

    def _appended(self, waiting: list[Answer], replies: Sequence[Any] | None) -> None:
        if replies is None:
            for answer in waiting:
                answer({"status": "error", "hint": self.group.leader})
            return
        for answer, reply in zip(waiting, replies, strict=True):
            if reply["status"] == "ok":
                self.acknowledged()
            answer(_for_client(reply))

    def acknowledged(self) -> None:
        """Note that a client is told of the entry that was just applied."""
        index = self.applied_index
        self.host.world.generations.acknowledged(self.gid, index)
        self.safety.acknowledged(index, self.store.state.applied_term)

    def propose_seal(self, operation: int) -> None:
        """End the generation, as leader; once while this member leads."""
        if self._may_propose():
            self._propose_queue()
            command = commands.encode(commands.SEAL, self.host.wall_ms(), operation)
            self.propose(command, lambda _: None)
            self._seal_proposed = True

    def propose_level(self, level: int) -> bool:
        """As leader, propose the feature level of the cluster; False: it was not proposed."""
        if not self._may_propose():
            return False
        self.propose(commands.encode(commands.LEVEL, self.host.wall_ms(), level), lambda _: None)
        return True

    def _may_propose(self) -> bool:
        return may_propose(
            leads=self.leads, ended=self._has_ended, seal_proposed=self._seal_proposed
        )

    # Member.

    def apply(self, entry: LogEntry) -> tuple[bytes, Sequence[Any]]:
        state = self.store.state
        sealed, before = state.sealed, (state.next_seq, state.last_timestamp_ms, state.state_hash)
        replies = state.apply(entry.index, entry.term, entry.command).replies or ()
        if self.host.options.consumers and replies:
            self._note_acks(entry, replies[0])
        self.safety.did(self.host.node_id, entry.index, state.effects.to_wire())
        if self.host.options.recovers:
            self.host.world.generations.numbered(self.gid, entry.index, state.next_seq)
        if self.store.frozen():  # by a FREEZE
            self._build_later()
        if sealed is not None:
            if before != (state.next_seq, state.last_timestamp_ms, state.state_hash):
                raise Violation("S5", "an entry after the seal has an effect", gid=self.gid,
                                index=entry.index)  # fmt: skip
        elif state.sealed is not None:
            self.host.world.trace(self.host.name, "seal", f"{self.name} index={entry.index}")
            self.host.world.generations.sealed(self.gid, entry.index, entry.term, state.state_hash)
            self.host.look_soon()
        return state.state_hash, replies

    def _note_acks(self, entry: LogEntry, reply: Any) -> None:
        command = commands.decode(entry.command)
        deliveries = self.host.world.deliveries
        if command is not None and command.kind == commands.GROUP_APPEND:
            deliveries.appended(self.gid, entry.index, command, reply)
        elif command is not None and command.kind in APPLIED:
            deliveries.applied(self.gid, entry.index, command, reply)

    def drained(self) -> None:
        if self._seal_proposed and not self.leads:
            self._seal_proposed = False
        if self._ready:
            self._serve_reads()
        self._views.look()
        if self.group.base_wanted:
            self.host.look_soon()
        entries, every = self.store.entries_to_checkpoint, self.host.options.checkpoint_entries
        if entries >= every and self.leads:
            self._propose_freeze()
        elif entries >= _PATIENCE * every:
            self.begin_checkpoint()  # no FREEZE of the leader has come

    def _propose_freeze(self) -> None:
        if not may_freeze(
            leads=self.leads,
            ended=self.is_sealed,
            seal_proposed=self._seal_proposed,
            pending=freeze_pending(self.applied_index, self._freeze_index, self.log.last_index),
        ):
            return
        self.propose(commands.encode(commands.FREEZE, self.host.wall_ms(), None), lambda _: None)
        self._freeze_index = self.log.last_index

    # Reads.

    def _read(self, serve: Callable[[Answer], None], answer: Answer) -> None:
        def settled(index: int | None) -> None:
            if index is None:
                answer({"status": "error", "hint": None})
            else:
                self._ready.append(_Waiting(index, serve, answer))

        try:
            self.ask_read(settled)
        except NotLeaderError:
            answer({"status": "error", "hint": None})

    def _serve_reads(self) -> None:
        later = []
        for waiting in self._ready:
            if self.is_sealed:
                waiting.answer({"status": "error", "hint": None})
            elif waiting.index > self.applied_index:
                later.append(waiting)
            else:
                self._answer(waiting.serve, waiting.answer)
        self._ready = later

    def _answer(self, serve: Callable[[Answer], None], answer: Answer) -> None:
        """Serve a read, unless it needs a damaged file: other members have the file."""
        try:
            serve(answer)
        except CorruptData as error:
            self.host.damage_found(self, error)
            answer({"status": "error", "hint": None})

    def stuck(self, error: CorruptData) -> None:
        if self.host.repairs is not None:
            self.host.repairs.step_found(self, error)

    def _read_entries(self, body: dict[str, Any], answer: Answer) -> None:
        """Read one key, after the waits of a node; a member that is behind refuses instead."""
        serve = partial(self._serve, body["key"], body.get("as_of"))
        consistency = "prefix" if body["op"] == "prefix" else "linearizable"
        generation, session = body.get("seen", (0, 0))
        if generation != self.gid.generation:  # a token is of one generation
            session = 0
        wait = wait_before(consistency, session, self.applied_index)
        if wait == BARRIER:
            self._read(serve, answer)
        elif wait or generation > self.gid.generation:
            answer({"status": "error", "hint": None})
        else:
            self._answer(serve, answer)

    def _serve(self, key: bytes, as_of: str | None, answer: Answer) -> None:
        try:
            last, entries = self.store.read(key, as_of)
        except NotFound:
            answer({"status": "gone"})
            return
        seen = (self.gid.generation, self.applied_index)
        answer({"status": "ok", "last": last, "entries": entries, "seen": seen})

    def _serve_number(self, producer: int, number: int, answer: Answer) -> None:
        """Answer whether a producer's number was applied (x17)."""
        row = self.store.state.producers.rows.get(producer)
        seq = None if row is None else row.seq_of(number)
        answer({"status": "ok", "seq": seq})

    # Checkpoints and bases.

    def begin_checkpoint(self) -> None:
        """Freeze the memtable without a command."""
        if not self.stopped:
            self.store.state.freeze()
            if self.store.frozen():
                self._build_later()

    def _build_later(self) -> None:
        """Build the oldest frozen memtable's file after a while; there is one builder."""
        if self._building is None:
            delay_s = self.host.rng.random() * _BUILD_S
            self._building = self.host.later(delay_s, self._commit_checkpoint)

    def _commit_checkpoint(self) -> None:
        """Commit meta first, then cut the log; after a crash between the two it is cut later."""
        self._building = None
        if self.stopped or not self.store.frozen():
            return  # retired: the row belongs to another replica; or a base was installed
        index = self.store.commit_checkpoint()
        if self.store.frozen():
            self._build_later()
        if index is None:
            return
        host = self.host
        host.world.checkpoints += 1
        host.world.trace(host.name, "checkpoint", f"{self.name} index={index}")
        if host.options.removals and host.rng.random() < _MERGES:
            try:
                host.world.merges += self.store.merge()
            except CorruptData as error:
                host.damage_found(self, error)
        host.disk.boundary()
        keep = host.rng.choice((0, 0, 5, 20))
        for _, last in cut_log(self.gid, self.log, index - keep, index):
            self.log.cut_front(last)
        host.reclaim()
        host.touch(self)
        host.look_soon()
        host.pump()


def _for_client(reply: dict[str, Any]) -> Reply:
    """Return an append's reply as the simulated client reads it."""
    if reply["status"] == "ok":
        return reply
    error = reply["error"]
    if error["code"] == "SEQUENCE_MISMATCH":
        return {"status": "mismatch", "detail": str(sorted(error["fields"].items()))}
    if error["code"] == "CONFLICT":
        return {"status": "conflict"}
    return {"status": "error", "hint": None}
