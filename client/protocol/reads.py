"""Operations that read a range. A page is described in `common.PAGE`."""

from typing import Final

from . import limits
from .common import (
    BOUND,
    COUNT,
    ENTRY_BYTES,
    GROUP,
    HEADERS,
    KEY,
    LEASE,
    MARKS,
    MATCHED,
    PAGE,
    PAGE_SIZE,
    PATTERNS,
    READ,
    READ_ANSWER,
    SEQ,
    SMALL_BYTES,
    page_bytes,
)
from .kinds import Array, Binary, Column, Flag, Integer, Nullable, OneOf, Row, Table, Text
from .operation import Operation, Permission, Retry, Sender, Subject, Weight
from .record import Optional, Record, Shape

_BAND: Final = Row(first=SEQ, end=SEQ, key=BOUND, seq=SEQ)
_POSITION: Final = Row(bands=Array(_BAND, limits.export_bands_max), next=SEQ)
_LONGS: Final = Binary(8 * limits.page_entries_max)
CHUNK: Final = Row(
    rows=Integer(1, limits.page_entries_max),
    first_seq=SEQ,
    first_ms=Integer(),
    key_lengths=Binary(2 * limits.page_entries_max),
    repeats=Nullable(Binary(4 * limits.page_entries_max)),
    keys=Binary(limits.frame_bytes_max),
    seqs=_LONGS,
    timestamps=_LONGS,
    value_lengths=Binary(4 * limits.page_entries_max),
    values=Binary(limits.frame_bytes_max),
    headers=Nullable(HEADERS),
    snapshots=Nullable(MARKS),
)
"""Entries as packed columns; `chunks` describes the columns and their relations."""
_START: Final = OneOf(
    Text(0, among=("earliest", "latest", "snapshot")),
    Row(how=Text(0, among=("ts", "tail")), value=Integer()),
)
_PAGE_ANSWER: Final = Record({**PAGE, **READ_ANSWER}, loose=True)
_SPAN: Final[Shape] = {"start_key": Optional(BOUND, b""), "end_key": Optional(KEY)}


def _read(
    name: str, number: int, about: str, request: Shape, answer: Record, weight: int | Weight
) -> Operation:
    return Operation(
        name, number, about, Sender.CLIENT, Permission.READ, Retry.SAFE,
        Record({**READ, **request}), answer, weight, subject=Subject.KEYS,
    )  # fmt: skip


LATEST: Final = _read(
    "latest", 48,
    "Return the newest entry of the key, in a page of at most one entry. Clients that append on "
    "the condition that the key got no further entry ask with `turn`, and the leader answers "
    "these clients one after another. Such a request also needs the permission `append`.",
    {"key": KEY, "as_of": Optional(LEASE), "turn": Optional(Text(0, among=("take", "end")))},
    _PAGE_ANSWER, SMALL_BYTES + ENTRY_BYTES,
)  # fmt: skip
COUNT_ENTRIES: Final = _read(
    "count", 49, "Count the entries of the key in [start, end).",
    {"key": KEY, "start": Optional(SEQ, 1), "end": Optional(SEQ), "as_of": Optional(LEASE)},
    Record({"count": COUNT, **READ_ANSWER}, loose=True), SMALL_BYTES,
)  # fmt: skip
SCAN: Final = _read(
    "scan", 50, "Return a page of the key's entries in [start, end).",
    {"key": KEY, "start": Optional(SEQ, 1), "end": Optional(SEQ), **PAGE_SIZE,
     "reverse": Optional(Flag(), False), "as_of": Optional(LEASE)},
    _PAGE_ANSWER, page_bytes,
)  # fmt: skip
KEYS: Final = _read(
    "keys", 51,
    "Return keys of the range that have entries, in order.",
    {"prefix": Optional(BOUND, b""), "start_after": Optional(KEY),
     "limit": Optional(Integer(1, limits.keys_page_max), limits.keys_page_max), **PATTERNS},
    Record({
        "keys": Column(bytes, limits.keys_page_max, low=1, high=limits.key_bytes_max),
        "more": Optional(Flag(), False),
        "after": Optional(KEY),
        **MATCHED,
        **READ_ANSWER,
    }, loose=True),
    lambda body: SMALL_BYTES + int(body["limit"]) * (limits.key_bytes_max + 3),
)  # fmt: skip
READ_SPAN: Final = _read(
    "read_span", 52,
    "Return a page of the entries of a span of keys, in the order of seq. With `columns`, the "
    "entries come as chunks, and the other columns of the page are empty. A member of an earlier "
    "version drops `columns` and sends a page without chunks.",
    {**_SPAN, "start": Optional(SEQ, 1), **PAGE_SIZE, "as_of": Optional(LEASE),
     "columns": Optional(Flag(), False)},
    Record({
        **PAGE, "chunks": Optional(Array(CHUNK, limits.page_entries_max)), **READ_ANSWER,
    }, loose=True),
    page_bytes,
)  # fmt: skip
EXPORT: Final = _read(
    "export", 53,
    "Return a page of all entries of a span as chunks. The entries of a key come in the "
    "order of seq; keys come in any order. This is the fastest read of much data. A "
    "position is valid at every member, and in the ranges that follow a split or merge of "
    "the range.",
    {**_SPAN, "position": Optional(_POSITION), **PAGE_SIZE, "as_of": Optional(LEASE),
     **PATTERNS},
    Record({
        "chunks": Array(CHUNK, limits.page_entries_max),
        "position": Optional(_POSITION),
        "end_key": Optional(KEY),
        **MATCHED,
        **READ_ANSWER,
    }, loose=True),
    page_bytes,
)  # fmt: skip
RESOLVE: Final = _read(
    "resolve", 54,
    "Return the seq of a start position. `earliest`: the entries that retention has kept "
    "begin at this seq or later. `latest`: behind the newest entry of the range. [`ts`, "
    "milliseconds]: the first entry that is not older. [`tail`, count]: this number of "
    "entries before the end of a key. `snapshot`: the newest logical snapshot of a key "
    "below `end`.",
    {"key": Optional(KEY), "start": _START, "end": Optional(SEQ), **_SPAN, **PATTERNS},
    Record({
        "seq": SEQ,
        "more": Optional(Flag(), False),
        "end_key": Optional(KEY),
        **READ_ANSWER,
    }, loose=True),
    SMALL_BYTES,
)  # fmt: skip
LAYOUT: Final = _read(
    "layout", 55,
    "Estimate the bytes between neighbours of a few hundred keys, so that several readers "
    "can share a span.",
    _SPAN,
    Record({"weights": Array(Row(key=BOUND, bytes=Integer()), limits.layout_rows_max),
            **READ_ANSWER}, loose=True),
    SMALL_BYTES + limits.layout_rows_max * (limits.key_bytes_max + 12),
)  # fmt: skip
FOLLOW: Final = Operation(
    "follow", 56,
    "Push the entries of some keys, or of a span, from a position on, and then each new "
    "entry after the member has applied the entry.",
    Sender.CLIENT, Permission.READ, Retry.SAFE,
    Record({
        **GROUP,
        "keys": Optional(Table(KEY, SEQ, limits.follow_keys_max, limit="follow_keys_max")),
        "prefix": Optional(BOUND, b""),
        **_SPAN,
        "from_seq": Optional(SEQ, 1),
        "credit": Optional(Integer(), 0),
        "node": Optional(Integer()),
        **PATTERNS,
    }),
    Record({
        "page": Record(PAGE, loose=True),
        "caught_up": Flag(),
        "staleness_ms": Optional(Integer()),
        "next": OneOf(SEQ, Table(KEY, SEQ, limits.page_entries_max)),
        **READ_ANSWER,
        "end_key": Optional(KEY),
        **MATCHED,
    }, loose=True),
    limits.page_bytes_default + ENTRY_BYTES,
    subject=Subject.KEYS,
    streams=True,
)  # fmt: skip

READS: Final = (
    LATEST, COUNT_ENTRIES, SCAN, KEYS, READ_SPAN, EXPORT, RESOLVE, LAYOUT, FOLLOW,
)  # fmt: skip
