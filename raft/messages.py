"""What the members of a group say to each other: msgpack arrays `[kind, term, epoch, ...]`.

`term` is the sender's when the message was made. `epoch` is that of the link: a request carries
the epoch of its sender's link to the receiver, a reply echoes the request's, so that a reply to
an older connection is known as such (raft.md 2.3). The group and the hash of its descriptor
travel in the frame around it. The glossary is in this folder's `__init__`.
"""

from operator import gt
from typing import Final, NamedTuple

from ..client import limits
from ..client.errors import RemoteProtocolError
from .types import Message


class Append(NamedTuple):
    """The leader's entries after (prev_index, prev_term); without entries, its heartbeat."""

    term: int
    epoch: int
    prev_index: int
    prev_term: int
    commit: int
    entries: list[list[int | bytes]]
    """`[term, command]` each; the first has the index prev_index + 1."""

    @property
    def reach(self) -> int:
        """The last index that this message speaks of."""
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
    """Your request was of an older term than mine (executions 1.19)."""

    term: int
    epoch: int


class BaseProbe(NamedTuple):
    """My log begins behind (base_index, base_term) and you may lack what it no longer holds."""

    term: int
    epoch: int
    base_index: int
    base_term: int


class Started(NamedTuple):
    """I have started; ask me again what you asked before."""

    term: int
    epoch: int


class Quiesce(NamedTuple):
    """Nothing has happened for a while: shall we rest?"""

    term: int
    epoch: int
    round: int
    last_index: int
    """Of my log, and committed."""
    version: int
    """Of the set of groups that my node leads idle; see `liveness`."""


class Quiesced(NamedTuple):
    """I have the same, and rest until your node is missing or says otherwise."""

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
"""Kinds that count only in the term and on the link they were asked in. The others, but for Term
itself, are requests: of an older term they are answered with Term."""
REPLIES: Final = (Ack, Reject, Vote, PreVote, Quiesced)
"""The same for isinstance, which is slow with unions."""

REGULAR: Final = 0
NO_OP: Final = 1
"""The first byte of a command. The library's other two, membership and version, never travel
(raft.md 2.17, 2.18)."""
_KNOWN_COMMANDS: Final = (bytes([REGULAR]), bytes([NO_OP]))


def encode(body: Body) -> Message:
    """The array to send."""
    return [_NUMBERS[type(body)], *body]


def decode(message: Message) -> Body:
    """The body of a received array. Raises RemoteProtocolError."""
    try:
        kind, *fields = message
        body = KINDS[kind](*fields)
    except (TypeError, ValueError, KeyError):
        raise RemoteProtocolError("a Raft message of unknown kind or length") from None
    if isinstance(body, Append):
        _check_entries(fields.pop(), body.prev_term, body.term)
    for field in fields:
        if type(field) is not int or not 0 <= field <= limits.number_max:
            raise RemoteProtocolError(f"a Raft message with bad fields: {type(body).__name__}")
    return body


def _check_entries(entries: object, prev_term: object, term: object) -> None:
    """Terms never fall along a log, nor above that of its leader (Raft, 5.3): what breaks this
    would break the log that it is appended to."""
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        raise RemoteProtocolError("a Raft append with bad entries")
    if entries and type(prev_term) is int and type(term) is int:
        terms = [prev_term, *(entry[0] for entry in entries), term]
        if any(map(gt, terms, terms[1:])):
            raise RemoteProtocolError("a Raft append whose terms do not follow each other")


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, (list, tuple)) or len(entry) != 2:
        return False
    term, command = entry
    return (
        type(term) is int
        and term >= 0
        and isinstance(command, bytes)
        and command[:1] in _KNOWN_COMMANDS
    )
