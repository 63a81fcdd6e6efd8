"""What a Raft entry of a range may say: a type byte 0 for the engine, then a msgpack array.

`[kind, timestamp_ms, payload]`; the timestamp is the leader's clock, and apply takes the larger
of it and the last one (executions 2.21). Everything that apply reads is in here or in the state
that earlier entries left, never in configuration or in the metadata image (2.22).
"""

from dataclasses import dataclass
from typing import Any, Final

import msgpack

from ..client.errors import CorruptData

APPEND: Final = 1
"""payload: array of batches (bin), as the clients sent them."""
SEAL: Final = 2
"""payload: the operation's id. The last entry of a generation."""
RETIRE_PRODUCERS: Final = 3
"""payload: array of producer ids whose rows may go: closed with all settled, or unused 24 h."""
FENCE: Final = 4
"""payload: [producer id, epoch, token]: a named producer was opened (executions 1.27)."""

_PREFIX: Final = b"\x00"
NO_OP: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class Command:
    """A decoded command."""

    kind: int
    timestamp_ms: int
    payload: Any


def encode(kind: int, timestamp_ms: int, payload: Any) -> bytes:
    """The bytes to propose."""
    packed: bytes = msgpack.packb((kind, timestamp_ms, payload))
    return _PREFIX + packed


def decode(command: bytes) -> Command | None:
    """The command, or None for the engine's no-op. Raises CorruptData."""
    if command[:1] == NO_OP:
        return None
    if command[:1] != _PREFIX:
        raise CorruptData(f"Raft entry of unknown type {command[:1]!r}")
    try:
        kind, timestamp_ms, payload = msgpack.unpackb(memoryview(command)[1:], strict_map_key=False)
    except Exception as error:  # msgpack raises half a dozen unrelated classes
        raise CorruptData(f"Raft entry does not unpack: {error}") from None
    if type(kind) is not int or type(timestamp_ms) is not int or not _fits(kind, payload):
        raise CorruptData(f"Raft entry of kind {kind!r} with fields of other types")
    return Command(kind, timestamp_ms, payload)


def _fits(kind: int, payload: Any) -> bool:
    """Whether the payload is what the kind has; of an unknown kind, anything."""
    if kind == SEAL:
        return type(payload) is int
    if kind not in (APPEND, RETIRE_PRODUCERS, FENCE):
        return True
    element = bytes if kind == APPEND else int
    return type(payload) is list and set(map(type, payload)) <= {element} and (
        kind != FENCE or len(payload) == 3
    )  # fmt: skip
