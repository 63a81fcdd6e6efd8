"""A simulated replica as the service of cursors sees it: the service itself runs, without asyncio.

The service is a coroutine that waits once, for the reply to its command.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...client.protocol.cursors import CURSORS
from ...client.protocol.errors import (
    Fenced,
    LognodeError,
    NotFound,
    NotLeader,
    Unavailable,
    Unsupported,
)
from ...node.serving.cursor_service import READS, CursorChanges
from ...statemachine import commands
from .clients import Reply

if TYPE_CHECKING:
    from .replica import RangeReplica

Answer = Callable[[Reply], None]

_OPERATIONS: Final = {operation.name: operation for operation in CURSORS}
_STATUS: Final = ((Fenced, "fenced"), (NotFound, "missing"), (Unsupported, "level"))


class _Proposal:
    """A command to propose; awaiting it gives its reply."""

    def __init__(self, kind: int, payload: Any) -> None:
        self.kind = kind
        self.payload = payload

    def __await__(self) -> Generator["_Proposal", Reply, Reply]:
        return (yield self)


class _Port:
    """What the service uses of a replica."""

    def __init__(self, replica: "RangeReplica") -> None:
        self.state = replica.store.state
        self.descriptor = replica.descriptor
        self.gid = replica.gid
        self.proposed_bytes = 0

    def propose_and_wait(self, kind: int, payload: Any) -> _Proposal:
        """Return what the simulator proposes."""
        return _Proposal(kind, payload)


def change(replica: "RangeReplica", body: dict[str, Any], answer: Answer) -> None:
    """Change a cursor, on the leader."""
    port: Any = _Port(replica)
    # A range below the level says so either way; it follows the cluster, or the run has no level.
    handler = CursorChanges(lambda: 0).changes[_OPERATIONS[body["how"]]]
    service: Any = handler(port, body["request"])

    def go_on(step: Callable[[], Any]) -> Any:
        """Take a step of the service; answer when it has ended, otherwise return its proposal."""
        try:
            return step()
        except StopIteration as done:
            answer({"status": "ok", **done.value})
        except LognodeError as error:
            answer(_refusal(error, replica.group.leader))
        return None

    def settled(replies: Sequence[Any] | None) -> None:
        if replies is None:
            go_on(lambda: service.throw(NotLeader("lost", outcome="unknown", hint=None)))
            return
        (reply,) = replies
        if reply["status"] == "ok":
            replica.acknowledged()
        go_on(lambda: service.send(reply))

    proposal = go_on(lambda: service.send(None))
    if proposal is not None:
        command = commands.proposal(proposal.kind, replica.host.wall_ms(), proposal.payload)
        replica.propose(command, settled)
        replica.host.pump()


def read(replica: "RangeReplica", body: dict[str, Any], answer: Answer) -> None:
    """Answer a page of a cursor's positions, once the read's index is applied."""
    port: Any = _Port(replica)
    service: Any = READS[_OPERATIONS[body["how"]]](port, body["request"])
    try:
        service.send(None)
    except StopIteration as done:
        answer({"status": "ok", **done.value})
    except LognodeError as error:
        answer(_refusal(error, replica.group.leader))


def _refusal(error: LognodeError, leader: int | None) -> Reply:
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return {"status": status}
    if isinstance(error, Unavailable):
        return {"status": "level"}
    return {"status": "error", "hint": leader, "outcome": error.outcome}
