# Generated from client/snapshot.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/snapshot.py`."""

from collections.abc import Iterator

from ..loop_thread import LoopThread
from ..protocol.types import Entry
from ..snapshot import AsyncSnapshot, Body, lease_s_default
from ..vector import Vector


class Snapshot:
    """A committed prefix of a log; made by `Log.snapshot` and `open_snapshot`.

    What it shows never changes, whatever is appended, removed, split, merged or moved, until its
    lease ends. Every method takes `timeout`, seconds, the log's by default; reading has it per
    page. All raise LogNotFound, Unavailable, Timeout.
    """

    def __init__(self, loop: LoopThread, twin: AsyncSnapshot) -> None:
        self._loop = loop
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncSnapshot", "Snapshot")

    @property
    def vector(self) -> Vector:
        """Up to which seq it goes, span by span, and the lease."""
        return self._twin.vector

    def to_json(self) -> str:
        """Its vector as one line of JSON, for `from_json` and `Log.open_snapshot`."""
        return self._loop.run(lambda: self._twin.to_json())

    @staticmethod
    def from_json(text: str) -> Vector:
        """The vector that `to_json` wrote. Raises InvalidArgument."""
        return AsyncSnapshot.from_json(text)

    def read(
        self,
        key: bytes | str | None = None,
        prefix: bytes | str | None = None,
        *,
        timeout: float | None = None,
    ) -> Iterator[Entry]:
        """The entries of one key, of the keys with a prefix, or all; of a key in the order of seq.

        Raises NotFound once the lease has ended: what it held may be gone by then.
        """
        return self._loop.iterate(lambda: self._twin.read(key, prefix, timeout=timeout))

    def pages(
        self, start: bytes = b"", end: bytes | None = None, *, timeout: float | None = None
    ) -> Iterator[Body]:
        """The entries with keys in [start, end) as they travel, for those who want columns: `keys`,
        `seqs`, `timestamps` and `values` of each page, `headers` by position or None, and in
        `snapshots` the positions of logical snapshots. A key's entries come in the order of seq.

        Raises NotFound as `read`.
        """
        return self._loop.iterate(lambda: self._twin.pages(start, end, timeout=timeout))

    def renew(self, lease_s: float = lease_s_default, *, timeout: float | None = None) -> None:
        """Have the lease end no sooner than in `lease_s` seconds, at most 7 days.

        Raises NotFound when it has ended.
        """
        self._loop.call(self._twin.renew(lease_s, timeout=timeout))

    def release(self, *, timeout: float | None = None) -> None:
        """End the lease, so that what only it holds can go; reading raises NotFound from then on.

        A call that failed may be made again.
        """
        self._loop.call(self._twin.release(timeout=timeout))
