"""The messages of a group's members: msgpack arrays `[kind, term, epoch, ...]`.

`term` is the sender's term when the message was made. `epoch` belongs to the link: a request
carries the epoch of its sender's link to the receiver. A reply echoes the epoch of the request, so
that a reply to an older connection is recognized (hole 3). The frame around a message carries the
group and the hash of its descriptor. The glossary is in this folder's `__init__`.
"""

from collections.abc import Sequence
from operator import gt, itemgetter
from typing import Any, Final, NamedTuple

from ..client.protocol.errors import InvalidArgument, RemoteProtocolError
from ..client.protocol.raft_messages import MESSAGE
from .types import Message


class Append(NamedTuple):
    """The leader's entries after (prev_index, prev_term); without entries, its heartbeat."""

    term: int
    epoch: int
    prev_index: int
    prev_term: int
    commit: int
    entries: list[list[int | bytes]]
    """`[term, command]` each; the first entry has the index prev_index + 1."""

    @property
    def reach(self) -> int:
        """The last index that this message covers."""
        return self.prev_index + len(self.entries)


class Ack(NamedTuple):
    """Every entry below `next_index` is in my log as in yours, and durable."""

    term: int
    epoch: int
    next_index: int


class Reject(NamedTuple):
    """I do not hold your (prev_index, prev_term)."""

    term: int
    epoch: int
    next_index: int
    """My commit index + 1: up to there our logs are equal."""
    last_index: int
    last_term: int


class VoteRequest(NamedTuple):
    """I am a candidate of `term`; vote for me."""

    term: int
    epoch: int
    last_index: int
    last_term: int


class Vote(NamedTuple):
    """You have my vote of `term`. Refusals are silent."""

    term: int
    epoch: int


class PreVoteRequest(NamedTuple):
    """Would you vote for me in `term` + 1?"""

    term: int
    epoch: int
    round: int
    last_index: int
    last_term: int


class PreVote(NamedTuple):
    """I would. Promises nothing; refusals are silent."""

    term: int
    epoch: int
    round: int


class Term(NamedTuple):
    """Your request has an older term than mine (x19)."""

    term: int
    epoch: int


class BaseProbe(NamedTuple):
    """My log begins after (base_index, base_term); you may lack entries before its start."""

    term: int
    epoch: int
    base_index: int
    base_term: int


class Started(NamedTuple):
    """I have started; repeat your open requests to me."""

    term: int
    epoch: int


class Quiesce(NamedTuple):
    """Nothing has happened for a while: shall we rest?"""

    term: int
    epoch: int
    round: int
    last_index: int
    """The last index of my log, which is committed."""
    version: int
    """The version of the set of groups that my node leads idle; see `liveness`."""


class Quiesced(NamedTuple):
    """I have the same log, and rest until your node is missing or says otherwise."""

    term: int
    epoch: int
    round: int


class Snapshot(NamedTuple):
    """The library's snapshot message, without its data. Exists only with hole 1 open."""

    term: int
    epoch: int
    commit: int


Body = (
    Append
    | Ack
    | Reject
    | VoteRequest
    | Vote
    | PreVoteRequest
    | PreVote
    | Term
    | BaseProbe
    | Started
    | Snapshot
    | Quiesce
    | Quiesced
)

KINDS: Final[dict[int, type[Body]]] = {
    1: Append,
    2: Ack,
    3: Reject,
    4: VoteRequest,
    5: Vote,
    6: PreVoteRequest,
    7: PreVote,
    8: Term,
    9: BaseProbe,
    10: Started,
    11: Snapshot,
    12: Quiesce,
    13: Quiesced,
}
_NUMBERS: Final = {cls: number for number, cls in KINDS.items()}

Reply = Ack | Reject | Vote | PreVote | Quiesced
"""Kinds that count only in the term and on the link of their request. All other kinds except Term
are requests: a request of an older term is answered with Term."""
REPLIES: Final = (Ack, Reject, Vote, PreVote, Quiesced)
"""The same kinds for isinstance, which is slow with unions."""

REGULAR: Final = 0
NO_OP: Final = 1
"""The first byte of a command. The library's other two command kinds, membership and version, never
travel (holes 17 and 18)."""


def encode(body: Body) -> Message:
    """Return the array to send."""
    return [_NUMBERS[type(body)], *body]


def decode(message: Message) -> Body:
    """Return the body of a received array, which the table of messages checks (`client.protocol`).

    Raises RemoteProtocolError for a malformed message.
    """
    try:
        kind, *fields = MESSAGE.check(message, "message")
    except InvalidArgument as error:
        raise RemoteProtocolError(f"the Raft message is not valid: {error.message}") from None
    body = KINDS[kind](*fields)
    if isinstance(body, Append) and not _are_in_order(body.prev_term, body.entries, body.term):
        raise RemoteProtocolError("the terms of a Raft append do not follow each other")
    return body


def _are_in_order(prev_term: int, entries: Sequence[Sequence[Any]], term: int) -> bool:
    """Whether no term falls along the log or rises above the leader's (Raft, 5.3).

    An entry that breaks this rule would break the log that it is appended to.
    """
    if not entries:
        return True
    terms = [prev_term, *map(itemgetter(0), entries), term]
    return not any(map(gt, terms, terms[1:]))
