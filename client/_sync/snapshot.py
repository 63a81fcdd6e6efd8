# Generated from client/snapshot.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/snapshot.py`."""

from collections.abc import Iterator

from ..entry_columns import ArrowBatch, EntryColumns
from ..loop_thread import LoopThread
from ..protocol.types import Entry, Pattern
from ..snapshot import AsyncSnapshot, lease_s_default
from ..vector import Vector


class Snapshot:
    """A committed prefix of a log; made by `Log.snapshot` and `open_snapshot`.

    The entries of a snapshot never change until its lease ends, whatever is appended, removed,
    split, merged or moved. Every method takes `timeout`, seconds, the log's by default; reads have
    it per page. All raise LogNotFound, Unavailable, Timeout.
    """

    def __init__(self, loop: LoopThread, twin: AsyncSnapshot) -> None:
        self._loop = loop
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncSnapshot", "Snapshot")

    @property
    def vector(self) -> Vector:
        """The last seq of the snapshot for each span of keys, and the lease."""
        return self._twin.vector

    def to_json(self) -> str:
        """Return the vector as one line of JSON, for `from_json` and `Log.open_snapshot`."""
        return self._loop.run(lambda: self._twin.to_json())

    @staticmethod
    def from_json(text: str) -> Vector:
        """Return the vector that `to_json` wrote. Raises InvalidArgument."""
        return AsyncSnapshot.from_json(text)

    def read(
        self,
        key: bytes | str | None = None,
        prefix: bytes | str | None = None,
        *,
        pattern: Pattern | None = None,
        timeout: float | None = None,
    ) -> Iterator[Entry]:
        """Yield the entries of one key, of the keys with a prefix, of the keys that match a
        pattern or a list of patterns, or all entries; each key's in the order of seq.

        Raises NotFound once the lease has ended, because its entries may be gone.
        """
        for columns in self.read_columns(key, prefix, pattern=pattern, timeout=timeout):
            yield from columns.entries()

    def read_in_order(
        self, start: bytes = b"", end: bytes | None = None, *, timeout: float | None = None
    ) -> Iterator[tuple[bytes, EntryColumns]]:
        """Yield the entries with keys in [start, end) as columns, each with the first key of its
        span.

        Seqs are unrelated between ranges, and between the keys of two ranges that were merged. The
        first keys cut [start, end) into spans, and the entries of a span come in the order of seq.
        In a log with Kafka partitions, all these keys are as the ranges store them.
        A later first key may cut a span whose entries came before. Raises the errors of `read`.
        """
        return self._loop.iterate(lambda: self._twin.read_in_order(start, end, timeout=timeout))

    def read_columns(
        self,
        key: bytes | str | None = None,
        prefix: bytes | str | None = None,
        *,
        pattern: Pattern | None = None,
        timeout: float | None = None,
    ) -> Iterator[EntryColumns]:
        """Yield the entries that `read` yields, in the same order, as columns.

        A batch has at most 20,000 entries, usually some thousands. While the caller works on a
        batch, the next page is fetched. Raises the errors of `read`.
        """
        return self._loop.iterate(
            lambda: self._twin.read_columns(key, prefix, pattern=pattern, timeout=timeout),
            portion_max=1,
        )

    def read_arrow(
        self,
        key: bytes | str | None = None,
        prefix: bytes | str | None = None,
        *,
        pattern: Pattern | None = None,
        timeout: float | None = None,
    ) -> Iterator[ArrowBatch]:
        """Yield the batches of `read_columns` as `pyarrow.RecordBatch`; see
        `EntryColumns.to_arrow`.

        Raises the errors of `read`, and Unsupported where pyarrow is not installed.
        """
        return self._loop.iterate(
            lambda: self._twin.read_arrow(key, prefix, pattern=pattern, timeout=timeout),
            portion_max=1,
        )

    def renew(self, lease_s: float = lease_s_default, *, timeout: float | None = None) -> None:
        """Extend the lease to end in `lease_s` seconds at the earliest, at most 7 days.

        Raises NotFound when the lease has ended.
        """
        self._loop.call(self._twin.renew(lease_s, timeout=timeout))

    def release(self, *, timeout: float | None = None) -> None:
        """End the lease, so that the entries that only this lease holds can be removed; reads then
        raise NotFound.

        A failed call may be made again.
        """
        self._loop.call(self._twin.release(timeout=timeout))
