"""One key: the appends of its entries, their readers over time, and the nodes that hold them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from ..history import Operation
from . import shades
from .entries import acknowledged, seen, sent
from .kit import LEFT, RIGHT, WIDTH, Time, box, n, over_time, path, text, time_axis
from .run import FINAL, Run
from .thin import dots
from .words import clock, operation, plural, span

_ROW: Final = 14
_ROWS: Final = 48
_AROUND: Final = 8
_COLUMN: Final = 30
_NO_SEQ: Final = 0
"""The row of appends without a known seq. Seqs begin at 1."""
_POINTED: Final = 1_500
"""Up to this many reads of entries react to the pointer; more reads are drawn as one path."""


@dataclass(slots=True)
class Key:
    """All events of one key."""

    name: str
    appends: list[tuple[Operation, str, int]] = field(default_factory=list)
    """(operation, value, seq or _NO_SEQ)."""
    reads: list[tuple[Operation, int, str]] = field(default_factory=list)
    """(operation, seq, value) of each returned entry."""
    values: dict[int, Counter[str]] = field(default_factory=dict)
    """By seq, the values that were acknowledged or read there; more than one is an error."""


def collect(run: Run, names: Iterable[str]) -> dict[str, Key]:
    """Return the keys of these names, in one pass over the history."""
    keys = {name: Key(name) for name in names}
    if not keys:
        return keys
    seqs: dict[tuple[str, str], int] = {}
    for one in run.operations:
        for key, seq, value in seen(one):
            if (own := keys.get(key)) is not None:
                own.reads.append((one, seq, value))
                own.values.setdefault(seq, Counter())[value] += 1
                seqs.setdefault((key, value), seq)
        for key, acked, value in acknowledged(one):
            if key in keys and acked is not None:
                seqs[key, value] = acked
                keys[key].values.setdefault(acked, Counter())[value] += 1
    for one in run.operations:
        for key, value in sent(one):
            if key in keys:
                keys[key].appends.append((one, value, seqs.get((key, value), _NO_SEQ)))
    return keys


def chart(run: Run, key: Key) -> str:
    """Draw the key; rows are seqs in their order, without the gaps between them."""
    rows = _rows(run, key)
    finals = [one for one in run.operations if one.f == FINAL]
    right = WIDTH - RIGHT - _COLUMN * len(finals) - (8 if finals else 0)
    reads = [one for one in key.reads if one[1] in rows and one[0].f != FINAL]
    time = _window(run, [one for one in key.appends if one[2] in rows], reads, right)
    appends = [one for one in key.appends if _meets(run, time, one[0])]
    rows |= {seq for *_, seq in appends if seq == _NO_SEQ}
    appends = [one for one in appends if one[2] in rows]
    places = {seq: 26.0 + i * _ROW for i, seq in enumerate(sorted(rows, reverse=True))}
    height = 26.0 + _ROW * len(rows)
    parts = [shades.behind(run, time, 20, height - 20)]
    for seq, y in places.items():
        parts.append(f'<path d="M{LEFT} {n(y + 7)}H{n(right)}" class="grid"/>')
        label = f"{seq:,}" if seq != _NO_SEQ else "no seq"
        parts.append(text(LEFT - 8, y + 11, label, "tick", "end"))
    parts += _appends(run, time, appends, places)
    parts += _reads(run, time, reads, places)
    for i, final in enumerate(finals):
        parts += _column(final, key, places, right + 12 + i * _COLUMN)
    parts.append(time_axis(time, height))
    known = len(key.values)
    shown = sum(seq != _NO_SEQ for seq in rows)
    cut = f", of which {shown} about the offending ones are shown" if shown < known else ""
    said = (
        f"{plural(known, 'seq')}{cut}; {plural(len(key.appends), 'append')}; "
        f"{plural(len(key.reads), 'entry')} read".replace("entrys", "entries")
    )
    return f'<p class="note">{said}</p>\n' + over_time(
        time, height + 24, f"seq against time of key {key.name}", parts
    )


def _rows(run: Run, key: Key) -> set[int]:
    """Return all seqs, or those near an offending operation."""
    seqs = sorted(key.values)
    if len(seqs) <= _ROWS:
        return set(seqs)
    offending = run.offending()
    wrong = {seq for one, _, seq in key.appends if one.index in offending and seq != _NO_SEQ}
    wrong |= {seq for seq, values in key.values.items() if len(values) > 1}
    finals = [
        {seq for seq, _ in one.answer["keys"].get(key.name, ())}
        for one in run.operations
        if one.f == FINAL and one.outcome == "ok"
    ]
    if finals:
        # A difference between nodes is an error too, though of no append.
        wrong |= set.union(*finals) - set.intersection(*finals)
    if not wrong:
        # Without an offending append: the ends of the offending reads.
        named = [(one, seq) for one, seq, _ in key.reads if one.index in offending]
        wrong = {max((seq for one, seq in named if one.f != FINAL), default=seqs[-1])}
    order = {seq: i for i, seq in enumerate(seqs)}
    rows: set[int] = set()
    for seq in sorted(wrong & order.keys()):
        around = seqs[max(order[seq] - _AROUND, 0) : order[seq] + _AROUND + 1]
        if len(rows | set(around)) <= _ROWS:
            rows |= set(around)
    return rows


def _window(
    run: Run,
    appends: Sequence[tuple[Operation, str, int]],
    reads: Sequence[tuple[Operation, int, str]],
    right: float,
) -> Time:
    """Return the time from the first shown append to the last, and as long again for readers."""
    moments = [one.began for one, *_ in appends] or [one.began for one, *_ in reads]
    if not moments:
        return Time(0, max(run.end, 1), right)
    first, last = min(moments), max(moments)
    pad = max(last - first, 500_000_000)
    return Time(max(first - pad // 10, 0), max(min(last + pad, run.end), first + 1), right)


def _meets(run: Run, time: Time, one: Operation) -> bool:
    return one.began <= time.last and run.told.get(one.index, run.end) >= time.first


def _appends(
    run: Run,
    time: Time,
    appends: Sequence[tuple[Operation, str, int]],
    places: dict[int, float],
) -> list[str]:
    offending = run.offending()
    parts = []
    for one, value, seq in appends:
        ended = run.told.get(one.index, run.end)
        x = time.at(one.began)
        width = max(time.at(ended) - x, 3)
        told = (
            f"append {value} {one.outcome}{f': {one.error}' if one.error else ''}\n"
            f"process {one.process}, {clock(one.began)}, took {span(ended - one.began)}"
        )
        parts.append(box(x, places[seq] + 3, width, 8, f"bar {one.outcome}", told))
        if one.index in offending:
            told = f"{offending[one.index]}\n{told}"
            parts.append(box(x - 2.5, places[seq] + 0.5, width + 5, 13, "ring", told))
    return parts


def _reads(
    run: Run,
    time: Time,
    reads: Sequence[tuple[Operation, int, str]],
    places: dict[int, float],
) -> list[str]:
    within = [
        (one, seq, value)
        for one, seq, value in reads
        if time.first <= run.told[one.index] <= time.last
    ]
    points = [(time.at(run.told[one.index]), places[seq] + 7) for one, seq, _ in within]
    if len(within) > _POINTED:
        return [path(dots(points), "dots read")]
    return [
        f'<circle cx="{n(x)}" cy="{n(y)}" r="2.2" class="read" data-t="'
        f'{_escaped(one, seq, value)}"/>'
        for (x, y), (one, seq, value) in zip(points, within, strict=True)
    ]


def _escaped(one: Operation, seq: int, value: str) -> str:
    return escape(f"{one.f} by process {one.process} got {value} at seq {seq}\n{operation(one)}")


def _column(final: Operation, key: Key, places: dict[int, float], x: float) -> list[str]:
    """Draw which of the shown seqs one final read holds."""
    name = "all" if final.node is None else f"n{final.node}"
    parts = [text(x + 8, 15, name, "tick", "middle")]
    whose = "the linearizable read" if final.node is None else f"node {final.node}"
    held: dict[int, str] = {}
    if final.outcome == "ok":
        held = dict(final.answer["keys"].get(key.name, ()))
    for seq, y in places.items():
        if seq == _NO_SEQ:
            continue
        usual = key.values[seq].most_common(1)[0][0]
        if final.outcome != "ok":
            kind, words = "open", f"unknown: the final read of {whose} ended {final.outcome}"
        elif seq not in held:
            kind, words = "lacks", f"{whose} does not hold seq {seq} ({usual})"
        elif held[seq] != usual:
            kind, words = "differs", f"{whose} holds {held[seq]} at seq {seq}, others {usual}"
        else:
            kind, words = "holds", f"{whose} holds {usual} at seq {seq}"
        parts.append(box(x + 3, y + 2, 10, 10, kind, words))
    return parts
