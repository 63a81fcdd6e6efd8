"""Appends that wait to be proposed, of many principals, in fair order.

Batches of one principal keep their order. Principals take turns by deficit round robin (Shreedhar
and Varghese 1995): each gets `_QUANTUM_BYTES` in turn. A batch waits for as many bytes of each
other principal as it has itself, however much that principal has appended. No I/O, no clock.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ...client.protocol import limits
from ...client.protocol.records import Batch

_QUANTUM_BYTES: Final = 64 * limits.KIB
_BATCH_RECORDS: Final = 32
"""The fixed cost of a batch, in records. Decoding and applying a batch takes 16 us on each member,
and each record adds 0.5 us."""
_ALONE_BYTES: Final = 64 * limits.MIB
"""After so many consecutive bytes of one principal, the principal counts as alone."""


class Waiting(NamedTuple):
    """A waiting batch: its bytes, its records, the future of its caller, and the decoded batch.

    The decoded batch is None in a long queue, whose memory is counted in bytes of batches.
    """

    data: bytes
    records: int
    future: Any
    batch: Batch | None = None


class _Line:
    """The waiting batches of one principal."""

    __slots__ = ("batches", "deficit", "size")

    def __init__(self) -> None:
        self.batches: deque[Waiting] = deque()
        self.size = 0
        self.deficit = 0
        """Bytes that the principal may still send in this turn."""


class Gathered:
    """The waiting batches of all principals; see the module."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all batches."""
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._last: str | None = None
        """The principal of the newest batch."""
        self._alone_bytes = _ALONE_BYTES
        """Consecutive bytes of the same principal, up to now."""

    @property
    def is_shared(self) -> bool:
        """Whether several principals have appended lately."""
        return self._alone_bytes < _ALONE_BYTES

    def __bool__(self) -> bool:
        return bool(self._lines)

    def size_of(self, principal: str) -> int:
        """Return the bytes of the principal's batches."""
        line = self._lines.get(principal)
        return 0 if line is None else line.size

    def add(self, principal: str, waiting: Waiting) -> None:
        """Add a batch of the principal."""
        line = self._lines.get(principal)
        if line is None:
            line = self._lines[principal] = _Line()
        if principal != self._last:
            self._alone_bytes = _ALONE_BYTES if self._last is None else 0
            self._last = principal
        self._alone_bytes += len(waiting.data)
        line.batches.append(waiting)
        line.size += len(waiting.data)
        self.size += len(waiting.data)

    def take(self, bytes_max: int, records_max: int) -> list[Waiting]:
        """Take the batches of the next entry: at least one, and no more than fit.

        Each batch counts as `_BATCH_RECORDS` besides its records. An entry is applied in one step,
        and 10,000 batches of one record took 150 ms of each member's event loop.
        """
        return self._take(self._lines, bytes_max, records_max)

    def principals(self) -> list[str]:
        """Return the principals whose batches wait, in the order of their turns."""
        return list(self._lines)

    def take_of(self, principals: Iterable[str], bytes_max: int, records_max: int) -> list[Waiting]:
        """Take batches as `take` does, but only of these principals.

        Batches that do not fit keep their order within the principal. The principal has its next
        turn after the others.
        """
        lines = OrderedDict(
            (principal, self._lines.pop(principal))
            for principal in principals
            if principal in self._lines
        )
        found = self._take(lines, bytes_max, records_max)
        self._lines.update(lines)
        return found

    def _take(
        self, lines: OrderedDict[str, _Line], bytes_max: int, records_max: int
    ) -> list[Waiting]:
        found: list[Waiting] = []
        size = records = 0
        while lines:
            principal, line = next(iter(lines.items()))
            if line.deficit <= 0:
                line.deficit += _QUANTUM_BYTES
            while line.batches and line.deficit > 0:
                first = line.batches[0]
                cost = _BATCH_RECORDS + first.records
                if found and (size + len(first.data) > bytes_max or records + cost > records_max):
                    return found
                line.batches.popleft()
                line.deficit -= len(first.data)
                line.size -= len(first.data)
                self.size -= len(first.data)
                size += len(first.data)
                records += cost
                found.append(first)
            if line.batches:
                lines.move_to_end(principal)
            else:
                del lines[principal]
        return found

    def clear(self) -> list[Waiting]:
        """Remove and return all batches: they are not to be proposed."""
        found = [waiting for line in self._lines.values() for waiting in line.batches]
        self._lines.clear()
        self.size = 0
        return found
