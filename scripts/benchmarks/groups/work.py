"""What consumers do with items: they check each item, and note when they began and acknowledged
the item. A process of consumers has one `Work`, and writes it to a file for the verdict."""

import mmap
import struct
import time
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from .plan import POISON, Plan

Item = tuple[int, int, float, float]
"""The number of the key, the item's place among those of its key, when it was due, when a consumer
got it."""
_COLUMNS: Final = (("key", "I"), ("nth", "I"), ("consumer", "I"),
                   ("due", "d"), ("begun", "d"), ("called", "d"), ("ended", "d"))  # fmt: skip
_COUNT: Final = struct.Struct("=Q")


class Done(NamedTuple):
    """An acknowledged item: when the acknowledgement was sent, and when it had an answer."""

    key: int
    nth: int
    consumer: int
    due: float
    begun: float
    called: float
    ended: float


class Work:
    """The items of the consumers of one process."""

    def __init__(self, plan: Plan, process: int) -> None:
        self.begun = 0
        self.acknowledged = 0
        self.refused = 0
        """Acknowledgements that the system refused, or that failed."""
        self.failed = 0
        """Deliveries of the poison key."""
        self._stamps = plan.stamps
        self._near = plan.stamps.fills // 2 - 1
        self._fails = plan.fails
        self._columns = {name: array(kind) for name, kind in _COLUMNS}
        self._tally = Tally(plan.tally, process)

    def begin(self, key: bytes, value: bytes | None) -> Item:
        """Check an item. Raises CorruptData unless somebody appended it to the key."""
        begun = time.perf_counter()
        nth = self._stamps.nth(key, value, self._near)
        due = self._stamps.due(key, nth, value)
        self.begun += 1
        return self._stamps.number(key), nth, due, begun

    def fails(self, item: Item) -> bool:
        """Return whether a consumer has to fail at the item, and count the failure."""
        if not self._fails or item[0] != POISON:
            return False
        self.failed += 1
        return True

    def end(self, consumer: int, items: Sequence[Item], called: float) -> None:
        """Note that these items are acknowledged now, by a request that was sent at `called`."""
        count = len(items)
        if not count:
            return
        columns, now = self._columns, time.perf_counter()
        for name, values in zip(("key", "nth", "due", "begun"), zip(*items, strict=True),
                                strict=True):  # fmt: skip
            columns[name].extend(values)
        for name, one in (("consumer", consumer), ("called", called), ("ended", now)):
            columns[name].extend([one] * count)
        self.acknowledged += count
        self._tally.put(self.acknowledged)

    def refuse(self, count: int) -> None:
        """Note that this many acknowledgements were refused."""
        self.refused += count

    def write(self, path: Path) -> None:
        """Write all acknowledged items."""
        with path.open("wb") as file:
            file.write(_COUNT.pack(self.acknowledged))
            for name, _ in _COLUMNS:
                self._columns[name].tofile(file)

    def report(self) -> dict[str, Any]:
        """Return the counts."""
        return {"begun": self.begun, "acknowledged": self.acknowledged,
                "refused": self.refused, "failed": self.failed}  # fmt: skip


def read(path: Path) -> Iterator[Done]:
    """Yield what `Work.write` has written."""
    with path.open("rb") as file:
        (count,) = _COUNT.unpack(file.read(_COUNT.size))
        columns = [array(kind) for _, kind in _COLUMNS]
        for column in columns:
            column.fromfile(file, count)
    return map(Done._make, zip(*columns, strict=True))


class Tally:
    """A count of one process that others see at once, in a shared file."""

    def __init__(self, path: Path, process: int) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._at = process * _COUNT.size

    @staticmethod
    def create(path: Path, processes: int) -> None:
        """Make the file for this many processes."""
        path.write_bytes(bytes(processes * _COUNT.size))

    def put(self, count: int) -> None:
        """Set the count of this process."""
        _COUNT.pack_into(self._map, self._at, count)

    def sum(self) -> int:
        """Return the sum of the counts of all processes."""
        return sum(count for (count,) in _COUNT.iter_unpack(self._map[:]))
