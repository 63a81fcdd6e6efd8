"""The operations of cursors on a scripted range: real handlers and real rows, without Raft."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

from lognode.client.protocol import Operation
from lognode.client.protocol.errors import to_wire
from lognode.client.protocol.levels import CURSORS_FROM, LEVEL_MAX
from lognode.node.serving.cursor_service import READS, CursorChanges
from lognode.partitions.model import Span
from lognode.statemachine import commands, cursor_commands, rules
from lognode.statemachine.cursors import Cursors, clipped

HANDLERS: Final[Mapping[Operation, Any]] = {
    **CursorChanges(lambda: CURSORS_FROM).changes, **READS,
}  # fmt: skip


def new() -> Cursors:
    """The cursors of a range without cursors."""
    made = Cursors()
    made.rules = rules.of_level(LEVEL_MAX)
    return made


def within(cursors: Cursors, start: bytes, end: bytes | None) -> Cursors:
    """The part that a split gives to a child."""
    made = Cursors.from_wire(clipped(cursors.to_wire(), (start, end)))
    made.rules = cursors.rules
    return made


async def serve(op: Operation, body: dict[str, Any], known: Any) -> dict[str, Any]:
    """Serve a request; `known`: the range, with `cursors`, `next_seq` and bounds."""

    async def apply(kind: int, payload: Any) -> dict[str, Any]:
        command = commands.Command(kind, 1, payload)
        error = cursor_commands.apply(
            known.cursors, command, (known.start, known.end), known.next_seq
        )
        return {} if error is None else {"status": "error", "error": to_wire(error)}

    replica = SimpleNamespace(
        state=SimpleNamespace(level=CURSORS_FROM, cursors=known.cursors), proposed_bytes=0,
        gid=SimpleNamespace(range_id=known.range_id), propose_and_wait=apply,
        descriptor=SimpleNamespace(span=Span(known.start, known.end), to_wire=known.to_wire),
    )  # fmt: skip
    answer: dict[str, Any] = await HANDLERS[op](replica, body)
    return answer
