"""The leader's side of replication: between the engine, which sends all it can, and the peers.

Every append of the engine goes through `outgoing`, every answer of a peer through `on_ack` or
`on_reject`. The engine learns of acks only up to the durable index of this member (hole 5). After a
rejection the engine learns where to go on in the one form it understands, a `next_node_idx`.
"""

import math
from collections.abc import Callable, Iterable

from . import guard
from .engine import Packet
from .member import Member
from .messages import Append, BaseProbe, Reject, Snapshot
from .progress import Flow, Progress


class Replicator:
    """One member's knowledge of its peers while it leads, and its links to them at all times."""

    def __init__(self, member: Member, peers: Iterable[int]) -> None:
        self._peers = {peer: Progress(peer) for peer in peers}
        self._engine = member.engine
        self._journal = member.journal
        self._log = member.journal.log
        self._outbox = member.outbox
        self._options = member.options
        self._clock = member.clock
        self._closed = member.closed
        self._durable_index = 0
        self._durable_at = 0.0
        """When, while leading, our own disk last made progress or had nothing to do."""

    # Links, in any role.

    def epoch(self, peer: int) -> int | None:
        """Return the epoch of our link to a peer, or None without a link."""
        return self._peers[peer].epoch

    def linked(self) -> list[int]:
        """Return the peers that we have a link to."""
        return [progress.peer for progress in self._peers.values() if progress.epoch is not None]

    def recent(self) -> list[int]:
        """Return the peers that we have a link to, the one that was heard last first."""
        return sorted(self.linked(), key=lambda peer: -self._peers[peer].heard_at)

    def connected(self, peer: int, epoch: int, *, at_rest: bool) -> None:
        """Begin a new link and send again: messages on an older link may be lost.

        In a group at rest no message was on its way, and its engine must not look at its timers.
        """
        progress = self._peers[peer]
        progress.epoch = epoch
        if self._engine.role == "leader":
            start = progress.acked + 1 if progress.acked else progress.next_index
            progress.rewind(start, Flow.REPLICATE)
            self._set_next(progress)
            self._engine.show(peer)
            if not at_rest:
                self._engine.send_now()

    def disconnected(self, peer: int) -> None:
        """End the link to a peer."""
        progress = self._peers[peer]
        progress.epoch = None
        progress.paused = False
        progress.rewind(progress.next_index, progress.flow)
        self._engine.hide(peer)

    def pause(self, peer: int) -> None:
        """Send no more to a peer whose link is full. Messages on their way are not lost."""
        progress = self._peers[peer]
        progress.paused = True
        self._engine.hide(peer)

    def resume(self, peer: int, *, at_rest: bool) -> None:
        """Go on sending to a peer, since the link has room again."""
        progress = self._peers[peer]
        progress.paused = False
        if self._engine.role == "leader" and self._show_or_hide(progress):
            self._set_next(progress)
            if not at_rest:
                self._engine.send_now()

    # Leadership.

    def lead(self) -> None:
        """Begin to lead: the engine has just become leader and is about to append its no-op."""
        now = self._clock()
        self._durable_index, self._durable_at = 0, now
        for progress in self._peers.values():
            progress.lead(self._journal.last_index + 1, now)
            self._show_or_hide(progress)

    def resign(self) -> None:
        """Stop leading. The engine sees no peer, so that it starts no election (hole 21)."""
        for peer in self._peers:
            self._engine.hide(peer)

    def heard(self, peer: int) -> None:
        """Note that a peer confirmed our leadership."""
        self._peers[peer].heard_at = self._clock()

    def woken(self, vouched: Iterable[int]) -> None:
        """End the group's rest.

        The engine counts the time since the last answer of a peer (x20), so the pings of the
        `vouched` peers' nodes count as answers.
        """
        self._durable_at = self._clock()
        for peer in vouched:
            progress = self._peers[peer]
            progress.heard_at = self._clock()
            self._alive(progress)

    def has_quorum(self) -> bool:
        """Return whether a majority with us was heard within the minimum election timeout."""
        since = self._clock() - self._options.election_timeout_min_s
        return self.majority_heard_at(lambda peer: -math.inf) >= since

    def majority_heard_at(self, pinged_at: Callable[[int], float]) -> float:
        """Return since when every member of some majority was heard, this member included.

        A member is heard by its answer to a message of the leader, or by a ping of its node at
        `pinged_at`. For a group of one member the result is now.
        """
        needed = guard.majority(1 + len(self._peers)) - 1
        if not needed:
            return self._clock()
        heard = (max(each.heard_at, pinged_at(each.peer)) for each in self._peers.values())
        return sorted(heard, reverse=True)[needed - 1]

    def caught_up(self) -> frozenset[int]:
        """Return the linked peers that have our whole log durable."""
        last = self._journal.last_index
        return frozenset(
            p.peer for p in self._peers.values() if p.epoch is not None and p.acked >= last
        )

    def followers(self) -> frozenset[int]:
        """Return the peers that have acknowledged an entry in this term."""
        return frozenset(p.peer for p in self._peers.values() if p.acked)

    @property
    def needs_base(self) -> frozenset[int]:
        """The peers that need entries which our log no longer holds."""
        return frozenset(p.peer for p in self._peers.values() if p.needs_base)

    # From the engine.

    def outgoing(self, peer: int, packet: Packet) -> None:
        """Send an append of the engine.

        For a snapshot of the engine, probe the peer's base (hole 1).
        """
        progress = self._peers[peer]
        if progress.epoch is None:
            return
        if packet.get("prevLogIdx") is None:
            self._wait_for_base(progress)
            return
        entries = packet["entries"]
        append = Append(
            term=packet["term"],
            epoch=progress.epoch,
            prev_index=packet["prevLogIdx"],
            prev_term=packet["prevLogTerm"],
            commit=self._log.commit_index,
            entries=[[term, command] for command, _index, term in entries],
        )
        self._outbox.send(peer, append)
        progress.sent(append.reach, sum(len(item[0]) for item in entries))
        self._show_or_hide(progress)

    def _wait_for_base(self, progress: Progress) -> None:
        progress.flow = Flow.BASE
        self._engine.hide(progress.peer)
        self._probe_base(progress)

    def _probe_base(self, progress: Progress) -> None:
        """Ask whether the peer holds our base. The probe also shows the peer that we are alive."""
        if progress.epoch is None:
            return
        term, epoch = self._engine.term, progress.epoch
        if 1 in self._closed:
            probe = BaseProbe(term, epoch, self._log.base_index, self._log.base_term)
            self._outbox.send(progress.peer, probe)
        else:
            self._outbox.send(progress.peer, Snapshot(term, epoch, self._log.commit_index))

    def _show_or_hide(self, progress: Progress) -> bool:
        """Show the peer to the engine exactly while it may send.

        Return True if it is newly shown.
        """
        may_send = progress.may_send(bounded=26 in self._closed)
        shown = self._engine.shown(progress.peer)
        if may_send and not shown:
            self._engine.show(progress.peer)
        elif shown and not may_send:
            self._engine.hide(progress.peer)
        return may_send and not shown

    # From the peers.

    def on_ack(self, peer: int, next_index: int) -> None:
        """Handle an ack: the peer has all entries below next_index durable."""
        progress = self._peers[peer]
        progress.heard_at = self._clock()
        if progress.flow is Flow.BASE and next_index <= self._log.base_index:
            self._alive(progress)  # durable up to there, which is below the start of our log
            return
        waited = progress.flow is not Flow.REPLICATE
        progress.ack(next_index - 1)
        moved = self._credit(progress)
        if moved or waited:
            # The engine goes back to the acked index and would send again the entries on their way.
            self._set_next(progress)
        if self._show_or_hide(progress):
            self._engine.send_now()
        elif moved:
            self._engine.tick()

    def on_reject(self, peer: int, reject: Reject) -> None:
        """Handle a rejection: go back to where the logs meet, or wait for a base."""
        progress = self._peers[peer]
        progress.heard_at = self._clock()
        self._alive(progress)
        if 4 not in self._closed:
            self._reset_as_the_library_does(progress, reject.next_index)
            return
        start = guard.next_after_rejection(self._log, reject, progress.acked)
        progress.needs_base = start is None
        if start is None:
            progress.flow = Flow.BASE
            self._show_or_hide(progress)
            return
        progress.rewind(start, Flow.PROBE)
        self._set_next(progress)
        self._show_or_hide(progress)
        self._engine.send_now()

    def _reset_as_the_library_does(self, progress: Progress, next_index: int) -> None:
        """Hole 4: each of many resets moves the next index; the last reset before a send wins."""
        progress.rewind(next_index, Flow.REPLICATE)
        self._set_next(progress)
        self._show_or_hide(progress)

    def base_installed(self, peer: int) -> None:
        """Ask the peer for its position: a base was installed there."""
        progress = self._peers[peer]
        progress.needs_base = False
        if self._engine.role == "leader" and progress.flow is Flow.BASE:
            self._probe_base(progress)

    # From time and the disk.

    def durable_moved(self) -> None:
        """Count waiting acks, since more entries are durable here."""
        for progress in self._peers.values():
            if progress.acked > progress.credited and self._credit(progress):
                self._set_next(progress)
        self._engine.tick()

    def disk_stalled(self) -> bool:
        """Return whether our disk has stalled with entries to sync, and others could lead."""
        now, durable = self._clock(), self._log.durable_index
        if durable > self._durable_index or durable == self._log.last_index:
            self._durable_index, self._durable_at = durable, now
        return bool(self._peers) and now - self._durable_at > guard.stall_s(self._options)

    def pulse(self) -> None:
        """Send heartbeats: the engine to the peers it may send to, this object to the others."""
        self._engine.send_now()
        if self._engine.role != "leader":
            return
        for progress in self._peers.values():
            if progress.epoch is not None and not self._engine.shown(progress.peer):
                self._keep_alive(progress, progress.epoch)

    def _keep_alive(self, progress: Progress, epoch: int) -> None:
        """Send a heartbeat at the last sent entry. If that entry was lost, the peer rejects."""
        previous = progress.next_index - 1
        term = self._log.term_at(previous)
        if progress.flow is Flow.BASE or term is None:
            self._wait_for_base(progress)
            return
        commit = self._log.commit_index
        heartbeat = Append(self._engine.term, epoch, previous, term, commit, [])
        self._outbox.send(progress.peer, heartbeat)

    # To the engine.

    def _credit(self, progress: Progress) -> bool:
        """Tell the engine which acks count, and that the peer is alive.

        Return True if more count now.
        """
        credited = guard.credit(progress.acked, self._log.durable_index, self._closed)
        moved = credited > progress.credited
        progress.credited = credited
        self._answered(progress, success=True, reset=False, next_index=credited + 1)
        return moved

    def _alive(self, progress: Progress) -> None:
        self._answered(progress, success=False, reset=False, next_index=0)

    def _set_next(self, progress: Progress) -> None:
        self._answered(progress, success=False, reset=True, next_index=progress.next_index)

    def _answered(self, progress: Progress, *, success: bool, reset: bool, next_index: int) -> None:
        """Give the engine the library's answer to an append; the engine notes the time of each."""
        self._engine.deliver(
            progress.peer,
            {
                "type": "next_node_idx",
                "next_node_idx": next_index,
                "reset": reset,
                "success": success,
            },
        )
