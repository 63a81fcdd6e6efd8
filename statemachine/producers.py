"""Idempotence: a range's memory of the producers that wrote to it.

The rules are those of docs/design/ranges.md#producers.

A producer numbers its records 1, 2, 3... over all ranges. A range keeps the numbers that it applied
at or above `low`, the producer's smallest unsettled number: smaller numbers can never be sent
again. Numbers run over all ranges, so the applied numbers are a set, not an interval.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..client.protocol import limits
from ..client.protocol.errors import Fenced, LimitExceeded, LognodeError, OutOfOrder, Overloaded
from ..client.protocol.levels import LEVEL_MIN
from ..client.protocol.records import Batch
from . import rules
from .number_runs import NumberRuns, done, united_runs
from .producer_capture import Capture
from .producer_row import ROW_FIELDS, SETTLED_KEPT, Row, rest_of, with_rest
from .spans import Span

_SHARES: Final = 64
_FEW: Final = 2 * SETTLED_KEPT
"""The numbers that every producer may have remembered, however full the table is."""
_SECRET: Final = hash("where record numbers lie in a set") & ((1 << 59) - 1)
"""An offset that is added to a number before it is put into a set. Python hashes an integer to
itself, so a client could choose numbers that share places of the set's table, and the members would
search for seconds. The hash of a text is secret in each process. Consecutive numbers still lie side
by side."""


class Table(NamedTuple):
    """The table of a range with that span: rows as meta stores them."""

    span: Span
    rows: Mapping[int, list[Any]]


def united_rows(left: Table, right: Table) -> Table:
    """Return the tables of two merging neighbours as one.

    If both know a producer under one epoch, a number applied in either counts as applied, and a
    number settled in one counts as settled. Otherwise the row of the higher epoch stays (x9), and
    the other range's knowledge stays valid for its own keys: an opening raises the epoch range by
    range, and may have reached only one of the two.
    """
    rows = dict(left.rows)
    for producer, row in right.rows.items():
        known = rows.get(producer)
        if known is None or known == row:
            rows[producer] = row
        else:
            rows[producer] = _united((left.span, known), (right.span, row))
    return Table((left.span[0], right.span[1]), rows)


def _united(one: tuple[Span, list[Any]], other: tuple[Span, list[Any]]) -> list[Any]:
    (old_span, old), (_, new) = sorted((one, other), key=lambda each: each[1][0])
    epoch, low, highest, runs, last_ms, token = new[:ROW_FIELDS]
    elders = [*rest_of(one[1])[0], *rest_of(other[1])[0]]
    weighed = rest_of(new)[1]
    if old[0] == epoch:
        low, token, runs = max(low, old[1]), max(token, old[5]), united_runs(runs, old[3])
        weighed = _united_weight(new, old)
    else:
        elders.append([*old_span, *old[1:4]])
    different = [elder for at, elder in enumerate(elders) if elder not in elders[:at]]
    row = [epoch, low, max(highest, old[2]), runs, max(last_ms, old[4]), token]
    return with_rest(row, different, weighed)


def _united_weight(one: list[Any], other: list[Any]) -> int | None:
    """Return what the numbers of two rows count together, at most; None: each number counts."""
    weights = [rest_of(row)[1] for row in (one, other)]
    if weights == [None, None]:
        return None
    counts = [NumberRuns.from_wire(row[3]).count for row in (one, other)]
    return sum(
        count if weight is None else weight for weight, count in zip(weights, counts, strict=True)
    )


class Producers:
    """The table of one range. Every decision depends on the table and the batch alone."""

    def __init__(self) -> None:
        self.rules = rules.of_level(LEVEL_MIN)
        """The limits of the range's feature level."""
        self.rows: dict[int, Row] = {}
        self.remembered = 0
        """What the numbers of all rows count."""
        self._captures: list[Capture] = []

    def check(self, batch: Batch) -> "list[int] | LognodeError | None":
        """Find the new records of the batch.

        Returns None if all are new and in order (the fast path), or the positions of the new
        records if the others are duplicates. Returns an error if nothing of the batch may be
        applied.
        """
        fresh = self._fresh(batch)
        if self.remembered > self.rules.remembered_numbers_max and (fresh is None or fresh):
            return self._hoarded(batch) or fresh
        return fresh

    def _hoarded(self, batch: Batch) -> LognodeError | None:
        """Return the refusal of a producer with too large a part of the range's memory, if it has.

        The allowed part shrinks as the memory fills (the dynamic thresholds of Choudhury and Hahne,
        1998).
        """
        row = self.rows.get(batch.producer)
        own = 0 if row is None else self._own_weight(row, batch.low)
        left = 2 * self.rules.remembered_numbers_max - self.remembered
        if own <= max(_FEW, left // _SHARES):
            return None
        return Overloaded(
            f"the range remembers {self.remembered} record numbers that producers have not "
            f"settled, {own} by producer {batch.producer}; wait for the acknowledgements "
            "of that producer's records",
            retry_after=1.0,
        )

    def _own_weight(self, row: Row, low: int) -> int:
        """Return what a row counts; below level 5 with the numbers that its batch settles."""
        return row.weight if self.rules.batch_weight_max is None else row.weight_above(low)

    def _fresh(self, batch: Batch) -> "list[int] | LognodeError | None":
        row = self.rows.get(batch.producer)
        if row is None:
            found = self._full() or self._check_order(Row(), batch)
            if isinstance(found, OutOfOrder):
                found.fields["producer_known"] = False
            return found
        if batch.epoch < row.epoch:
            return Fenced(
                f"another client has opened producer {batch.producer} later; open the producer "
                "again to append",
                epoch=row.epoch,
            )
        return self._check_order(row, batch)

    def _full(self) -> LognodeError | None:
        """Return the refusal of one more producer if the table is full; no live row is evicted."""
        if len(self.rows) < self.rules.producers_max:
            return None
        return Overloaded(
            f"the range has {self.rules.producers_max} producers, the limit; close "
            "producers that are not in use",
            retry_after=1.0,
        )

    def _check_order(self, row: Row, batch: Batch) -> "list[int] | LognodeError | None":
        numbers, low = batch.numbers, max(row.low, batch.low)
        if numbers[-1] >= low + limits.producer_window_max:
            return LimitExceeded(
                f"record number {numbers[-1]} is {limits.producer_window_max} or more above "
                f"the oldest unsettled number, {low}: wait for acknowledgements",
                limit="producer_window_max", value=numbers[-1] - low,
                allowed=limits.producer_window_max,
            )  # fmt: skip
        prevs = batch.prevs
        if numbers[0] > row.highest and numbers[0] >= low:
            # All new, as nearly always: few records follow an unsettled record of their key, and
            # the others have 0 as their prev.
            followed = list(filter(None, prevs or ()))
            end = low + limits.producer_window_max
            wanted = {prev + _SECRET for prev in followed if low <= prev < end}
            seqs = (row.seq_of(key - _SECRET) for key in wanted)
            if max(followed, default=0) < end and None not in seqs:
                return None
        if prevs is None and not row.elders:
            news = zip(numbers, row.seqs_of(numbers), strict=True)
            places = [at for at, (number, seq) in enumerate(news) if seq is None and number >= low]
            return None if len(places) == len(numbers) else places
        fresh: list[int] = []
        earlier: set[int] = set()
        keys = batch.keys
        for position, number in enumerate(numbers):
            prev = prevs[position] if prevs is not None else 0
            found = prev < low or prev + _SECRET in earlier
            if not found and not row.knows(prev, keys[position]):
                return OutOfOrder(
                    f"record {prev} of the same key has not arrived at this range", number=prev
                )
            if number >= low:
                earlier.add(number + _SECRET)
            if number >= low and not row.knows(number, keys[position]):
                fresh.append(position)
        return None if len(fresh) == len(numbers) else fresh

    def duplicate_seqs(self, batch: Batch) -> list[int | None]:
        """Return the seq of each record, or None if it is no longer known."""
        row = self.rows.get(batch.producer)
        if row is None:
            return [None] * batch.count
        return row.seqs_of(batch.numbers)

    def record(
        self, batch: Batch, numbers: Sequence[int], first_seq: int, timestamp_ms: int
    ) -> None:
        """Note that the records with these numbers were applied, at seqs from `first_seq` on."""
        row = self.rows.get(batch.producer)
        if row is None:
            row = self.rows[batch.producer] = Row()
        self._about_to_change(batch.producer)
        row.epoch = batch.epoch  # not below the row's epoch, which `check` ensures
        before, most = row.weight, self.rules.batch_weight_max
        if most is not None:
            row.weigh()
        row.settle(batch.low)
        row.last_ms = timestamp_ms
        if numbers:
            row.add(numbers, first_seq, most)
        self.remembered += row.weight - before

    def fence(
        self, producer: int, epoch: int, token: int, timestamp_ms: int
    ) -> LognodeError | None:
        """Open a named producer: its older epochs are refused from now on.

        The row's numbers stay: a resumed import goes on in the same numbering (x10). Returns an
        error if the table is full.
        """
        full = None if producer in self.rows else self._full()
        if full is not None:
            return full
        self._about_to_change(producer)
        row = self.rows.setdefault(producer, Row())
        row.epoch = max(row.epoch, epoch)
        row.fence_token = token
        row.last_ms = timestamp_ms
        return None

    def retire(self, producers: Sequence[int]) -> None:
        """Drop the rows of producers that closed or were unused for 24 h (a replicated command)."""
        for producer in producers:
            row = self.rows.pop(producer, None)
            self.remembered -= 0 if row is None else row.weight

    def capture(self) -> Capture:
        """Capture the present table (x16), to be made into rows in steps."""
        self._captures = [capture for capture in self._captures if not capture.is_done]
        self._captures.append(Capture(self.rows))
        return self._captures[-1]

    def _about_to_change(self, producer: int) -> None:
        for capture in self._captures:
            capture.keep(producer)

    def told(self, producer: int) -> tuple[int, ...]:
        """Return the part of a producer's row that the hash of effects covers.

        The replies cover its numbers when they are applied.
        """
        row = self.rows.get(producer)
        return () if row is None else (row.epoch, row.low, row.highest, row.fence_token, row.count)

    def to_wire(self) -> dict[int, list[Any]]:
        """Return a copy of the present table, as meta stores it."""
        capture = Capture(self.rows)
        capture.finish()
        return capture.rows

    @classmethod
    def from_wire(cls, body: dict[int, list[Any]]) -> "Producers":
        """Undo `to_wire`."""
        return done(cls.from_wire_steps(body))

    @classmethod
    def from_wire_steps(
        cls, body: Mapping[int, Sequence[Any]]
    ) -> "Generator[None, None, Producers]":
        """Do the same in steps: 100,000 rows take half a second.

        The body must not change meanwhile.
        """
        table = cls()
        for producer, told in body.items():
            row = table.rows[producer] = Row.from_wire(told)
            table.remembered += row.weight
            yield
        return table
