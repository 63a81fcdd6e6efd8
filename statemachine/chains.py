"""The chains of a manifest: rows that follow each other in seq, span by span.

A range that never came of a merge is one chain. After a merge the rows of one parent have seqs that
have nothing to do with the other's (x12): where their clips begin and end, a read in
the order of seq, a seq for a timestamp and a floor of retention end too. Of every key the rows
whose clips have it rise in seq, in the order of the manifest.

Nothing in here looks at the keys that a file begins and ends with. So while a replica serves one
generation, whatever it flushes, merges and removes, of a span and of seqs from one on what can be
read in one pass never becomes less: a flush brings no clip, and rows of one clip become one row.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .segment_format import SegmentInfo
from .spans import EVERYTHING, Span, common


class Chain(NamedTuple):
    """The keys in [start, end), and the rows whose clips have them, all of them, oldest first."""

    start: bytes
    end: bytes | None
    rows: Sequence[SegmentInfo]


def chains(manifest: Sequence[SegmentInfo], span: Span) -> list[Chain]:
    """Those of a range with that manifest and span, in the order of keys: together they have all of
    its keys. One alone where no row has a clip."""
    if all(info.clip == EVERYTHING for info in manifest):
        return [Chain(*span, manifest)]
    edges = sorted(set(_edges(manifest, span)))
    spans = zip([span[0], *edges], [*edges, span[1]], strict=True)
    return [
        Chain(*own, [info for info in manifest if common(info.clip, own) is not None])
        for own in spans
    ]


def nearest_edge(rows: Iterable[SegmentInfo], span: Span) -> bytes | None:
    """The first key of a span, but for its start, at which one of the rows that have keys of the
    span begins or ends; None when all of them have all of it."""
    return min(_edges(rows, span), default=None)


def _edges(rows: Iterable[SegmentInfo], span: Span) -> Iterable[bytes]:
    return (
        edge for info in rows if common(info.clip, span) is not None
        for edge in info.clip
        if edge is not None and edge > span[0] and (span[1] is None or edge < span[1])
    )  # fmt: skip
