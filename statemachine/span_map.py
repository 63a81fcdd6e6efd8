"""A value per key that is the same over spans of keys: floors and marks of lineage spans."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, pairwise
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Steps(Generic[Value]):
    """An immutable map: from each of `starts` up to the next, every key has one value.

    The first start is the empty key. Neighbours differ, so the same map always has the same rows,
    in whatever order it was put together.
    """

    __slots__ = ("starts", "values")

    def __init__(self, starts: Sequence[bytes], values: Sequence[Value]) -> None:
        self.starts = starts
        self.values = values

    @classmethod
    def of(
        cls, spans: Iterable[tuple[bytes, bytes | None, Value]], outside: Value
    ) -> "Steps[Value]":
        """Return the steps of disjoint spans in order, with their values.

        All other keys have `outside`.
        """
        rows = {b"": outside}
        for start, end, value in spans:
            rows[start] = value
            if end is not None:
                rows[end] = outside
        values = list(rows.values())
        differs = [True, *(value != other for value, other in pairwise(values))]
        return cls(list(compress(rows, differs)), list(compress(values, differs)))

    def at(self, key: bytes) -> Value:
        """Return the key's value."""
        if len(self.values) == 1:
            return self.values[0]
        return self.values[bisect_right(self.starts, key) - 1]

    def over(self, first: bytes, last: bytes, end: bytes | None = None) -> Sequence[Value]:
        """Return the values of the keys from `first` to `last`, both included.

        Keys from `end` on do not count; `end` is above `first`.
        """
        begin = bisect_right(self.starts, first) - 1
        if end is not None and end <= last:
            return self.values[begin : bisect_left(self.starts, end)]
        return self.values[begin : bisect_right(self.starts, last)]

    def clipped(self, start: bytes, end: bytes | None, outside: Value) -> "Steps[Value]":
        """Return the same map within [start, end), and `outside` everywhere else."""
        if not start and end is None:
            return self
        return Steps.of(self.within(start, end), outside)

    def raised(
        self, start: bytes, end: bytes | None, to: Value, join: Callable[[Value, Value], Value]
    ) -> "Steps[Value]":
        """Return the same map, except that keys in [start, end) have `join(value, to)`."""
        begin = bisect_left(self.starts, start)
        until = len(self.starts) if end is None else bisect_left(self.starts, end)
        starts, values = list(self.starts[begin:until]), list(self.values[begin:until])
        if not starts or starts[0] != start:
            starts.insert(0, start)
            values.insert(0, self.at(start))
        values = [join(value, to) for value in values]
        if end is not None and (until == len(self.starts) or self.starts[until] != end):
            starts.append(end)
            values.append(self.at(end))
        elif until < len(self.starts):
            starts.append(self.starts[until])
            values.append(self.values[until])
            until += 1
        before = self.values[begin - 1] if begin else None
        differs = [value != other for value, other in zip(values, [before, *values], strict=False)]
        differs[0] |= not begin
        return Steps(
            [*self.starts[:begin], *compress(starts, differs), *self.starts[until:]],
            [*self.values[:begin], *compress(values, differs), *self.values[until:]],
        )

    def within(
        self, start: bytes, end: bytes | None
    ) -> Iterator[tuple[bytes, bytes | None, Value]]:
        """Yield the spans of one value within [start, end), and their values, in order."""
        first = bisect_right(self.starts, start) - 1
        last = len(self.starts) if end is None else bisect_left(self.starts, end)
        for at in range(first, last):
            following = self.starts[at + 1] if at + 1 < len(self.starts) else None
            until = end if following is None or (end is not None and end < following) else following
            yield max(start, self.starts[at]), until, self.values[at]

    def to_wire(self) -> list[Any]:
        """Return the steps as tables store them."""
        return [list(self.starts), list(self.values)]
