"""One replica on a simulated host: drives the real Group and RangeState as the node does.

It proposes what clients send, applies what is committed, answers after apply, serves reads at their
read index, checkpoints and cuts the log, and fetches or serves bases. After every call into the
group it shows the replica to the checkers, before anybody else can see what the call did.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...client.errors import LognodeError
from ...raft.group import Group
from ...raft.group_log import GroupLog
from ...raft.guard import ALL_HOLES
from ...raft.messages import KINDS, Vote
from ...raft.readindex import ReadQuestion
from ...raft.types import SENTINEL_INDEX, GroupId, LogEntry, RaftOptions
from ...statemachine import commands
from .clients import Reply
from .store import ReplicaStore

if TYPE_CHECKING:
    from .host import Host

RAFT, BASE_WANTED, BASE, BASE_INSTALLED, READS, ANSWERS = range(6)
"""First element of what travels between hosts."""

_LINGER_S: Final = 0.001
_BASE_RETRY_S: Final = 0.5
_VOTE: Final = next(number for number, kind in KINDS.items() if kind is Vote)
_PROMISES: Final = frozenset(
    number
    for number, kind in KINDS.items()
    if kind.__name__ in ("Append", "Ack", "Reject", "VoteRequest", "Vote")
)
"""Messages whose term their sender must never forget."""

Answer = Callable[[Reply], None]


@dataclass(slots=True)
class _Proposed:
    term: int
    answers: list[Answer]


@dataclass(slots=True)
class _Waiting:
    key: bytes
    answer: Answer


@dataclass(slots=True)
class _Reads:
    asked: dict[int, _Waiting] = field(default_factory=dict)
    ready: list[tuple[int, _Waiting]] = field(default_factory=list)


class Replica:
    """One member of one group, for one life of its process."""

    def __init__(self, host: "Host", number: int, gid: GroupId, log: GroupLog) -> None:
        self.host = host
        self.number = number
        self.gid = gid
        self.fingerprint = b"%d/%d" % gid
        self.log = log
        self.safety = host.world.safety[number]
        self.store = ReplicaStore(host.durable, number, host.rng)
        self._queue: list[tuple[bytes, Answer]] = []
        self._proposed: dict[int, _Proposed] = {}
        self._reads = _Reads()
        self._seen: tuple[int, ...] = ()
        self._checkpointing = False
        self._fetching = False
        self._meet_state()
        self.group = self._new_group()

    @property
    def applied_index(self) -> int:
        return max(self.store.state.applied_index, SENTINEL_INDEX)

    @property
    def last_index(self) -> int:
        return self.group.last_index

    @property
    def ready_to_lead(self) -> bool:
        return self.group.ready_to_lead

    def describe(self) -> str:
        group = self.group
        return (
            f"{group.role} term={group.term} log={self.log.base_index}..{group.last_index} "
            f"commit={group.commit_index} durable={self.log.durable_index} "
            f"applied={self.applied_index} leader={group.leader} "
            f"base={'wanted' if group.base_wanted else sorted(group.needs_base)}"
        )

    def contents(self) -> dict[bytes, list[tuple[int, bytes]]]:
        """Every key's (seq, value)."""
        return self.store.contents()

    # Life.

    def _meet_state(self) -> None:
        """A log that does not hold what is durably applied is reset to it (x15, 2.10)."""
        state = self.store.state
        if state.applied_index > SENTINEL_INDEX and (
            self.log.term_at(state.applied_index) != state.applied_term
        ):
            self.log.reset(state.applied_index, state.applied_term)

    def _new_group(self) -> Group:
        options = self.host.options
        return Group(
            log=self.log,
            node_id=self.host.node_id,
            members=self.host.members,
            applied_index=self.applied_index,
            clock=self.host.world.clock,
            rng=self.host.rng,
            options=RaftOptions(),
            closed=ALL_HOLES - options.opened,
        )

    def start(self) -> None:
        """Take part."""
        state = self.store.state
        self.safety.started(
            self.host.node_id,
            self.log,
            term=self.group.term,
            commit=self.group.commit_index,
            applied=self.applied_index,
        )
        if state.applied_index > SENTINEL_INDEX:
            self.safety.same_state(self.host.node_id, state.applied_index, state.state_hash)
        self.group.start()

    # After every call.

    def drain(self) -> None:
        """Show the replica to the checkers, then take out what it has to give."""
        self._observe()
        group = self.group
        while entries := group.take_committed(1 << 16):
            for entry in entries:
                self._apply(entry)
        if group.take_read_begun():
            self.host.reads.ask(self)
        self._settle_reads()
        if self._reads.ready:
            self._serve_reads()
        for peer, message in group.take_messages():
            if message[0] in _PROMISES:
                self.safety.showed(self.host.node_id, message[1])
                if message[0] == _VOTE:
                    self.safety.voted(self.host.node_id, message[1], peer)
            self.host.send(peer, [RAFT, self.number, message])
        if group.base_wanted and not self._fetching:
            self._fetch_base()
        if self.store.entries_to_checkpoint >= self.host.options.checkpoint_entries:
            self.begin_checkpoint()

    def _observe(self) -> None:
        group, log = self.group, self.log
        leads = group.role == "leader"
        seen = (group.term, leads, log.commit_index, log.last_index, log.last_term, log.base_index)
        if seen == self._seen:
            return
        world, name = self.host.world, self.host.name
        if self._seen[:1] != seen[:1]:
            world.trace(name, "term", str(seen[0]))
        self._seen = seen
        elected = self.safety.observe(
            self.host.node_id, log, term=group.term, commit=log.commit_index, leads=leads
        )
        if elected:
            world.elections += 1
            world.trace(name, "lead", f"term={group.term} last={log.last_index}")

    def collected(self, round_number: int) -> None:
        """The WAL took everything queued."""
        self._observe()
        self.safety.collected(self.host.node_id, round_number)

    def synced(self, round_number: int) -> None:
        """The disk finished a round."""
        self.safety.synced(self.host.node_id, round_number)

    # Appends.

    def request(self, body: dict[str, Any], answer: Answer) -> None:
        """A client's request."""
        group = self.group
        if body["op"] == "read" and group.leader is not None:
            ticket = group.request_read()
            self._reads.asked[ticket] = _Waiting(body["key"], answer)
        elif group.role != "leader":
            answer({"status": "error", "hint": group.leader})
        else:
            try:
                self.store.admit(body["batch"])
            except LognodeError:
                answer({"status": "error", "hint": None})
                return
            self._queue.append((body["batch"], answer))
            if len(self._queue) == 1:
                self.host.later(_LINGER_S, self._propose)

    def _propose(self) -> None:
        queue, self._queue = self._queue, []
        if self.group.role != "leader":
            for _, answer in queue:
                answer({"status": "error", "hint": self.group.leader})
            return
        command = commands.encode(
            commands.APPEND, self.host.wall_ms(), [batch for batch, _ in queue]
        )
        index, term = self.group.propose(command)
        self._proposed[index] = _Proposed(term, [answer for _, answer in queue])
        self.host.world.trace(self.host.name, "propose", f"index={index} term={term}")
        self.host.pump()

    def _apply(self, entry: LogEntry) -> None:
        state = self.store.state
        replies = self.store.apply(entry.index, entry.term, entry.command).replies or ()
        self.safety.applied(self.host.node_id, entry.index, entry.term, state.state_hash)
        proposed = self._proposed.pop(entry.index, None)
        if proposed is None:
            return
        if proposed.term != entry.term:  # another entry took the index: this one never applies
            for answer in proposed.answers:
                answer({"status": "error", "hint": self.group.leader})
            return
        self.safety.acknowledged(entry.index, entry.term)
        for answer, reply in zip(proposed.answers, replies, strict=True):
            answer(_for_client(reply))

    # Reads.

    def read_peers(self) -> list[int]:
        return self.group.read_peers()

    def read_question(self) -> ReadQuestion | None:
        return self.group.read_question()

    def read_answered(self, sender: int, question: ReadQuestion, index: int) -> None:
        self.group.read_answered(sender, question, index)

    def _settle_reads(self) -> None:
        for ticket, index in self.group.take_reads():
            waiting = self._reads.asked.pop(ticket)
            if index is None:
                waiting.answer({"status": "error", "hint": None})
            else:
                self._reads.ready.append((index, waiting))

    def _serve_reads(self) -> None:
        later = []
        for index, waiting in self._reads.ready:
            if index > self.applied_index:
                later.append((index, waiting))
                continue
            last, entries = self.store.read(waiting.key)
            waiting.answer({"status": "ok", "last": last, "entries": entries})
        self._reads.ready = later

    # Checkpoints.

    def begin_checkpoint(self) -> None:
        """Freeze the memtable; the builder's file is ready a while later."""
        if self._checkpointing or not self.store.freeze():
            return
        self._checkpointing = True
        self.host.later(self.host.rng.random() * 0.2, self._commit_checkpoint)

    def _commit_checkpoint(self) -> None:
        """Meta first, then the log may be cut; a crash between the two cuts it later."""
        self._checkpointing = False
        index = self.store.commit_checkpoint()
        if index is None:
            return
        self.host.world.checkpoints += 1
        self.host.world.trace(self.host.name, "checkpoint", f"index={index}")
        self.host.disk.boundary()
        keep = self.host.rng.choice((0, 0, 5, 20))
        cut = min(index, self.log.commit_index) - keep
        if cut > self.log.base_index:
            self.log.cut_front(cut)
        self.host.reclaim()
        self.host.pump()

    # Bases.

    def _fetch_base(self) -> None:
        leader = self.group.leader
        if leader is None or leader == self.host.node_id:
            return
        self._fetching = True
        self.host.send(leader, [BASE_WANTED, self.number, None])
        self.host.later(_BASE_RETRY_S, self._fetch_again)

    def _fetch_again(self) -> None:
        self._fetching = False
        self.host.pump()

    def send_base(self, peer: int) -> None:
        """Answer a peer that wants a base with what the manifest holds."""
        base = self.store.export_base()
        if base is not None:
            self.host.send(peer, [BASE, self.number, base])

    def install_base(self, sender: int, base: dict[str, Any]) -> None:
        """Meta and files first, then the log, then a new group on both (x1, 2.10)."""
        if not self.group.base_wanted or base["applied"][0] <= self.applied_index:
            return
        if not self.store.install(base, self.host.world.hosts[sender].durable.files):
            return
        self.group.stop()
        self._settle_reads()
        self.host.disk.boundary()
        self._meet_state()
        self.safety.installed(self.host.node_id, self.log, self.applied_index)
        self.safety.same_state(self.host.node_id, self.applied_index, self.store.state.state_hash)
        self._checkpointing = False
        self._seen = ()
        self.host.world.bases += 1
        self.host.world.trace(self.host.name, "base", f"index={self.applied_index}")
        self.group = self._new_group()
        for link, epoch in self.host.links.items():
            self.group.connected(link, epoch)
        self.group.start()
        self.host.send(sender, [BASE_INSTALLED, self.number, None])


def _for_client(reply: dict[str, Any]) -> Reply:
    """An append's reply as the simulated client reads it."""
    if reply["status"] == "ok":
        return reply
    error = reply["error"]
    if error["code"] == "SEQUENCE_MISMATCH":
        return {"status": "mismatch", "detail": str(sorted(error["fields"].items()))}
    return {"status": "error", "hint": None}
