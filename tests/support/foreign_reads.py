"""Entries in pages and chunks, and snapshots, of the client that `foreign_client` is."""

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foreign_client import Client
from foreign_wire import Body

TOMBSTONE = 0xFFFFFFFF


class Reader:
    """Reads of one log."""

    def __init__(self, client: Client, log: str) -> None:
        self.client, self.log = client, log

    def latest(self, key: bytes, *, prefix: bool = False) -> "Entry | None":
        """The newest entry of a key. `prefix`: any member may answer."""
        page, _ = self.client.ask(self.log, key, "latest", {"key": key}, prefix=prefix)
        return next(entries_of(page), None)

    def count(self, key: bytes) -> int:
        """How many entries a key has."""
        return int(self.client.ask(self.log, key, "count", {"key": key})[0]["count"])

    def scan(
        self, key: bytes, *, reverse: bool = False, page_bytes: int = 262_144,
        as_of: str | None = None, prefix: bool = False,
    ) -> Iterator["Entry"]:  # fmt: skip
        """All entries of a key, page by page."""
        body: Body = {"key": key, "start": 1, "end": None, "reverse": reverse,
                      "bytes": page_bytes, "as_of": as_of}  # fmt: skip
        more = True
        while more:
            page, _ = self.client.ask(self.log, key, "scan", body, prefix=prefix)
            yield from entries_of(page)
            more = page["more"]
            body["end" if reverse else "start"] = page["next"]

    def keys(self, prefix: bytes = b"", limit: int = 10_000) -> Iterator[bytes]:
        """The keys of a log that begin with a prefix, in order."""
        at: bytes | None = prefix
        while at is not None:
            after, more = None, True
            while more:
                body = {"prefix": prefix, "start_after": after, "limit": limit}
                page, known = self.client.ask(self.log, after or at, "keys", body)
                yield from page["keys"]
                after, more = page.get("after"), page.get("more")
            at = known.end if known.end is not None and known.end.startswith(prefix) else None

    def span(self, start: bytes = b"", end: bytes | None = None) -> Iterator["Entry"]:
        """The entries of a span of keys, of each key in the order of seq."""
        rest: list[tuple[bytes, bytes | None, int]] = [(start, end, 1)]
        while rest:
            at, edge, seq = rest.pop()
            more = True
            while more:
                body = {"start_key": at, "end_key": edge, "start": seq}
                page, known = self.client.ask(self.log, at, "read_span", body)
                edges = [e for e in (edge, known.end, page.get("end_key")) if e is not None]
                if edges and min(edges) != edge:
                    rest.append((min(edges), edge, seq))
                    edge = min(edges)
                yield from entries_of(page)
                seq, more = page["next"], page["more"]

    def snapshot(self, lease_ms: int = 60_000) -> "Snapshot":
        """A committed prefix of the log that stays readable."""
        parts = []
        for known in self.client.spans(self.log):
            body = {"start": "latest", "start_key": known.start, "end_key": known.end}
            answer, _ = self.client.ask(self.log, known.start, "resolve", body)
            parts.append((known.start, known.end, answer["seq"] - 1))
        snapshot = Snapshot(self.client, self.log, os.urandom(16).hex(), parts)
        snapshot.hold(lease_ms)
        return snapshot


@dataclass(frozen=True)
class Entry:
    """One entry. `value` is None for a tombstone."""

    key: bytes
    seq: int
    timestamp_ms: int
    value: bytes | None
    headers: Mapping[bytes, bytes] | None
    snapshot: bool


def entries_of(page: Body) -> Iterator[Entry]:
    """The entries in the columns of a page."""
    count = len(page["seqs"])
    keys = [page["keys"]] * count if isinstance(page["keys"], bytes) else page["keys"]
    headers, marks = page.get("headers") or {}, page.get("snapshots") or ()
    columns = zip(keys, page["seqs"], page["timestamps"], page["values"], strict=True)
    for at, (key, seq, timestamp_ms, value) in enumerate(columns):
        yield Entry(key, seq, timestamp_ms, value, headers.get(at), at in marks)


def entries_of_chunk(chunk: Sequence[Any]) -> Iterator[Entry]:
    """The entries in the columns of a chunk."""
    (rows, first_seq, first_ms, key_lengths, repeats, keys, seqs, timestamps, value_lengths, values,
     headers, marks) = chunk  # fmt: skip

    def numbers(data: bytes, size: int) -> tuple[int, ...]:
        return struct.unpack(f"<{len(data) // size}{ {2: 'H', 4: 'I', 8: 'Q'}[size] }", data)

    each: list[bytes] = []
    at = 0
    lengths = numbers(key_lengths, 2)
    times = numbers(repeats, 4) if repeats is not None else (1,) * len(lengths)
    for length, count in zip(lengths, times, strict=True):
        each += [keys[at : at + length]] * count
        at += length
    columns = zip(
        each, numbers(seqs, len(seqs) // rows), numbers(timestamps, len(timestamps) // rows),
        numbers(value_lengths, 4), strict=True,
    )  # fmt: skip
    at = 0
    for row, (key, seq, time_ms, size) in enumerate(columns):
        value = None if size == TOMBSTONE else values[at : at + size]
        at += 0 if size == TOMBSTONE else size
        yield Entry(key, first_seq + seq, first_ms + time_ms, value, (headers or {}).get(row),
                    row in (marks or ()))  # fmt: skip


@dataclass
class Snapshot:
    """Spans of keys with the last seq of each, which a lease keeps readable."""

    client: Client
    log: str
    lease: str
    parts: list[tuple[bytes, bytes | None, int]]

    def hold(self, lease_ms: int, *, renew: bool = False) -> None:
        """Take or renew the lease on every part."""
        for start, end, through in self.parts:
            at: bytes | None = start
            while at is not None and (end is None or at < end):
                body = {"lease": self.lease, "start_key": at, "end_key": end, "through": through,
                        "lease_ms": lease_ms, "renew": renew}  # fmt: skip
                at = self.client.ask(self.log, at, "lease", body)[0].get("end_key")

    def read(self, page_bytes: int = 4_194_304) -> Iterator[Entry]:
        """All entries, of each key in the order of seq."""
        rest: list[tuple[bytes, bytes | None, Any]] = [(s, e, None) for s, e, _ in self.parts]
        while rest:
            start, end, position = rest.pop()
            while True:
                body = {"start_key": start, "end_key": end, "position": position,
                        "as_of": self.lease, "bytes": page_bytes}  # fmt: skip
                page, known = self.client.ask(self.log, start, "export", body)
                edges = [e for e in (end, known.end, page.get("end_key")) if e is not None]
                if edges and min(edges) != end:
                    rest.append((min(edges), end, position))
                    end = min(edges)
                for chunk in page["chunks"]:
                    yield from entries_of_chunk(chunk)
                position = page.get("position")
                if position is None:
                    break

    def release(self) -> None:
        """End the lease."""
        for known in list(self.client.spans(self.log)):
            self.client.ask(self.log, known.start, "release", {"lease": self.lease})
