"""Appends that wait to be proposed, of many principals, in fair order.

Batches of one principal keep their order. Between principals it is deficit round robin (Shreedhar
and Varghese 1995): each gets `_QUANTUM_BYTES` in turn, so that a batch waits for as much of each
other principal's as it has bytes itself, whatever they have brought. No I/O, no clock.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ...client.protocol import limits

_QUANTUM_BYTES: Final = 64 * limits.KIB
_BATCH_RECORDS: Final = 32
"""What a batch costs besides its records, in records: 16 us to decode and apply a batch on each
member, and 0.5 us a record more."""
_ALONE_BYTES: Final = 64 * limits.MIB
"""Who has brought so much in a row, and nobody anything between, is alone."""


class Waiting(NamedTuple):
    """A batch as it came, its records, and who waits for it."""

    data: bytes
    records: int
    future: Any


class _Line:
    """The batches of one principal."""

    __slots__ = ("batches", "deficit", "size")

    def __init__(self) -> None:
        self.batches: deque[Waiting] = deque()
        self.size = 0
        self.deficit = 0
        """Bytes that it may have before the next."""


class Gathered:
    """See the module."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all batches."""
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._last: str | None = None
        """Who has brought the newest batch."""
        self._alone_bytes = _ALONE_BYTES
        """Brought by the same principal since another has brought anything."""

    @property
    def is_shared(self) -> bool:
        """Whether several principals have brought batches lately."""
        return self._alone_bytes < _ALONE_BYTES

    def __bool__(self) -> bool:
        return bool(self._lines)

    def size_of(self, principal: str) -> int:
        """Bytes of the principal's batches."""
        line = self._lines.get(principal)
        return 0 if line is None else line.size

    def add(self, principal: str, waiting: Waiting) -> None:
        """A batch comes."""
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
        """The batches of the next entry: one at least, and no more than fit.

        Each batch counts as `_BATCH_RECORDS` besides its records: an entry is applied in one step,
        and 10,000 batches of one record took 150 ms of each member's event loop.
        """
        return self._take(self._lines, bytes_max, records_max)

    def principals(self) -> list[str]:
        """Whose batches wait, in the order of their turns."""
        return list(self._lines)

    def take_of(self, principals: Iterable[str], bytes_max: int, records_max: int) -> list[Waiting]:
        """As `take`, of the batches of these principals alone. What does not fit keeps its order
        within its principal; the principal has its next turn after the others."""
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
        """Take all of them: they are not to be proposed."""
        found = [waiting for line in self._lines.values() for waiting in line.batches]
        self._lines.clear()
        self.size = 0
        return found
