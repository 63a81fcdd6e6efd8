"""Read confirmations of all groups of a node, one round per pair of nodes.

Many groups ask the same peer the same question at the same time: are you at my term? So their
questions to one peer travel in one list. The peer answers the whole list at once, from the state of
its groups at that moment. At most one round is outstanding per pair; later questions join the next
round. So a round carries more under more load, up to `raft_round_reads_max` questions, which the
peer answers in one turn of its loop. An answer counts at any time: it was given after the round was
sent, and thus after its reads arrived.

This module decides nothing. A group knows its question and its peers (`readindex`). The driver
decides which group may answer yes: a group of the same descriptor that takes part (x2.12).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from ..client.protocol import limits
from ..client.protocol.errors import RemoteProtocolError
from .readindex import ReadQuestion
from .types import GroupId, Message

HEDGE_S: Final = 0.02
"""After this time without a majority, all peers are asked. A round takes a millisecond or two."""
Answerer = Callable[[GroupId, bytes, int, int], int | None]
"""(group, fingerprint, asker, term): the group's `answer_read`, or None if it is not here."""


class Asker(Protocol):
    """A group with reads to confirm; see `Group`. `fingerprint` belongs to its descriptor."""

    gid: GroupId
    fingerprint: bytes

    def read_peers(self, *, first: bool) -> list[int]: ...
    def read_question(self) -> ReadQuestion | None: ...
    def read_answered(self, sender: int, question: ReadQuestion, index: int) -> None: ...


@dataclass(slots=True)
class _Pair:
    """The questions to one peer over one link."""

    epoch: int
    waiting: dict[GroupId, Asker] = field(default_factory=dict)
    asked: list[tuple[Asker, ReadQuestion]] = field(default_factory=list)
    """The questions of the outstanding round, in the order of its items."""
    message: Message | None = None
    """The outstanding round."""
    sent_at: float = 0.0

    def forget_settled(self) -> None:
        """Drop settled questions before the round is sent again.

        A question is settled when others have answered it, or when its leader no longer leads. Such
        a question would keep that leader's followers quiet.
        """
        if self.message is None:
            return
        epoch, number, items = self.message
        items = [
            item if asker.read_question() == question else None
            for item, (asker, question) in zip(items, self.asked, strict=True)
        ]
        self.message = [epoch, number, items] if any(items) else None


class ReadRounds:
    """The rounds of one node with each of its peers.

    Messages are `[epoch, round, [[range, generation, fingerprint, term], ...]]`, with nil for an
    item that was dropped; answers are `[epoch, round, [number, ...]]`, with nil for a no.
    """

    def __init__(self, *, clock: Callable[[], float], retry_s: float, answerer: Answerer) -> None:
        """Create the rounds of a node.

        A round without an answer after `retry_s` seconds is sent again. All peers are asked a
        question that those asked first have not settled after `HEDGE_S`.
        """
        self._clock = clock
        self._retry_s = retry_s
        self._answerer = answerer
        self._pairs: dict[int, _Pair] = {}
        self._open: dict[GroupId, tuple[Asker, float]] = {}
        """Groups with a round that may need to be asked again, and when."""
        self._round = 0
        self._look_at = math.inf
        self._waits = False
        """Whether anything may wait for the next round with some peer."""

    # Links.

    def connected(self, peer: int, epoch: int) -> None:
        """Note that our link to a peer is up, and repeat the questions of an older link."""
        self._pairs[peer] = _Pair(epoch)
        self._ask_again()

    def disconnected(self, peer: int) -> None:
        """Note that our link to a peer is gone, along with the messages on their way."""
        self._pairs.pop(peer, None)

    # Asking.

    def ask(self, asker: Asker) -> None:
        """Put a group's question into the next round with as many peers as suffice."""
        self._put(asker, min(HEDGE_S, self._retry_s), first=True)

    def _put(self, asker: Asker, again_s: float, *, first: bool) -> None:
        again_at = self._clock() + again_s
        self._open[asker.gid] = asker, again_at
        self._look_at = min(self._look_at, again_at)
        for peer in asker.read_peers(first=first):
            pair = self._pairs.get(peer)
            if pair is not None:
                pair.waiting[asker.gid] = asker
                self._waits = True

    def take(self) -> list[tuple[int, Message]]:
        """Take the (peer, round) pairs to send now."""
        if not self._waits:
            return []
        rounds = [
            (peer, message)
            for peer, pair in self._pairs.items()
            if pair.waiting and pair.message is None and (message := self._begin(pair))
        ]
        self._waits = any(pair.waiting for pair in self._pairs.values())
        return rounds

    def _begin(self, pair: _Pair) -> Message | None:
        pair.asked, items = [], []
        waiting = iter(pair.waiting.items())
        for gid, asker in waiting:
            question = asker.read_question()
            if question is not None:  # else others have answered meanwhile
                pair.asked.append((asker, question))
                items.append([*gid, asker.fingerprint, question.term])
                if len(items) == limits.raft_round_reads_max:
                    break
        pair.waiting = dict(waiting)
        if items:
            self._round += 1
            pair.message = [pair.epoch, self._round, items]
            pair.sent_at = self._clock()
        return pair.message

    # Time.

    def next_deadline(self) -> float:
        """When to call `tick`; infinity: no call is due until a group asks."""
        return self._look_at

    def tick(self) -> list[tuple[int, Message]]:
        """Return the (peer, round) pairs to send again. Afterwards `take` may have more."""
        now = self._clock()
        if now < self._look_at:
            return []
        self._look_at = math.inf
        self._ask_again(now)
        lost = []
        for peer, pair in self._pairs.items():
            if pair.message is not None and pair.sent_at <= now - self._retry_s:
                pair.forget_settled()
            if pair.message is not None:
                self._look_at = now + self._retry_s
                if pair.sent_at <= now - self._retry_s:
                    pair.sent_at = now
                    lost.append((peer, pair.message))
        return lost

    def _ask_again(self, due_by: float = math.inf) -> None:
        """Put open questions into the next round with the peers that did not answer yes: those that
        are due by that time."""
        for asker, again_at in list(self._open.values()):
            if asker.read_question() is None:
                del self._open[asker.gid]
            elif again_at <= due_by:
                self._put(asker, self._retry_s, first=False)
            else:
                self._look_at = min(self._look_at, again_at)

    # The other side.

    def answer(self, sender: int, message: Message) -> Message:
        """Answer a peer's round, whose fields the table of messages has checked."""
        epoch, number, items = message
        return [
            epoch,
            number,
            [
                None
                if item is None
                else self._answerer(GroupId(item[0], item[1]), item[2], sender, item[3])
                for item in items
            ],
        ]

    def answered(self, sender: int, message: Message) -> None:
        """Handle a peer's answer, whose fields the table of messages has checked.

        Raises RemoteProtocolError for an answer that does not match the round.
        """
        epoch, number, answers = message
        pair = self._pairs.get(sender)
        if pair is None or pair.message is None or pair.message[:2] != [epoch, number]:
            return
        if len(answers) != len(pair.asked):
            raise RemoteProtocolError("the answers do not match the round of reads")
        asked, pair.asked, pair.message = pair.asked, [], None
        for (asker, question), index in zip(asked, answers, strict=True):
            if index is not None:
                asker.read_answered(sender, question, index)
