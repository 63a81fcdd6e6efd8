"""Exchange read confirmations with other nodes: `raft.read_rounds` on the event loop.

The questions of all replicas in one turn of the loop leave as one round per peer, in that turn's
frame.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from ...raft.read_rounds import Asker, ReadRounds
from ...raft.types import GroupId, Message, RaftOptions
from ..replicas.replica import Replica
from ..runtime.unexpected import OnBroken, guarded


class RoundLinks(Protocol):
    """Sends read rounds, and the answers to the rounds of others."""

    def send_read_round(self, peer: int, message: Message) -> None: ...
    def send_read_answer(self, peer: int, message: Message) -> None: ...


class Confirmations:
    """Asks and answers read rounds. `replica` returns the running replica of a group, or None."""

    def __init__(
        self,
        *,
        links: RoundLinks,
        replica: Callable[[GroupId], Replica | None],
        options: RaftOptions,
        on_broken: OnBroken,
    ) -> None:
        self._links = links
        self._replica = replica
        self._on_broken = on_broken
        self._rounds = ReadRounds(
            clock=time.monotonic, retry_s=options.heartbeat_s, answerer=self._answer
        )
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, asker: Asker) -> None:
        """Ask for a replica that has begun a round of reads."""
        self._rounds.ask(asker)
        self._send_soon()

    def connected(self, peer: int, epoch: int) -> None:
        """Take note that our link to a peer is up."""
        self._rounds.connected(peer, epoch)
        self._send_soon()

    def disconnected(self, peer: int) -> None:
        """Take note that our link to a peer is down."""
        self._rounds.disconnected(peer)

    def receive(self, sender: int, message: Message) -> None:
        """Answer a peer's round. Raises RemoteProtocolError for a malformed round."""
        self._links.send_read_answer(sender, self._rounds.answer(sender, message))

    def answered(self, sender: int, message: Message) -> None:
        """Take a peer's answer. Raises RemoteProtocolError for a malformed answer."""
        self._rounds.answered(sender, message)
        self._send_soon()

    def stop(self) -> None:
        """Stop asking again."""
        if self._timer is not None:
            self._timer.cancel()

    def _answer(self, gid: GroupId, fingerprint: bytes, sender: int, term: int) -> int | None:
        """Confirm a read only for a running, sound replica with exactly this descriptor; otherwise
        return None."""
        replica = self._replica(gid)
        if replica is None or replica.stopped or replica.fingerprint != fingerprint:
            return None
        return replica.group.answer_read(sender, term)

    def _send_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(guarded(self._send, self._on_broken))

    def _send(self) -> None:
        self._scheduled = False
        for peer, message in self._rounds.take():
            self._links.send_read_round(peer, message)
        deadline = self._rounds.next_deadline()
        if self._timer is None and deadline < float("inf"):
            tick = guarded(self._tick, self._on_broken)
            self._timer = asyncio.get_running_loop().call_at(deadline, tick)

    def _tick(self) -> None:
        self._timer = None
        for peer, message in self._rounds.tick():
            self._links.send_read_round(peer, message)
        self._send()
