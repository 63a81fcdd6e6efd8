"""Every error that lognode raises or sends, in one tree.

    LognodeError
    ├── InvalidArgument        what was given, what is allowed, what to do
    │   ├── LimitExceeded      a size or count above its limit
    │   └── BatchSpansRanges   append_batch with keys of more than one range
    ├── NotFound
    │   ├── LogNotFound
    │   ├── RangeNotFound
    │   └── NodeNotFound
    ├── Conflict
    │   ├── LogExists
    │   ├── SequenceMismatch   expect= did not hold
    │   ├── Fenced             a newer holder of the producer's name exists
    │   └── OperationInProgress
    ├── Routing                normally handled inside the client
    │   ├── NotLeader
    │   ├── GenerationMismatch
    │   ├── Sealed
    │   └── OutOfOrder         a predecessor of the same key is missing here
    ├── Overloaded             a queue or a disk is full; retry_after says when to come back
    ├── Unavailable            nobody could be reached, or no leader
    ├── Timeout                the deadline passed; `outcome` says what is known
    ├── CorruptData            a checksum did not hold
    ├── Unauthorized
    ├── Unsupported            an operation or version the other side does not know
    ├── ProtocolError
    │   ├── LocalProtocolError    this side broke the protocol
    │   └── RemoteProtocolError   the other side did
    └── PartialFailure         append_many: some records were appended, some were not

Each error has a stable `code`, says whether the same call may succeed later (`retryable`), and
states the outcome of the write (`outcome`). Promise S11: `unknown` is never turned into
`not_applied`.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, ClassVar, Final, Literal

message_chars_max: Final = 4_096
"""Characters of the text of an error from another process. The text is shown and logged."""
Outcome = Literal["not_applied", "applied", "unknown"]
IDLE: Final = "idle"
"""The `reason` of an UNAVAILABLE with which the acceptor ends a connection without requests. It
has answered everything that it has read, so requests sent meanwhile are not applied."""
OVERTAKEN: Final = "overtaken"
"""The `reason` of a CONFLICT with which the controller refuses a request whose `since` is too old.
The field `newer` has the version to send in place of it."""


class LognodeError(Exception):
    """Base of all errors. `fields` are plain msgpack values and travel on the wire."""

    code: ClassVar[str] = "ERROR"
    retryable: ClassVar[bool] = False
    default_outcome: ClassVar[Outcome] = "not_applied"

    def __init__(self, message: str = "", *, outcome: Outcome | None = None, **fields: Any) -> None:
        super().__init__(message or self.code)
        self.message = message or self.code
        self.outcome: Outcome = outcome or self.default_outcome
        self.fields: dict[str, Any] = fields
        self.is_answer = False
        """Whether a node sent the error. Otherwise no answer came, or nothing was asked."""

    def __getattr__(self, name: str) -> Any:
        # Only reached when the attribute does not exist: look among the error's fields.
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(name) from None


class InvalidArgument(LognodeError):
    """Bad input. Nothing was done."""

    code = "INVALID_ARGUMENT"


class LimitExceeded(InvalidArgument):
    """A size or a count is above its limit. Fields: `limit` (its name), `value` (the given
    value), `allowed`."""

    code = "LIMIT_EXCEEDED"


class BatchSpansRanges(InvalidArgument):
    """The keys of an append_batch lie in more than one range."""

    code = "BATCH_SPANS_RANGES"


class NotFound(LognodeError):
    """A named thing does not exist."""

    code = "NOT_FOUND"


class LogNotFound(NotFound):
    """The log does not exist. Field: `log`; when another log has the name by now, its `id`."""

    code = "LOG_NOT_FOUND"


class RangeNotFound(NotFound):
    """This node has no such range. Field: `range`."""

    code = "RANGE_NOT_FOUND"
    retryable = True


class NodeNotFound(NotFound):
    """The node does not exist. Field: `node`."""

    code = "NODE_NOT_FOUND"


class Conflict(LognodeError):
    """The state of the log refuses the operation."""

    code = "CONFLICT"


class LogExists(Conflict):
    """A log with this name exists. Field: `log`."""

    code = "LOG_EXISTS"


class SequenceMismatch(Conflict):
    """`expect=` did not hold. Fields: `key`, `expected`, `actual` (0: the key has no entry)."""

    code = "SEQUENCE_MISMATCH"


class Fenced(Conflict):
    """Another holder opened the producer's name, or the cursor, later. Field: `epoch` of a
    producer; `cursor` and `holder` of a cursor."""

    code = "FENCED"


class OperationInProgress(Conflict):
    """The range has an unfinished operation. Fields: `range`, `operation`."""

    code = "OPERATION_IN_PROGRESS"
    retryable = True


class Routing(LognodeError):
    """The request went to the wrong node or came at the wrong time; nothing was done."""

    code = "ROUTING"
    retryable = True


class NotLeader(Routing):
    """This node is not the leader. Field: `hint`, the leader's node id, or None."""

    code = "NOT_LEADER"


class GenerationMismatch(Routing):
    """The node serves another generation. Field: `ranges`, the descriptors that it knows for the
    span."""

    code = "GENERATION_MISMATCH"


class Sealed(Routing):
    """The generation has ended; its successor starts soon."""

    code = "SEALED"


class OutOfOrder(Routing):
    """A predecessor is missing. Fields: `number`, the predecessor that this range has not applied;
    `producer_known`, False if the range knows no record of the producer."""

    code = "OUT_OF_ORDER"


class Overloaded(LognodeError):
    """A queue, a disk or a quota is full. Fields: `retry_after`, seconds; `quota`, the used-up
    quota, if a quota is the reason."""

    code = "OVERLOADED"
    retryable = True


class Unavailable(LognodeError):
    """No node or leader can be reached, or a store gives no answer. Fields: `reason`;
    `retry_after`, seconds, where known; `store`, the place of the store."""

    code = "UNAVAILABLE"
    retryable = True


class Timeout(LognodeError):
    """The deadline passed."""

    code = "TIMEOUT"
    retryable = True
    default_outcome: ClassVar[Outcome] = "unknown"


class CorruptData(LognodeError):
    """A checksum or a structure is wrong (promise S12). Field, where it is known: `segment`, the
    content id of the file."""

    code = "CORRUPT_DATA"
    default_outcome: ClassVar[Outcome] = "unknown"


class Unauthorized(LognodeError):
    """The credentials are wrong or missing, or belong to another cluster."""

    code = "UNAUTHORIZED"


class Unsupported(LognodeError):
    """The other side does not know an operation, a version or a feature."""

    code = "UNSUPPORTED"


class ProtocolError(LognodeError):
    """The bytes do not follow the protocol."""

    code = "PROTOCOL_ERROR"
    default_outcome: ClassVar[Outcome] = "unknown"


class LocalProtocolError(ProtocolError):
    """This side was about to break the protocol."""

    code = "LOCAL_PROTOCOL_ERROR"
    default_outcome: ClassVar[Outcome] = "not_applied"


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol."""

    code = "REMOTE_PROTOCOL_ERROR"


class PartialFailure(LognodeError):
    """Some records were appended, others not. Fields: `acks` and `errors`, lists in the order of
    the records; each position has None in one of them. `outcomes` has the outcome of each record.
    `outcome` is that of all records, and `unknown` where their outcomes differ."""

    code = "PARTIAL_FAILURE"
    default_outcome: ClassVar[Outcome] = "unknown"

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each record, in their order: `applied` for a record with an Ack, which has
        its seq."""
        errors: list[LognodeError | None] = self.fields.get("errors") or []
        return ["applied" if error is None else error.outcome for error in errors]


def _tree(cls: type[LognodeError]) -> dict[str, type[LognodeError]]:
    found = {cls.code: cls}
    for sub in cls.__subclasses__():
        found.update(_tree(sub))
    return found


BY_CODE: Mapping[str, type[LognodeError]] = _tree(LognodeError)


def to_wire(error: LognodeError) -> dict[str, Any]:
    """Return the error as a msgpack map: code, message, outcome, fields."""
    return {
        "code": error.code,
        "message": error.message,
        "outcome": error.outcome,
        "fields": error.fields,
    }


def common_outcome(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome that all records of a call have; `unknown` where their outcomes differ. A
    caller that repeats the call after `not_applied` must not append any record twice (S11)."""
    found = set(outcomes)
    return found.pop() if len(found) == 1 else "unknown"


def bare(error: LognodeError) -> LognodeError:
    """Return the error without its traceback and without the error that it replaced.

    Code that catches an error and keeps it, in a list or in a future, is a frame of the traceback.
    So the error would refer to itself, and the objects of a refused request would stay in memory
    until a garbage collection.
    """
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def of_unknown_outcome(error: LognodeError) -> LognodeError:
    """Return an error that says that the request may have been applied (S11)."""
    unsure = copy(error)
    unsure.outcome = "unknown"
    return bare(unsure)


def from_wire(body: Any) -> LognodeError:
    """Return the error that `to_wire` packed, a LognodeError for an unknown code.

    A body that is not an error gives a RemoteProtocolError. The text is cut to `message_chars_max`.
    """
    if type(body) is not dict:
        return RemoteProtocolError("the error of an answer is not a map")
    code, message, fields = body.get("code"), body.get("message"), body.get("fields") or {}
    if type(code) is not str or type(fields) is not dict:
        return RemoteProtocolError(
            "the error of an answer has no code, or its fields are not a map"
        )
    outcome: Outcome = "unknown"
    if body.get("outcome") == "not_applied":
        outcome = "not_applied"
    elif body.get("outcome") == "applied":
        outcome = "applied"
    text = message if type(message) is str and message else code
    error = BY_CODE.get(code, LognodeError)(text[:message_chars_max], outcome=outcome)
    error.fields = {name: value for name, value in fields.items() if type(name) is str}
    error.is_answer = True
    return error
