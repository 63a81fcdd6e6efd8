"""Follows of the client that `foreign_client` is."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from foreign_client import Client, Log, Range, Retries
from foreign_reads import Entry, entries_of
from foreign_wire import ERROR, PUSH, Body, Connection, Refused, lost

FOLLOW_CREDIT = 1 << 20


@dataclass
class _Span:
    """A part of what is followed: keys with their positions, or a span with one."""

    start: bytes
    end: bytes | None
    next: int
    keys: dict[bytes, int] | None = None
    stream: tuple[Connection, int, Log, Range, int] | None = None
    read: int = 0
    caught_up: bool = False
    ended: Refused | None = None
    retries: Retries = field(default_factory=lambda: Retries("follow", float("inf")))


class Follow:
    """Entries as they are appended. `keys`: some keys with the next seq wanted of each; else all
    keys that begin with `prefix`."""

    def __init__(
        self, client: Client, log: str, *, keys: Mapping[bytes, int] | None = None,
        prefix: bytes = b"", start: int = 1, credit: int = FOLLOW_CREDIT,
    ) -> None:  # fmt: skip
        self.client, self.log, self.credit = client, log, credit
        self._prefix = prefix
        self.spans: list[_Span] = []
        if keys is None:
            self.spans.append(_Span(prefix, _behind(prefix), start))
        else:
            self.spans.append(_Span(min(keys), None, 1, dict(keys)))

    @property
    def caught_up(self) -> bool:
        """Whether all that was there when it was pushed has been handed over."""
        return all(span.caught_up for span in self.spans)

    def next(self, seconds: float) -> list[Entry]:
        """Entries that arrive within a time; of each key in the order of seq."""
        deadline = time.monotonic() + seconds
        while True:
            found: list[Entry] = []
            for span in list(self.spans):
                if span.stream is None:
                    self._open(span)
                try:
                    found += self._take(span)
                except Refused as error:
                    span.ended = error
                if span.ended is not None:  # after what was pushed before
                    self._failed(span, span.ended)
            if found or time.monotonic() > deadline:
                return found

    def close(self) -> None:
        """Cancel all streams."""
        for span in self.spans:
            if span.stream is not None:
                span.stream[0].cancel(span.stream[1])

    def _open(self, span: _Span) -> None:
        log, known = self.client.locate(self.log, span.start)
        self._cut(span, known.end)
        body: Body = {
            "range": known.id, "generation": known.generation, "keys": span.keys,
            "credit": self.credit,
        }  # fmt: skip
        if span.keys is None:
            body |= {"prefix": self._prefix, "start_key": span.start, "end_key": span.end,
                     "from_seq": span.next}  # fmt: skip
        node = known.leader or known.members[0]
        try:
            connection = self.client.at(node)
            span.stream = connection, connection.begin("follow", body), log, known, node
        except Refused as error:
            self.client.heed(log, known, node, error, span.retries)

    def _cut(self, span: _Span, edge: bytes | None) -> None:
        """Keep what lies below the edge; the rest is followed by itself, from the same position."""
        if edge is None:
            return
        if span.keys is not None:
            rest = {key: seq for key, seq in span.keys.items() if key >= edge}
            if rest:
                self.spans.append(_Span(min(rest), None, 1, rest))
                span.keys = {key: seq for key, seq in span.keys.items() if key < edge}
        elif span.end is None or edge < span.end:
            self.spans.append(_Span(edge, span.end, span.next))
            span.end = edge

    def _take(self, span: _Span) -> list[Entry]:
        if span.stream is None:
            return []
        connection, request_id, *_ = span.stream
        connection.pump(0.02)
        found: list[Entry] = []
        frames = connection.take(request_id)
        while frames and frames[0][0] == PUSH:
            _, body, size = frames.pop(0)
            self._cut(span, body.get("end_key"))
            found += entries_of(body["page"])
            if span.keys is None:
                span.next = body["next"]
            else:
                span.keys |= body["next"]
            span.caught_up = body["caught_up"]
            span.retries = Retries("follow", float("inf"))
            span.read += size
        if frames:
            _, body, _ = frames[0]
            span.ended = Refused.of(body) if frames[0][0] == ERROR else lost("ended", "not_applied")
        elif span.read * 4 >= self.credit:
            connection.grant(request_id, span.read)
            span.read = 0
        return found

    def _failed(self, span: _Span, error: Refused) -> None:
        if span.stream is not None:
            _, _, log, known, node = span.stream
            span.stream, span.ended, span.read = None, None, 0
            self.client.heed(log, known, node, error, span.retries)


def _behind(prefix: bytes) -> bytes | None:
    """The first key behind all that begin with the prefix."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
