"""Read confirmations of all groups of a node, one round per pair of nodes.

Many groups ask the same peer the same thing at the same time: are you at my term? So their
questions to one peer travel in one list, and the peer answers the whole list at once, from what
its groups are at that moment. At most one round is outstanding per pair; what is asked meanwhile
joins the next, so that the more is asked, the more a round carries: up to `raft_round_reads_max`
questions, which the peer answers in one turn of its loop. An answer counts whenever it comes: it
was given after the round was sent, and thus after the reads arrived that it is for.

Nothing here decides. Groups know what they ask and of whom (`readindex`), and which of them says
yes is up to the driver: one of the same descriptor that takes part (x2.12).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..client.protocol import limits
from ..client.protocol.errors import RemoteProtocolError
from .readindex import ReadQuestion
from .types import GroupId, Message

Answerer = Callable[[GroupId, bytes, int, int], int | None]
"""(group, fingerprint, asker, term): the group's `answer_read`, None if it is not here so."""


class Asker(Protocol):
    """A group with reads to confirm; see `Group`. `fingerprint` is its descriptor's."""

    gid: GroupId
    fingerprint: bytes

    def read_peers(self) -> list[int]: ...
    def read_question(self) -> ReadQuestion | None: ...
    def read_answered(self, sender: int, question: ReadQuestion, index: int) -> None: ...


@dataclass(slots=True)
class _Pair:
    """What is asked of one peer over one link."""

    epoch: int
    waiting: dict[GroupId, Asker] = field(default_factory=dict)
    asked: list[tuple[Asker, ReadQuestion]] = field(default_factory=list)
    """The outstanding round's, in the order of its items."""
    message: Message | None = None
    """The outstanding round."""
    sent_at: float = 0.0

    def forget_settled(self) -> None:
        """Before it is sent again: nobody asks any more what others have answered, or what was
        asked by a leader that leads no longer. Such a question would keep its followers quiet.
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
        """What has no answer after `retry_s` seconds is asked again."""
        self._clock = clock
        self._retry_s = retry_s
        self._answerer = answerer
        self._pairs: dict[int, _Pair] = {}
        self._open: dict[GroupId, Asker] = {}
        """Groups with a round that may need to be asked again."""
        self._round = 0
        self._look_at = math.inf
        self._waits = False
        """Whether anything may wait for the next round with some peer."""

    # Links.

    def connected(self, peer: int, epoch: int) -> None:
        """Our link to a peer is up; what was asked over an older one is asked again."""
        self._pairs[peer] = _Pair(epoch)
        self._ask_again()

    def disconnected(self, peer: int) -> None:
        """Our link to a peer is gone, and with it what was on its way."""
        self._pairs.pop(peer, None)

    # Asking.

    def ask(self, asker: Asker) -> None:
        """A group has begun a round: it goes into the next round with each of its peers."""
        self._open[asker.gid] = asker
        self._look_at = min(self._look_at, self._clock() + self._retry_s)
        for peer in asker.read_peers():
            pair = self._pairs.get(peer)
            if pair is not None:
                pair.waiting[asker.gid] = asker
                self._waits = True

    def take(self) -> list[tuple[int, Message]]:
        """(peer, round) to be sent now."""
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
        """When to call `tick`; infinity: not before something is asked."""
        return self._look_at

    def tick(self) -> list[tuple[int, Message]]:
        """(peer, round) to be sent again, after which `take` may have more."""
        now = self._clock()
        if now < self._look_at:
            return []
        self._look_at = math.inf
        self._ask_again()
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

    def _ask_again(self) -> None:
        """Whoever was not asked, or not answered with yes, goes into the next round."""
        for asker in list(self._open.values()):
            if asker.read_question() is None:
                del self._open[asker.gid]
            else:
                self.ask(asker)

    # The other side.

    def answer(self, sender: int, message: Message) -> Message:
        """A peer's round, of which the table has checked the fields: the answer to it."""
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
        """A peer's answer to a round, of which the table has checked the fields. Raises
        RemoteProtocolError where it does not meet the round."""
        epoch, number, answers = message
        pair = self._pairs.get(sender)
        if pair is None or pair.message is None or pair.message[:2] != [epoch, number]:
            return
        if len(answers) != len(pair.asked):
            raise RemoteProtocolError("answers that do not meet the round of reads")
        asked, pair.asked, pair.message = pair.asked, [], None
        for (asker, question), index in zip(asked, answers, strict=True):
            if index is not None:
                asker.read_answered(sender, question, index)
