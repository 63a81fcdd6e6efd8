"""Entries of every kind for a range, and what applies them."""

from pathlib import Path
from typing import Any

from fuzz_targets import range_commands

from lognode.client.protocol.levels import LEVEL_MAX
from lognode.client.protocol.records import encode_batch
from lognode.statemachine import commands
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.segments import SegmentStore

FIRST = 1


def batch(key: bytes, number: int, *, expects: list[int] | None = None) -> bytes:
    return encode_batch(
        [key], [b"v"], producer=7, epoch=1, low=1, numbers=number, prevs=None, expects=expects,
        atomic=False, each=False,
    )  # fmt: skip


ENTRIES = [
    commands.encode(commands.APPEND, 10, [batch(b"a", 1), batch(b"b", 2)]),
    commands.encode(commands.FENCE, 10, [8, 3, 99]),
    commands.encode(
        commands.APPEND, 11, [batch(b"a", 3, expects=[1]), batch(b"a", 4, expects=[9])]
    ),
    commands.encode(commands.TRIM_KEYS, 12, [[b"a", 2]]),
    commands.encode(commands.TAKE_LEASE, 12, ["lease", b"", None, 2, 5_000]),
    commands.encode(commands.FREEZE, 13, None),
    commands.encode(commands.TRIM_SPANS, 13, [[b"", b"b", 3]]),
    commands.encode(commands.RETIRE_PRODUCERS, 14, [8]),
    commands.encode(commands.SEAL, 15, 1),
]


def begun(tmp_path: Path, base: Base | None = None) -> RangeState:
    return RangeState(start=b"", end=None, store=SegmentStore(tmp_path), base=base)


def applied(state: RangeState, entries: list[bytes] = ENTRIES) -> bytes:
    for command in entries:
        state.apply(state.applied_index + 1, 1, command)
    return state.effects.to_wire()


def tables(tmp_path: Path) -> dict[str, Any]:
    """Return each table that a base of a range may have, as it is after one of the examples of all
    commands."""
    state = begun(tmp_path)
    kinds = [row for row in range_commands() if row[0] not in (commands.LEVEL, commands.SEAL)]
    found: dict[str, Any] = {}
    for kind, payload in [(commands.LEVEL, LEVEL_MAX), *kinds, (commands.SEAL, 1)]:
        state.apply(state.applied_index + 1, 1, commands.encode(kind, 1 << 40, payload))
        producers = state.producers.capture()
        producers.finish()
        found.update(state._tables(producers))
    return found
