"""The chains of a manifest: rows that follow each other in seq, span by span.

A range that never was merged is one chain. After a merge the seqs of one parent's rows are
unrelated to the other's (x12). A read in the order of seq, a seq for a timestamp and a floor of
retention all end where the clips of these rows begin and end. The rows whose clips have a key rise
in seq, in the order of the manifest.

This module ignores the first and last keys of files. So while a replica serves one generation, the
part of a span that one pass can read from a seq on never shrinks, whatever the replica flushes,
merges and removes: a flush adds no clip, and rows of one clip become one row.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .segment_format import SegmentInfo
from .spans import EVERYTHING, Span, common


class Chain(NamedTuple):
    """The keys in [start, end), and all rows whose clips have them, oldest first."""

    start: bytes
    end: bytes | None
    rows: Sequence[SegmentInfo]


def chains(manifest: Sequence[SegmentInfo], span: Span) -> list[Chain]:
    """Return the chains of a range, in the order of keys; together they have all of its keys.

    The result is one chain when no row has a clip.
    """
    if all(info.clip == EVERYTHING for info in manifest):
        return [Chain(*span, manifest)]
    edges = sorted(set(_edges(manifest, span)))
    spans = zip([span[0], *edges], [*edges, span[1]], strict=True)
    return [
        Chain(*own, [info for info in manifest if common(info.clip, own) is not None])
        for own in spans
    ]


def nearest_edge(rows: Iterable[SegmentInfo], span: Span) -> bytes | None:
    """Return the first edge of a row inside the span, or None when every row has the whole span.

    Only rows with keys of the span count. The start of the span is not an edge.
    """
    return min(_edges(rows, span), default=None)


def _edges(rows: Iterable[SegmentInfo], span: Span) -> Iterable[bytes]:
    return (
        edge for info in rows if common(info.clip, span) is not None
        for edge in info.clip
        if edge is not None and edge > span[0] and (span[1] is None or edge < span[1])
    )  # fmt: skip
