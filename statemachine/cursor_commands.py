"""Applying the commands of cursors.

A position is never beyond the range's end, so that a reader passes no later entry. A command with a
key or a span beyond the range's own is refused.
"""

from typing import Any, Final

from ..client.protocol.errors import GenerationMismatch, LognodeError
from . import commands
from .commands import Command
from .cursors import Cursors
from .spans import Span, common, has

KINDS: Final = frozenset(
    (
        commands.OPEN_CURSOR,
        commands.COMMIT_CURSOR,
        commands.SET_CURSOR,
        commands.DELETE_CURSOR,
    )
)
_FIRST_SEQ: Final = 1


def apply(cursors: Cursors, command: Command, span: Span, next_seq: int) -> LognodeError | None:
    """Apply one of KINDS to a range of keys. An error has changed nothing."""
    if not all(common(asked, span) == asked for asked in _asked(command)):
        return _outside()
    if command.kind == commands.DELETE_CURSOR:
        name, start, end = command.payload
        cursors.delete(name, (start, end))
        return None
    name, holder, rows, *others = command.payload
    spans = [(start, end, _position(next_, next_seq)) for start, end, next_ in rows]
    if command.kind == commands.OPEN_CURSOR:
        return cursors.open(name, holder, spans)
    if command.kind == commands.SET_CURSOR:
        return cursors.set(name, holder, spans)
    keys = [(key, _position(next_, next_seq)) for key, next_ in others[0]]
    if not all(has(span, key) for key, _ in keys):
        return _outside()
    return cursors.commit(name, holder, spans, keys)


def told(cursors: Cursors, command: Command, span: Span) -> list[Any]:
    """Return the rows that the command may have changed, for the hash of effects."""
    keys = [key for key, _ in command.payload[3]] if command.kind == commands.COMMIT_CURSOR else []
    owns = [own for asked in _asked(command) if (own := common(asked, span)) is not None]
    return cursors.told(command.payload[0], owns, keys)


def _asked(command: Command) -> list[Span]:
    """Return the spans of keys that the command names."""
    if command.kind == commands.DELETE_CURSOR:
        return [(command.payload[1], command.payload[2])]
    return [(start, end) for start, end, _ in command.payload[2]]


def _position(next_: int, next_seq: int) -> int:
    return max(_FIRST_SEQ, min(next_, next_seq))


def _outside() -> GenerationMismatch:
    return GenerationMismatch("a key is outside of the range", ranges=[])
