"""Kinds and fields that many operations share."""

from typing import Any, Final

from . import limits
from .kinds import Binary, Column, Flag, Integer, Nullable, OneOf, Row, Table, Text
from .record import OMIT, Optional, Record, Shape

KEY: Final = Binary(limits.key_bytes_max, 1, limit="key_bytes_max")
BOUND: Final = Binary(limits.key_bytes_max, limit="key_bytes_max")
"""The start of a span of keys; empty: the first key."""
SEQ: Final = Integer()
NODE: Final = Integer(1)
COUNT: Final = Integer()
LOG_NAME: Final = Text(limits.log_name_bytes_max, 1, limit="log_name_bytes_max")
LEASE: Final = Text(limits.lease_id_chars_max, 1, chars=True)
REASON: Final = Text(4 * limits.KIB, lines=True)
"""A node's free text for people."""
TOLD_REASON: Final = Text(limits.told_reason_bytes_max, lines=True)
"""The same in each of many rows."""
TIMEOUT: Final = Integer(0, limits.timeout_ms_max)
"""Milliseconds."""

GRANT: Final = Binary(limits.producer_grant_bytes, limits.producer_grant_bytes)
"""Proof of the producer ids that a client has opened. The bytes are opaque to clients."""

GROUP: Final[Shape] = {"range": Integer(), "generation": Integer()}
"""The generation of a range; a request for any other generation is refused."""
EMPTY: Final = Record({})
SINCE: Final[Shape] = {"since": Optional(Integer(), OMIT)}
"""A version of the metadata that the sender knows before it sends the attempt. The controller
refuses the attempt if later commands have changed the same records (`partitions.overtaken`)."""

READ: Final[Shape] = {
    **GROUP,
    "consistency": Optional(Text(0, among=("linearizable", "prefix")), "linearizable"),
    "node": Optional(Integer()),
    "through": Optional(SEQ),
    "timeout_ms": Optional(TIMEOUT, 10_000),
    "applied": Optional(Integer()),
}
"""`node`: only the replica of that node may answer. `through`: the replica answers once this seq
is applied. `applied`: the session of prefix reads; the replica answers once it has applied that
much of this generation."""
READ_ANSWER: Final[Shape] = {
    "applied": Optional(Integer()),
    "leader": Optional(Integer()),
}
PAGE_SIZE: Final[Shape] = {
    "limit": Optional(Integer(1, limits.page_entries_max), limits.page_entries_max),
    "bytes": Optional(Integer(1, limits.page_bytes_max), limits.page_bytes_default),
}
PATTERNS: Final[Shape] = {
    "patterns": Optional(Row(
        separator=Binary(limits.separator_bytes_max),
        texts=Column(bytes, limits.patterns_max, low=1, high=limits.patterns_bytes_max),
    ))
}  # fmt: skip
"""Patterns of keys (`patterns`), in a read of many keys."""
MATCHED: Final[Shape] = {"matched": Optional(Flag(), False)}
"""Whether the answer has only what the patterns of the request choose. A member of an earlier
version drops the patterns and says nothing: the asker then chooses by itself."""
HEADERS: Final = Table(Integer(0, limits.page_entries_max), Table(
    Binary(limits.header_bytes_max), Binary(limits.header_bytes_max), limits.headers_max,
), limits.page_entries_max)  # fmt: skip
"""Headers of entries by their positions in a page."""
MARKS: Final = Column(int, limits.page_entries_max)
"""Positions of logical snapshots in a page."""
PAGE: Final[Shape] = {
    "keys": OneOf(KEY, Column(bytes, limits.page_entries_max, low=1, high=limits.key_bytes_max)),
    "seqs": Column(int, limits.page_entries_max),
    "timestamps": Column(int, limits.page_entries_max),
    "values": Column(bytes, limits.page_entries_max, high=limits.value_bytes_max, nil=True),
    "headers": Optional(HEADERS),
    "snapshots": Optional(MARKS),
    "next": SEQ,
    "more": Flag(),
    "end_key": Optional(KEY),
}
"""Entries as columns. A single key stands for all entries when they share it. `headers` and
`snapshots` are by position. `next` is the start of the next page."""

SMALL_BYTES: Final = 4 * limits.KIB
"""The maximum bytes of an answer without data."""
ENTRY_BYTES: Final = limits.value_bytes_max + limits.header_bytes_max + limits.key_bytes_max + 4_096
"""The largest entry on the wire."""
WHOLE_BYTES: Final = limits.frame_bytes_max


def page_bytes(body: dict[str, Any]) -> int:
    """Return the maximum bytes of a page: the requested bytes and the largest entry."""
    return int(body["bytes"]) + ENTRY_BYTES


def maybe(kind: Any) -> Optional:
    """Return a field that may be missing, nil, or of the kind."""
    return Optional(Nullable(kind))
