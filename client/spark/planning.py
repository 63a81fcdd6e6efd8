"""The pieces of a vector that each task of a batch reads, of about even size. Pure.

A piece is a span of keys and of seqs, and names no range: later splits, merges and moves do not
affect it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from ..protocol.patterns import Patterns
from ..span_pages import Span
from ..span_positions import Position, overlay
from ..vector import Vector

partition_bytes: Final = 64 << 20
"""The approximate stored bytes of a partition, unless more partitions are requested."""
One = TypeVar("One")
Other = TypeVar("Other")
KeySpan = tuple[bytes, bytes | None]
Weight = tuple[bytes, int]
"""The approximate bytes from a key on, below the next key."""


class Mark(NamedTuple):
    """What a range had applied at a moment: its next seq, and the index of its last entry. Two
    equal marks show the same entries, and no removal came in between."""

    start: bytes
    range_id: int
    generation: int
    seq: int
    applied: int | None
    """None for nodes that do not tell."""


class Piece(NamedTuple):
    """A span to read at once, and the start of its range when it was planned."""

    span: Span
    range_start: bytes


@dataclass(frozen=True, slots=True)
class Task:
    """Everything that one partition reads from a log, in order."""

    cluster: str
    log: str
    log_id: int
    pieces: tuple[Piece, ...]

    @property
    def of(self) -> Vector:
        """The log, as a vector without parts."""
        return Vector(self.cluster, self.log, self.log_id, "", 0, ())


class _Area(NamedTuple):
    start: bytes
    end: bytes | None
    from_seq: int
    to_seq: int
    range_start: bytes


def overlaps(span: KeySpan, spans: Iterable[KeySpan]) -> bool:
    """Return whether any of the spans has a key of the span."""
    start, end = span
    return any((end is None or low < end) and (high is None or start < high) for low, high in spans)


def positions(of: Vector) -> list[Position]:
    """Return the first seq of each span that is not in the vector."""
    return [(part.start, part.end, part.through_seq + 1) for part in of.parts]


def hull(spans: Sequence[KeySpan]) -> list[KeySpan]:
    """Return one span around all of these ascending spans: asking for each could take many
    requests."""
    return [(spans[0][0], spans[-1][1])]


def plan_batch(
    vector: Vector,
    wanted: Sequence[KeySpan],
    *,
    begins: Iterable[Position],
    ends: Iterable[Position] | None = None,
    weights: Sequence[Weight] = (),
    partitions_min: int = 1,
    task_bytes: int = partition_bytes,
    lease: str | None,
    patterns: Patterns | None = None,
) -> list[Task]:
    """Return the tasks that read the vector's wanted keys, from `begins` on and below `ends`.

    With patterns, only the matching keys are read. Each task has keys of only one span of the
    vector, and about `task_bytes` of the weights at most. There are at least `partitions_min` tasks
    if the weights, ascending by key, allow enough cuts.
    """
    parts = [(p.start, p.end, (p.through_seq + 1, p.start)) for p in vector.parts]
    ends = [(b"", None, 1 << 63)] if ends is None else ends
    spans = ((start, end, None) for start, end in wanted)
    areas = []
    bounded = _paired(_paired(begins, ends), parts)
    for start, end, ((begin, until), (top, range_start)), _ in overlay(bounded, spans):
        low, high = max(1, begin), min(until, top)
        if low < high:
            areas.append(_Area(start, end, low, high, range_start))
    groups = _packed(list(_atoms(areas, weights)), partitions_min, task_bytes)
    return [
        Task(vector.cluster, vector.log, vector.log_id, tuple(_pieces(group, lease, patterns)))
        for group in groups
    ]


def _paired(
    one: Iterable[tuple[bytes, bytes | None, One]],
    other: Iterable[tuple[bytes, bytes | None, Other]],
) -> Iterator[tuple[bytes, bytes | None, tuple[One, Other]]]:
    return ((start, end, (a, b)) for start, end, a, b in overlay(one, other))


def _atoms(areas: Iterable[_Area], weights: Sequence[Weight]) -> Iterator[tuple[_Area, int]]:
    """Yield the areas, cut at the keys of the weights, each with its weight."""
    keys = [key for key, _ in weights]
    for area in areas:
        first = bisect_left(keys, area.start)
        last = len(keys) if area.end is None else bisect_left(keys, area.end)
        rows = weights[first:last]
        if not rows or rows[0][0] > area.start:  # the keys before belong to an earlier row
            rows = [(area.start, 1), *rows]
        followed = [*(key for key, _ in rows[1:]), area.end]
        for (key, size), following in zip(rows, followed, strict=True):
            yield area._replace(start=key, end=following), max(1, size)


def _packed(
    atoms: Sequence[tuple[_Area, int]], partitions_min: int, task_bytes: int
) -> Iterator[list[_Area]]:
    """Group neighbours within one range into groups of about the same weight."""
    total = sum(size for _, size in atoms)
    target = max(1, min(task_bytes, -(-total // partitions_min)))
    of_range: dict[bytes, int] = {}
    for area, size in atoms:
        of_range[area.range_start] = of_range.get(area.range_start, 0) + size
    group: list[_Area] = []
    before: tuple[bytes, int] | None = None
    passed = 0
    for area, size in atoms:
        whole = of_range[area.range_start]
        if before is None or before[0] != area.range_start:
            passed = 0
        count = -(-whole // target)
        own = area.range_start, min(count - 1, (2 * passed + size) * count // (2 * whole))
        if group and own != before:
            yield group
            group = []
        group.append(area)
        before, passed = own, passed + size
    if group:
        yield group


def _pieces(
    group: Iterable[_Area], lease: str | None, patterns: Patterns | None
) -> Iterator[Piece]:
    """Yield the pieces of areas; adjacent areas become one piece."""
    held: _Area | None = None
    for area in group:
        if held is not None and held._replace(start=area.start, end=area.end) == area and (
            held.end == area.start
        ):  # fmt: skip
            held = held._replace(end=area.end)
            continue
        if held is not None:
            yield _piece(held, lease, patterns)
        held = area
    if held is not None:
        yield _piece(held, lease, patterns)


def _piece(area: _Area, lease: str | None, patterns: Patterns | None) -> Piece:
    span = Span(area.start, area.end, area.from_seq, area.to_seq, lease, patterns)
    return Piece(span, area.range_start)
