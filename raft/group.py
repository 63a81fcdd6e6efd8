"""One replica of a group: engine, guard, log, elections and reads in one object without I/O.

The caller hands in messages, proposals, syncs and the passing of time. The caller takes out
messages, committed entries and settled reads. This folder's `__init__` states the contract.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import Final

from ..client.protocol import limits
from ..client.protocol.errors import LimitExceeded, RemoteProtocolError
from ..client.protocol.invariants import invariant
from . import guard, messages
from .commit_news import CommitNews
from .engine import Engine, Packet, Role
from .follower import Follower
from .guard import ALL_HOLES
from .idle import Idle
from .journal import EngineJournal, RaftLog
from .liveness import Liveness
from .member import Member
from .messages import (
    Ack,
    Append,
    BaseProbe,
    PreVote,
    PreVoteRequest,
    Quiesce,
    Quiesced,
    Reject,
    Snapshot,
    Started,
    Term,
    Vote,
    VoteRequest,
)
from .outbox import Outbox
from .prevote import Elections
from .readindex import ReadIndex, ReadQuestion
from .replicator import Replicator
from .types import (
    SENTINEL_INDEX,
    GroupId,
    LogEntry,
    Message,
    NotLeaderError,
    RaftOptions,
    RefusedMessageError,
)

_ANY_GROUP: Final = GroupId(0, 1)


class Group:
    """A member of one generation of one range. All calls come from one thread; no call blocks."""

    role: Role = "follower"
    """The role of this member in the current term; the engine changes it."""
    _stopped = False
    _read_begun = False
    _pulse_at = math.inf
    _level_at = -math.inf
    """When the leader last sent a commit index that this member had reached, too."""
    _vote_epoch = 0
    """The epoch of the vote request that the engine is answering."""

    def __init__(
        self,
        *,
        log: RaftLog,
        node_id: int,
        members: Sequence[int],
        applied_index: int,
        clock: Callable[[], float],
        rng: random.Random,
        options: RaftOptions,
        closed: frozenset[int] = ALL_HOLES,
        gid: GroupId = _ANY_GROUP,
        liveness: Liveness | None = None,
        on_refused: Callable[[int, str], None] = lambda sender, reason: None,
        accepts: Callable[[], bool] = lambda: True,
    ) -> None:
        """Create a member whose state machine has durably applied entries up to `applied_index`.

        `take_committed` goes on from there. `members`: all node ids of the generation, with
        `node_id`. `closed`: the closed holes of the library; tests and the canary leave out holes.
        `liveness` is the node's, and knows this group as `gid`; without it the group never rests.
        `on_refused(sender, reason)` is called for each message that no correct member sends; the
        reason is one word. `accepts` returns whether a follower has room for entries.
        """
        invariant(node_id in members and len(set(members)) == len(members), "malformed members")
        invariant(
            log.base_index <= max(applied_index, SENTINEL_INDEX) <= log.last_index,
            "the log of the group does not begin at the applied state",
            base_index=log.base_index, applied_index=applied_index, last_index=log.last_index,
        )  # fmt: skip
        self._log = log
        self._clock = clock
        self._options = options
        self._closed = closed
        self._on_refused = on_refused
        self._running = False
        self._taken = max(applied_index, SENTINEL_INDEX)
        if self._taken > log.commit_index:
            log.set_commit(self._taken)  # applied entries were committed (x15)
        votes_needed = guard.majority(len(members))
        self._alone = len(members) == 1
        self._journal = EngineJournal(
            log, cap_commit=self._alone and 5 in closed, truncate=2 not in closed
        )
        self._engine = Engine(
            node_id=node_id, members=members, journal=self._journal, clock=clock, rng=rng,
            options=options, fallback_s=guard.fallback_s(options, closed),
            send=self._from_engine, role_changed=self._on_role,
        )  # fmt: skip
        self._outbox = Outbox(log, closed)
        self._peers = frozenset(members) - {node_id}
        member = Member(self._engine, self._journal, self._outbox, options, clock, closed)
        self._replicator = Replicator(member, sorted(self._peers))
        self._follower = Follower(member, accepts)
        self._idle = Idle(
            gid=gid, peers=self._peers, majority=votes_needed, liveness=liveness,
            options=options, clock=clock,
        )  # fmt: skip
        self._elections = Elections(
            node_id=node_id, majority=votes_needed, options=options, clock=clock, rng=rng,
            idle=self._idle,
        )  # fmt: skip
        self._reads = ReadIndex(node_id=node_id, majority=votes_needed)
        self._voters: set[int] = set()
        self._news = CommitNews(clock, options.tell_commit_s)

    # Public state.

    @property
    def term(self) -> int:
        """The current term."""
        return self._engine.term

    @property
    def leader(self) -> int | None:
        """The leader of the current term, or None if it was not heard lately."""
        if self.role != "leader" and not self._elections.leader_is_live():
            return None
        return self._engine.leader

    @property
    def commit_index(self) -> int:
        """The index of the last committed entry. It never moves back."""
        return self._log.commit_index

    @property
    def last_index(self) -> int:
        """The index of the last entry of the log, committed or not."""
        return self._journal.last_index

    @property
    def ready_to_lead(self) -> bool:
        """Whether this member leads and has committed an entry of its term.

        Its commit index is then the commit index of the group.
        """
        return self.role == "leader" and self._log.term_at(self.commit_index) == self.term

    @property
    def caught_up(self) -> frozenset[int]:
        """As leader: the linked peers that have the whole log durable."""
        return self._replicator.caught_up() if self.role == "leader" else frozenset()

    @property
    def followers(self) -> frozenset[int]:
        """As leader: the peers that have acknowledged an entry in this term."""
        return self._replicator.followers() if self.role == "leader" else frozenset()

    @property
    def needs_base(self) -> frozenset[int]:
        """As leader: the peers that need entries which the log no longer holds."""
        return self._replicator.needs_base if self.role == "leader" else frozenset()

    @property
    def base_wanted(self) -> bool:
        """As follower: whether to install a base, since the leader's log does not continue ours."""
        return self._follower.base_wanted

    @property
    def idle(self) -> bool:
        """Whether the group rests: as leader, or since the leader's node vouches for it."""
        return self._idle.at_rest or self._idle.leader is not None

    @property
    def contact_age_s(self) -> float:
        """Seconds since this member last learned from others that it knows of all commits.

        As leader: the time since each member of some majority was heard. None of these members had
        voted for another leader when it spoke. As follower: the time since the leader was heard
        with a commit index that this member had reached. Infinite if this never happened. The time
        that a message spends in the network is not included.
        """
        if not self._running or (self.role == "leader" and not self.ready_to_lead):
            return math.inf
        if self.role == "leader":
            since = self._replicator.majority_heard_at(self._idle.pinged_at)
        else:
            since = max(self._level_at, self._idle.leader_heard_at())
        return max(0.0, self._clock() - since)

    @property
    def in_contact(self) -> bool:
        """Whether `contact_age_s` is within the least election timeout.

        The others cannot have elected a leader since then (Ongaro's thesis, 6.4.1, on leases).
        """
        return self.contact_age_s <= self._options.election_timeout_min_s

    @property
    def staleness_s(self) -> float:
        """Seconds for which commits may have escaped this member.

        Every entry that this member does not know of was committed within this time. A follower
        adds the time for which its leader may lead without a majority.
        """
        alone_s = 0.0 if self.role == "leader" else guard.fallback_s(self._options, self._closed)
        return self.contact_age_s + alone_s

    # Start, stop and links.

    def start(self, *, campaign: bool = False) -> None:
        """Take part from now on. `campaign`: ask for votes at the first tick."""
        invariant(not self._stopped, "a group that was stopped is started again")
        self._running = True
        if campaign or self._alone:
            self._elections.ask_now()
        else:
            self._elections.wait()
        for peer in self._replicator.linked():
            self._say_started(peer)

    def stop(self) -> None:
        """Stop taking part for good. Unsent messages are dropped and waiting reads fail.

        The group then holds none of its callbacks, and nothing that it owns holds the group.
        """
        self._stopped = True
        self._running = False
        self._idle.withdraw()
        self._idle.unvouch()
        self._outbox.clear()
        self._reads.fail()
        self._engine.end()
        self._on_refused = lambda sender, reason: None

    def connected(self, peer: int, epoch: int) -> None:
        """Note that our link to a peer is up, with an `epoch` that the link never had before."""
        self._replicator.connected(peer, epoch, at_rest=self._idle.at_rest)
        if self._running:
            self._say_started(peer)
            if self._elections.asking:
                self._ask_for_vote(peer)

    def disconnected(self, peer: int) -> None:
        """Note that our link to a peer is gone, along with the messages on their way."""
        self._replicator.disconnected(peer)
        if not self._can_ask_leader():
            self._reads.fail()

    def pause(self, peer: int) -> None:
        """Send a peer only heartbeats until `resume`, since our link to the peer is full."""
        self._replicator.pause(peer)

    def resume(self, peer: int) -> None:
        """Send to a peer again: the link has room. Messages on their way were not lost."""
        self._replicator.resume(peer, at_rest=self._idle.at_rest)

    def base_installed(self, peer: int) -> None:
        """As leader: note that a peer in `needs_base` has installed a base."""
        self._wake()
        self._replicator.base_installed(peer)

    def _say_started(self, peer: int) -> None:
        epoch = self._replicator.epoch(peer)
        if epoch is not None and self.role != "leader" and self._idle.leader is None:
            self._outbox.promise(peer, Started(self.term, epoch))

    # Time and the disk.

    def next_deadline(self) -> float:
        """When to call `tick`, on the given clock.

        Infinity: no call is due until something happens.
        """
        if not self._running:
            return math.inf
        if self.role == "leader":
            return math.inf if self._idle.at_rest else min(self._pulse_at, self._news.due)
        return self._elections.deadline

    def tick(self) -> None:
        """Send due heartbeats and the commit index, and start due elections."""
        if not self._running or self._clock() < self.next_deadline():
            return
        if self.role == "leader":
            self._news.told(self.commit_index)
            if self._clock() < self._pulse_at:
                self._engine.send_now()
                return
            self._pulse_at = self._clock() + self._options.heartbeat_s
            if self._replicator.disk_stalled():
                # The new term is not durable either, so no message leaves until it is.
                self._engine.step_up(min(self._peers), self.term + 1)
                return
            self._replicator.pulse()
            self._offer_rest()
        else:
            self._reads.fail()
            self._ask_for_votes()

    def take_over(self) -> None:
        """Stand for election at once, without a pre-vote: the leader wants to hand over.

        See Ongaro's thesis, 3.10. This is safe at any time, and useless for a member that lags.
        """
        if self._running and self.role != "leader" and not self._alone:
            self._campaign()

    def synced(self) -> None:
        """Note that a WAL round with items of this group was completed."""
        self._outbox.release()
        if self._running and self.role == "leader" and not self._idle.at_rest:
            self._journal.settle()
            self._replicator.durable_moved()
            self._news.committed(self.commit_index)
            self._begin_reads()

    # Proposals and commits.

    def propose(self, command: bytes) -> tuple[int, int]:
        """Append a command as leader and return its (index, term).

        The command is committed only if `take_committed` returns it at this (index, term). Raises
        NotLeaderError or LimitExceeded, with nothing appended.
        """
        if not self._running or self.role != "leader":
            raise NotLeaderError
        if len(command) > limits.entry_bytes_max:
            raise LimitExceeded(
                f"a Raft entry of {len(command)} bytes",
                limit="entry_bytes_max", value=len(command), allowed=limits.entry_bytes_max,
            )  # fmt: skip
        invariant(command[:1] == bytes([messages.REGULAR]), "a Raft entry is not a regular command")
        self._wake()
        self._news.told(self.commit_index)
        return self._engine.propose(command), self.term

    def take_messages(self) -> list[tuple[int, Message]]:
        """Take the (peer, message) pairs that may leave now."""
        return self._outbox.take()

    def take_committed(self, bytes_max: int) -> list[LogEntry]:
        """Take the next entries that are committed and durable here, including no-ops.

        Returns at most `bytes_max` bytes, but at least one entry if there is any.
        """
        last = self._log.commit_index
        if last <= self._taken:
            return []
        if 5 in self._closed:
            last = min(last, self._log.durable_index)
            if last <= self._taken:
                return []
        entries = self._log.entries(self._taken + 1, last, bytes_max)
        self._taken = entries[-1].index
        return entries

    # Reads.

    def request_read(self) -> int:
        """Return a ticket for a linearizable read; `take_reads` settles it.

        Raises NotLeaderError when this member knows no live leader that it can ask.
        """
        if not self._running or self.leader is None or not self._can_ask_leader():
            raise NotLeaderError
        self._wake()
        ticket = self._reads.request()
        self._begin_reads()
        return ticket

    def take_reads(self) -> list[tuple[int, int | None]]:
        """Take the settled reads as (ticket, read index); the index is None when the read failed.

        Serve a read once its index is applied.
        """
        question = self._reads.question
        if question is not None and question.term != self.term:
            self._reads.fail()
        return self._reads.take()

    def take_read_begun(self) -> bool:
        """Return whether a round of reads has begun since the last call. Ask it of `read_peers`."""
        begun, self._read_begun = self._read_begun, False
        return begun

    def read_peers(self, *, first: bool) -> list[int]:
        """The linked peers to ask the outstanding round of reads; see `ReadIndex.targets`."""
        return self._reads.targets(self._replicator.recent(), self._engine.leader, first=first)

    def read_question(self) -> ReadQuestion | None:
        """The question for these peers, or None without a round."""
        return self._reads.question

    def answer_read(self, sender: int, term: int) -> int | None:
        """Return a number if this member takes part and is at `term`, else None.

        The number is the commit index if this member leads and may tell it, else 0. A question
        does not prove a live leader: a former leader repeats its earlier questions.
        """
        if not self._running or sender not in self._peers or term != self.term:
            return None
        return self.commit_index if self.ready_to_lead else 0

    def read_answered(self, sender: int, question: ReadQuestion, index: int) -> None:
        """Count a peer's answer to the question; `index` is the number that the peer answered."""
        if not self._running or question.term != self.term:
            return
        if self.role == "leader":
            self._replicator.heard(sender)
        self._reads.confirmed(sender, question, index)
        self._begin_reads()

    def _can_ask_leader(self) -> bool:
        """Whether we have a link to the leader: we may hear a leader that we cannot reach."""
        leader = self._engine.leader
        return self.role == "leader" or (
            leader is not None and leader in self._peers
            and self._replicator.epoch(leader) is not None
        )  # fmt: skip

    def _begin_reads(self) -> None:
        leads = self.role == "leader"
        if leads and not (self._reads.busy and self.ready_to_lead):
            return
        if self.leader is None:
            self._reads.fail()
        elif self._reads.begin(self.term, self.commit_index if leads else None):
            self._read_begun = True

    # Rest.

    def disturb(self, peer: int, *, campaign: bool) -> None:
        """Wake this group because of news about the peer (`Liveness.take_wakes`).

        `campaign`: the peer led this group and is missing; ask for votes at the next tick.
        """
        if not self._running:
            return
        if self.role == "leader":
            self._wake()
        elif self._idle.leader == peer:
            if campaign:
                self._elections.ask_now()
            else:
                self._elections.wait()

    def _wake(self) -> None:
        """As leader: end the rest. Call this before anything that ticks the engine."""
        if self.role != "leader":
            return
        rested = self._idle.at_rest
        vouched = self._idle.withdraw()
        self._idle.active()
        if rested:
            self._replicator.woken(vouched)
            self._pulse_at = self._clock()

    def _offer_rest(self) -> None:
        """Offer rest to all linked peers, or to none. A heartbeat has just been sent."""
        log = self._log
        last = log.last_index
        if (
            self.role != "leader"
            or not self.ready_to_lead
            or not self.commit_index == last == log.durable_index
            or log.message_round(last)
            or self._reads.busy
            or not self._idle.may_rest(self._replicator.caught_up())
        ):
            self._idle.withdraw()
            return
        version = self._idle.offer()
        for peer in self._replicator.linked():
            epoch = self._replicator.epoch(peer)
            if epoch is not None:
                offer = Quiesce(self.term, epoch, self._idle.round, last, version)
                self._outbox.send(peer, offer)

    def _on_quiesce(self, sender: int, offer: Quiesce) -> None:
        """Agree if the logs are equal: the same last entry, of this leader's term, committed."""
        rested = self._idle.leader == sender
        self._elections.heard_leader(sender, rests=rested)
        log = self._journal
        if (
            (log.last_index, log.last_term) == (offer.last_index, self.term)
            and self.commit_index == offer.last_index
            and self._engine.leader == sender
            and self._idle.vouch(sender, offer.version)
        ):
            self._elections.rest()
            agreed = Quiesced(self.term, offer.epoch, offer.round)
            self._outbox.promise(sender, agreed, offer.last_index)
        elif rested:
            self._elections.wait()

    # Elections.

    def _ask_for_votes(self) -> None:
        if 21 not in self._closed or self._elections.begin():
            self._campaign()
            return
        for peer in self._replicator.linked():
            self._ask_for_vote(peer)

    def _ask_for_vote(self, peer: int) -> None:
        epoch = self._replicator.epoch(peer)
        if epoch is not None:
            last = self._journal
            request = PreVoteRequest(
                self.term, epoch, self._elections.round, last.last_index, last.last_term
            )
            self._outbox.promise(peer, request)

    def _campaign(self) -> None:
        self._elections.wait()
        self._voters.clear()
        self._engine.campaign()

    def _on_role(self, role: Role) -> None:
        self.role = role
        self._news.forget()
        if role == "leader":
            self._pulse_at = self._clock() + self._options.heartbeat_s
            self._idle.active()
            self._replicator.lead()
        else:
            self._idle.withdraw()
            self._replicator.resign()
            self._reads.fail()
            self._elections.wait()

    def _step_up(self, peer: int, term: int) -> None:
        """Move to a peer's higher term (x19), and repeat an open pre-vote round in the new term."""
        asking = self._elections.asking
        self._engine.step_up(peer, term)
        if asking:
            self._ask_for_votes()

    # From the engine.

    def _from_engine(self, peer: int, packet: Packet) -> None:
        kind = packet["type"]
        if kind == "append_entries":
            self._replicator.outgoing(peer, packet)
        elif kind == "next_node_idx":
            self._follower.answer(packet)
        elif kind == "response_vote":
            self._elections.wait()
            self._outbox.promise(peer, Vote(packet["term"], self._vote_epoch))
        elif kind == "request_vote":
            epoch_of_link = self._replicator.epoch(peer)
            if epoch_of_link is not None:
                last_index, last_term = packet["last_log_index"], packet["last_log_term"]
                request = VoteRequest(packet["term"], epoch_of_link, last_index, last_term)
                self._outbox.promise(peer, request)
        # Forwarded commands and transfers do not leave (x2.9).

    # From the peers.

    def receive(self, sender: int, message: Message) -> None:
        """Handle a message of a member. Raises RemoteProtocolError for a malformed message."""
        body = messages.decode(message)
        if not self._running or sender not in self._peers:
            return
        term = self.term
        if guard.is_impossible(body.term, term):
            self._on_refused(sender, "term_jump")
            return
        if isinstance(body, messages.REPLIES):
            if not self._counts(sender, body, term):
                return
        elif body.term < term:
            if not isinstance(body, Term):
                self._outbox.promise(sender, Term(term, body.epoch))
            return
        if body.term > term and not isinstance(body, (Append, VoteRequest)):
            self._step_up(sender, body.term)
        if self._idle.at_rest:
            if isinstance(body, messages.REPLIES) and not isinstance(body, Reject):
                return  # a reply to a request from before the rest
            self._wake()
        try:
            self._handle(sender, body)
        except RefusedMessageError as refusal:
            self._on_refused(sender, str(refusal))
        if self._idle.leader is not None and self.term > term:
            self._elections.wait()  # vouched for in an older term

    def _counts(self, sender: int, reply: messages.Reply, term: int) -> bool:
        """Whether a reply answers a request of our term and of this link (hole 3).

        A reply of a higher term passes for its term alone: its request was of an older term.
        """
        if 3 not in self._closed or reply.term > term:
            return True
        return reply.term == term and reply.epoch == self._replicator.epoch(sender)

    def _handle(self, sender: int, body: messages.Body) -> None:
        match body:
            case Append() | BaseProbe() | Snapshot():
                self._on_leader(sender, body)
            case Ack() | Reject():
                self._on_answer(sender, body)
            case VoteRequest():
                self._on_vote_request(sender, body)
            case Vote():
                self._on_vote(sender, body)
            case PreVoteRequest():
                self._on_pre_vote_request(sender, body)
            case PreVote():
                if self._elections.granted(sender, body.round) and self.role != "leader":
                    self._campaign()
            case Started():
                if self._elections.asking:
                    self._ask_for_vote(sender)
            case Quiesce():
                self._on_quiesce(sender, body)
            case Quiesced():
                self._replicator.heard(sender)
                self._idle.confirmed(sender, body.round)
            case Term():
                pass  # the message carries nothing but its term

    def _on_leader(self, sender: int, body: Append | BaseProbe | Snapshot) -> None:
        if self.role == "leader" and body.term == self.term:
            raise RefusedMessageError("second_leader")
        before = self._progress()
        if isinstance(body, Append):
            self._follower.append(sender, body)
            if body.commit <= self.commit_index:
                self._level_at = self._clock()
        elif isinstance(body, BaseProbe):
            self._follower.probe(sender, body)
        else:
            self._follower.snapshot(sender, body)
        rests = self._idle.leader == sender and self._progress() == before
        self._elections.heard_leader(sender, rests=rests)

    def _progress(self) -> tuple[int, int, int]:
        """The state that a leader's message changes, unless the message is a mere heartbeat."""
        return self.term, self._journal.last_index, self.commit_index

    def _on_answer(self, sender: int, body: Ack | Reject) -> None:
        if self.role != "leader":
            return
        if isinstance(body, Ack):
            if body.next_index > self.last_index + 1:
                raise RemoteProtocolError(f"node {sender} acknowledges entries that do not exist")
            self._replicator.on_ack(sender, body.next_index)
            self._news.committed(self.commit_index)
        else:
            self._replicator.on_reject(sender, body)
        self._begin_reads()

    def _on_vote_request(self, sender: int, request: VoteRequest) -> None:
        self._vote_epoch = request.epoch
        self._engine.deliver(
            sender,
            {
                "type": "request_vote",
                "term": request.term,
                "last_log_index": request.last_index,
                "last_log_term": request.last_term,
            },
        )

    def _on_vote(self, sender: int, vote: Vote) -> None:
        """Count a vote once per voter and term (hole 16)."""
        if sender in self._voters and 16 in self._closed:
            return
        self._voters.add(sender)
        self._engine.deliver(sender, {"type": "response_vote", "term": vote.term})

    def _on_pre_vote_request(self, sender: int, request: PreVoteRequest) -> None:
        if sender == self._idle.leader:
            self._elections.wait()  # no longer leads, whatever its node's pings say
        leads = self.role == "leader" and self._replicator.has_quorum()
        if self._elections.grants(
            sender, request.last_index, request.last_term, tail=self._journal, leads=leads
        ):
            self._outbox.promise(sender, PreVote(self.term, request.epoch, request.round))
