"""Records in flight: the columns of a batch, the tickets for its records, their outcomes.

All costly work is done per batch: routing, encoding, sending, retrying, settling. A record costs
only its place in a few lists.
"""

import asyncio
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, count, repeat
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from . import tracing
from .protocol import limits
from .protocol.errors import (
    InvalidArgument,
    LimitExceeded,
    LognodeError,
    Outcome,
    PartialFailure,
    RemoteProtocolError,
    SequenceMismatch,
    common_outcome,
)
from .protocol.native import packing
from .protocol.records import EXPECT_ABSENT, EXPECT_ANY, check_key, check_record, encode_batch
from .protocol.types import ABSENT, ANY, Ack, Expect, GivenHeaders, Headers
from .retry import Attempts
from .timer import Timer

if TYPE_CHECKING:
    from .append_acks import AppendAcks

C = TypeVar("C")


class AppendBatch:
    """Numbered records of one range, until they are settled: acknowledged or given up.

    A batch whose range was split moves its records to `parts`, with the same numbers.
    """

    __slots__ = (
        "after",
        "atomic",
        "attempts",
        "bytes",
        "chosen",
        "data",
        "done",
        "duplicates",
        "error",
        "expects",
        "first_key",
        "headers",
        "hidden",
        "keys",
        "last_key",
        "numbers",
        "parts",
        "prevs",
        "refused",
        "reply",
        "settles",
        "snapshots",
        "timer",
        "trace",
        "values",
        "waiters",
    )

    def __init__(self, attempts: Attempts, done: "asyncio.Future[None]") -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.chosen: list[int] = []
        """The numbers of records that came with numbers; then all records of the batch do."""
        self.numbers: Sequence[int] = self.chosen
        """Ascending. Empty until the batch closes, if the records came without numbers."""
        self.headers: list[Headers | None] | None = None
        self.expects: list[int] | None = None
        self.snapshots: list[int] | None = None
        self.hidden = 0
        """Bytes in front of each key that users do not see (`stored_keys`)."""
        self.atomic = False
        self.settles: AppendAcks | None = None
        """What the append of the batch acknowledges. Such a batch is atomic, and travels alone."""
        self.bytes = 0
        self.prevs: list[int] | None = None
        self.first_key = b""
        self.last_key = b""
        self.data: bytes | None = None
        """The packed batch, once it was sent."""
        self.attempts = attempts
        self.done = done
        """A future with the result None; `reply` or `error` holds the outcome of the records."""
        self.after: AppendBatch | None = None
        """The batch of a predecessor, which must be settled before this batch is sent."""
        self.reply: Mapping[Any, Any] | None = None
        self.duplicates: frozenset[int] = frozenset()
        """Positions of records that an earlier attempt had appended."""
        self.refused: dict[int, int] = {}
        """Positions of records whose conditions did not hold, and the last seqs of their keys."""
        self.error: LognodeError | None = None
        self.parts: list[tuple[AppendBatch, list[int]]] | None = None
        self.waiters: list[tuple[float, asyncio.Future[None]]] = []
        """Waiting callers: the time until which each waits, and its future."""
        self.timer: Timer | None = None
        self.trace = tracing.current() if tracing.API in sys.modules else None
        """The span of the caller that has begun the batch."""

    def __len__(self) -> int:
        return len(self.keys)

    def pack(self, producer: int, epoch: int, low: int) -> bytes:
        """Return the bytes to send. `low`: the smallest unsettled number."""
        numbers = self.numbers
        consecutive = numbers[-1] - numbers[0] == len(numbers) - 1
        prevs = self.prevs
        if prevs is not None and max(prevs) < low:
            prevs = None
        return encode_batch(
            self.keys,
            self.values,
            producer=producer,
            epoch=epoch,
            low=low,
            numbers=numbers[0] if consecutive else numbers,
            prevs=prevs,
            headers=self.headers,
            expects=self.expects,
            snapshots=self.snapshots,
            atomic=self.atomic,
            each=self.expects is not None and not self.atomic,
        )

    def close(self) -> None:
        """Close the batch: no more records are added."""
        keys = self.keys if self.settles is None else [*self.keys, *self.settles.keys]
        found = None if packing is None else packing.extremes(keys)
        self.first_key, self.last_key = found or (min(keys), max(keys))

    def add(self, number: int | None, key: bytes, value: bytes | None, headers: Headers | None,
            expect: int, *, snapshot: bool) -> int:  # fmt: skip
        """Append a record to the batch; return its position. `number` None: the record gets its
        number when the batch closes."""
        position = len(self.keys)
        self.keys.append(key)
        self.values.append(value)
        if number is not None:
            self.chosen.append(number)
        if headers or self.headers is not None:
            if self.headers is None:
                self.headers = [None] * position
            self.headers.append(headers or None)
        if expect != EXPECT_ANY or self.expects is not None:
            if self.expects is None:
                self.expects = [EXPECT_ANY] * position
            self.expects.append(expect)
        if snapshot:
            if self.snapshots is None:
                self.snapshots = []
            self.snapshots.append(position)
        return position

    def has_condition(self, position: int) -> bool:
        """Return whether the record at the position has a condition other than ANY."""
        expects = self.expects
        return (
            expects is not None and 0 <= position < len(expects) and expects[position] != EXPECT_ANY
        )

    def holds(self, number: int) -> bool:
        """Return whether a record of this batch has the number."""
        position = bisect_left(self.numbers, number)
        return position < len(self.numbers) and self.numbers[position] == number

    def part(self, positions: Sequence[int], attempts: Attempts) -> "AppendBatch":
        """Return a new batch with the records at the positions, in order, with their numbers."""
        new = AppendBatch(attempts, asyncio.get_running_loop().create_future())
        new.keys = [self.keys[i] for i in positions]
        new.values = [self.values[i] for i in positions]
        new.numbers = [self.numbers[i] for i in positions]
        if self.prevs is not None:
            new.prevs = [self.prevs[i] for i in positions]
        if self.headers is not None:
            new.headers = [self.headers[i] for i in positions]
        if self.expects is not None:
            new.expects = [self.expects[i] for i in positions]
        if self.snapshots is not None:
            marked = frozenset(self.snapshots)
            new.snapshots = [at for at, i in enumerate(positions) if i in marked]
        new.hidden = self.hidden
        new.close()
        return new

    async def wait(self, until: float) -> bool:
        """Wait until the batch is `done`, at most until the loop time `until`; return whether it
        is.

        All callers share one timer, and are woken without another turn of the loop. With callbacks
        of `asyncio.wait` for each caller, the wait doubled the cost of an append of one record.
        """
        if not self.done.done():
            await self.waiter(until)
        return self.done.done()

    def waiter(self, until: float) -> "asyncio.Future[None]":
        """Return a future that is done when the batch is, at the latest at the loop time `until`.
        The batch is not `done` yet."""
        waiter: asyncio.Future[None] = self.done.get_loop().create_future()
        self.waiters.append((until, waiter))
        if self.timer is None or until < self.timer.when:
            self._look_at(until)
        return waiter

    def _look_at(self, when: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = Timer.at(self.done.get_loop(), when, self._look)

    def _look(self) -> None:
        """Wake the callers whose time is over."""
        self.timer = None
        now = self.done.get_loop().time()
        left: list[tuple[float, asyncio.Future[None]]] = []
        for until, waiter in self.waiters:
            if waiter.done() or until <= now:
                _wake(waiter)
            else:
                left.append((until, waiter))
        self.waiters[:] = left
        if left:
            self._look_at(min(until for until, _ in left))

    def wake(self) -> None:
        """Wake all callers: the batch is `done`."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for _, waiter in self.waiters:
            _wake(waiter)

    def settled(self, reply: Mapping[Any, Any]) -> None:
        """Take the checked answer, which has an Ack or a refused condition for each record."""
        self.reply = reply
        self.duplicates = frozenset(reply.get("duplicates") or ())
        if reply.get("refused"):
            self.refused = dict(zip(reply["refused"], reply["actual"], strict=True))

    def acks_of(self, at: int, count: int) -> list[Ack | LognodeError]:
        """Return the outcomes of `count` records from `at` on; call only when `done`."""
        if self.parts is not None:
            return self.acks()[at : at + count]
        if self.error is not None or self.reply is None:
            error = self.error or LognodeError(
                "the answer to an append has no result for a batch", outcome="unknown"
            )
            return [error] * count
        first_seq = self.reply.get("first_seq")
        if first_seq is not None:
            return _acks(first_seq + at, count, self.reply.get("timestamp_ms"))
        return [self._result(self.reply, position) for position in range(at, at + count)]

    def acks(self) -> list[Ack | LognodeError]:
        """Return the outcome of each record; call only when `done`."""
        if self.parts is None:
            return self.acks_of(0, len(self.keys))
        found: dict[int, Ack | LognodeError] = {}
        for part, positions in self.parts:
            found.update(zip(positions, part.acks(), strict=True))
        return [found[i] for i in range(len(self.keys))]

    def _result(self, reply: Mapping[Any, Any], position: int) -> Ack | LognodeError:
        if position in self.refused:
            return self.refusal(position)
        seq = reply["seqs"][position]
        if position in self.duplicates:
            return Ack(seq, None, duplicate=True)
        return Ack(seq, reply.get("timestamp_ms"))

    def refusal(self, position: int) -> LognodeError:
        """Return the error of a record whose condition did not hold."""
        actual, expected = self.refused[position], (self.expects or ())[position]
        error = SequenceMismatch(
            f"the key's last seq is {actual}, not {expected}",
            key=self.keys[position][self.hidden :], expected=expected, actual=actual,
        )  # fmt: skip
        return self.attempts.settle(error)

    def ack(self, position: int) -> Ack:
        """Return the Ack of one record, or raise its error; call only when `done`."""
        if self.parts is not None:
            for part, positions in self.parts:
                if position in positions:
                    return part.ack(positions.index(position))
        if self.error is not None:
            raise self.error
        if self.reply is None:
            raise LognodeError(
                "the answer to an append has no result for a batch", outcome="unknown"
            )
        first_seq = self.reply.get("first_seq")
        if first_seq is not None:
            return Ack(first_seq + position, self.reply.get("timestamp_ms"))
        found = self._result(self.reply, position)
        if isinstance(found, Ack):
            return found
        try:
            raise found
        finally:
            del found  # the error refers to this frame: break the cycle


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():  # its caller may have left
        waiter.set_result(None)


def _acks(first_seq: int, count: int, timestamp_ms: int | None) -> list[Ack | LognodeError]:
    """Return Acks of new records, built without a Python call for each."""
    seqs = range(first_seq, first_seq + count)
    fields = zip(seqs, repeat(timestamp_ms), repeat(False), repeat(None))
    return list(map(tuple.__new__, repeat(Ack), fields))


def check_reply(batch: AppendBatch, reply: Mapping[str, Any]) -> None:
    """Raise RemoteProtocolError unless the reply has an outcome for every record."""
    seqs, refused, actual = (reply.get(name) or () for name in ("seqs", "refused", "actual"))
    if reply.get("first_seq") is not None:
        fits = not refused and not reply.get("duplicates")
    else:
        fits = len(seqs) == len(batch) and len(refused) == len(actual)
    if not fits or not all(map(batch.has_condition, refused)):
        raise RemoteProtocolError("the answer to an append does not say the outcome of its records")


class AsyncTicket:
    """The promise of an acknowledgement; `result` returns the Ack, or raises the error."""

    __slots__ = ("_batch", "_position")

    def __init__(self, batch: AppendBatch, position: int) -> None:
        self._batch = batch
        self._position = position

    def __await__(self) -> Generator[Any, None, Ack]:
        if not self._batch.done.done():
            # Shielded: other callers wait for the same batch.
            yield from asyncio.shield(self._batch.done).__await__()
        return self._batch.ack(self._position)

    async def result(self) -> Ack:
        """Wait for the Ack, or raise the error of the record."""
        return await self

    @property
    def number(self) -> int:
        """The record's number in its producer's sequence."""
        return self._batch.numbers[self._position]

    @property
    def done(self) -> bool:
        """Whether awaiting the ticket returns or raises at once."""
        return self._batch.done.done()


def to_key(key: Any) -> bytes:
    """Return the key as bytes; a str is encoded as UTF-8. Raises InvalidArgument for anything
    else."""
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):
        return key
    raise InvalidArgument(f"key is {type(key).__name__}; give bytes or str", what="key")


def checked_key(key: Any) -> bytes:
    """Return the bytes of a key that an entry may have. Raises InvalidArgument, LimitExceeded."""
    found = to_key(key)
    check_key(found)
    return found


def check_value(value: Any) -> None:
    """Raise InvalidArgument for a value of another type."""
    if value is not None and type(value) is not bytes:
        raise InvalidArgument(
            f"value is {type(value).__name__}; give bytes, or None for a tombstone", what="value"
        )


def to_headers(headers: Any) -> Headers:
    """Return headers as bytes; text is encoded as UTF-8. Raises InvalidArgument."""
    try:
        if {*map(type, headers), *map(type, headers.values())} == {bytes}:
            return headers  # type: ignore[no-any-return]
        found = {_encoded(name): _encoded(value) for name, value in headers.items()}
    except (AttributeError, TypeError, UnicodeEncodeError):
        raise InvalidArgument(
            "headers is not a map of bytes or text to bytes or text; give bytes, or text that "
            "UTF-8 can encode",
            what="headers",
        ) from None
    if len(found) < len(headers):
        raise InvalidArgument(
            "headers has a name twice, as bytes and as text; give each name once", what="headers"
        )
    return found


def _encoded(text: bytes | str) -> bytes:
    if isinstance(text, str):
        return text.encode()
    if type(text) is not bytes:
        raise TypeError
    return text


def to_expect(expect: Expect) -> int:
    """Return the condition as the wire protocol carries it. Raises InvalidArgument."""
    if expect is ANY:
        return EXPECT_ANY
    if expect is ABSENT:
        return EXPECT_ABSENT
    if type(expect) is int and expect >= 1:
        return expect
    raise InvalidArgument(
        f"expect is {expect!r}; give ANY, ABSENT or the key's last seq (1 or more)", what="expect"
    )


def checked_record(
    key: Any, value: bytes | None, headers: GivenHeaders | None
) -> tuple[bytes, int, Headers | None]:
    """Return the key's bytes, the size of a record, and its headers as bytes. Raises
    InvalidArgument, LimitExceeded."""
    if type(key) is not bytes:
        key = to_key(key)
    if value is not None and type(value) is not bytes:
        check_value(value)
    size = len(key) + (0 if value is None else len(value))
    if headers or not 0 < len(key) <= limits.key_bytes_max or size > limits.value_bytes_max:
        found = to_headers(headers or {})
        check_record(key, value, found)
        return key, size + sum(map(len, found)) + sum(map(len, found.values())), found
    return key, size, None


class Columns:
    """Checked records as columns, built from tuples with at most a few C calls a column."""

    def __init__(
        self, records: Iterable[Sequence[Any]], expects: Sequence[Expect] | None = None
    ) -> None:
        rows = records if isinstance(records, (list, tuple)) else list(records)
        widths = set(map(len, rows))
        if not widths <= {2, 3}:
            raise InvalidArgument(
                "a record is (key, value) or (key, value, headers)", what="records"
            )
        self.each: int | None = None
        """The size of every record, when all records have one size."""
        self.keys: list[bytes] = list(map(itemgetter(0), rows))
        self.values: list[bytes | None] = list(map(itemgetter(1), rows))
        self.headers: list[Headers | None] | None = None
        if 3 in widths:
            self.headers = [row[2] if len(row) == 3 else None for row in rows]
        self.expects = None if expects is None else list(map(to_expect, expects))
        if self.expects is not None and len(self.expects) != len(rows):
            raise InvalidArgument(
                f"expects has {len(self.expects)} conditions for {len(rows)} records; give one "
                "condition for each record, ANY for none",
                what="expects",
            )
        self._check()

    @classmethod
    def of(cls, keys: list[bytes], values: list[bytes | None]) -> "Columns":
        """Return the columns of records without headers and conditions."""
        made = cls(())
        made.keys, made.values = keys, values
        made._check()
        return made

    def __len__(self) -> int:
        return len(self.keys)

    def _check(self) -> None:
        if set(map(type, self.keys)) - {bytes}:
            self.keys = list(map(to_key, self.keys))
        kinds = set(map(type, self.values))
        if kinds - {bytes, type(None)}:
            for value in self.values:
                check_value(value)
        # No value: as many bytes as an empty value.
        texts: list[Any] = self.values
        if type(None) in kinds:
            texts = [value or b"" for value in self.values]
        # Most records of a call have one size, so their sizes are not added one by one.
        lengths, widths = set(map(len, self.keys)), set(map(len, texts))
        if lengths and (
            min(lengths) < 1
            or max(lengths) > limits.key_bytes_max
            or max(widths) > limits.value_bytes_max
        ):
            for key, value in zip(self.keys, self.values, strict=True):
                check_record(key, value)
        if len(lengths) == len(widths) == 1 and self.headers is None:
            self.each = lengths.pop() + widths.pop()
            self.sizes = [self.each] * len(self.keys)
        else:
            self.sizes = list(map(add, map(len, self.keys), map(len, texts)))
        given = self.headers or []
        for position, headers in enumerate(given):
            if headers:
                found = to_headers(headers)
                check_record(b"k", None, found)
                self.sizes[position] += sum(map(len, found)) + sum(map(len, found.values()))
                given[position] = found

    def slices(self, records_max: int, bytes_max: int) -> Iterator["Columns"]:
        """Yield the columns in pieces of bounded size, in order."""
        if len(self) <= records_max and sum(self.sizes) <= bytes_max:
            yield self
            return
        at, size = 0, 0
        for position, own in enumerate(self.sizes):
            if position > at and (position - at >= records_max or size + own > bytes_max):
                yield self._slice(slice(at, position))
                at, size = position, 0
            size += own
        yield self._slice(slice(at, len(self)))

    def _slice(self, span: slice) -> "Columns":
        piece = object.__new__(Columns)
        piece.keys, piece.values = self.keys[span], self.values[span]
        piece.sizes, piece.each = self.sizes[span], self.each
        piece.headers = self.headers[span] if self.headers is not None else None
        piece.expects = self.expects[span] if self.expects is not None else None
        return piece

    def by_start(self, starts: Sequence[bytes]) -> Iterator[Sequence[int]]:
        """Yield positions grouped by the range that holds their key, each group in order."""
        if len(starts) <= 1:
            yield range(len(self.keys))
            return
        compiled = None if packing is None else packing.grouped(self.keys, [*starts])
        if compiled is not None:
            yield from compiled
            return
        groups: defaultdict[int, list[int]] = defaultdict(list)
        found = map(groups.__getitem__, map(bisect_right, repeat(starts), self.keys))
        exhaust(map(list.append, found, count()))
        yield from groups.values()

    def cut(self, positions: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield the positions in runs, each small enough for one batch."""
        if (
            len(positions) <= limits.batch_records_max
            and self.size(positions) <= limits.batch_bytes_max
        ):
            yield positions
            return
        ends = list(accumulate(map(self.sizes.__getitem__, positions)))
        at, before = 0, 0
        while at < len(positions):
            to = bisect_right(ends, before + limits.batch_bytes_max)
            to = min(max(to, at + 1), at + limits.batch_records_max)
            yield positions[at:to]
            at, before = to, ends[to - 1]

    def size(self, positions: Sequence[int]) -> int:
        """Return the bytes of these records, as they count for a batch."""
        if self.each is not None:
            return self.each * len(positions)
        return sum(_picked(self.sizes, positions))

    def fill(self, batch: AppendBatch, positions: Sequence[int]) -> None:
        """Append these records to a batch, which gives them numbers when it closes."""
        before = len(batch)
        batch.keys += _picked(self.keys, positions)
        batch.values += _picked(self.values, positions)
        batch.bytes += self.size(positions)
        headers = self.headers and _picked(self.headers, positions)
        if headers is not None and any(headers):
            if batch.headers is None:
                batch.headers = [None] * before
            batch.headers += headers
        elif batch.headers is not None:
            batch.headers += repeat(None, len(positions))
        expects = self.expects and _picked(self.expects, positions)
        if expects:
            if batch.expects is None:
                batch.expects = [EXPECT_ANY] * before
            batch.expects += expects
        elif batch.expects is not None:
            batch.expects += repeat(EXPECT_ANY, len(positions))


def _picked(column: list[C], positions: Sequence[int]) -> Sequence[C]:
    """Return the elements of a column at the positions, of which there is at least one."""
    if isinstance(positions, range):
        return column[positions.start : positions.stop]
    if len(positions) == 1:  # `itemgetter` returns a single element by itself
        return (column[positions[0]],)
    picked: tuple[C, ...] = itemgetter(*positions)(column)
    return picked


def exhaust(calls: Iterator[object]) -> None:
    """Make all calls of a `map`, and drop what they return."""
    deque(calls, maxlen=0)


def check_one_batch(columns: Columns) -> None:
    """Raise LimitExceeded unless the records fit one batch."""
    if not len(columns):
        raise InvalidArgument(
            "append_batch got no records; give at least one record", what="records"
        )
    check_sizes(len(columns), sum(columns.sizes))


def check_sizes(records: int, size: int) -> None:
    """Raise LimitExceeded unless so many records of `size` bytes together fit one batch."""
    for limit, value, allowed in (
        ("batch_records_max", records, limits.batch_records_max),
        ("batch_bytes_max", size, limits.batch_bytes_max),
    ):
        if value > allowed and records > 1:
            raise LimitExceeded(
                f"a batch of {value} {'records' if 'records' in limit else 'bytes'}; an "
                f"atomic batch has at most {allowed}: use append_many, which is not atomic",
                limit=limit, value=value, allowed=allowed,
            )  # fmt: skip


def all_or_raise(results: list[Ack | LognodeError]) -> list[Ack]:
    """Return the Acks of a call of many records. Raises the error that all records have, or
    PartialFailure."""
    if set(map(type, results)) == {Ack}:
        return results  # type: ignore[return-value]  # all are Acks
    acks = [result for result in results if isinstance(result, Ack)]
    failures = [result for result in results if isinstance(result, LognodeError)]
    reasons = {(error.code, error.outcome, error.message) for error in failures}
    if not acks and len(reasons) == 1:
        raise failures[0]
    outcomes: Counter[Outcome] = Counter(
        "applied" if isinstance(result, Ack) else result.outcome for result in results
    )
    raise PartialFailure(
        f"{outcomes['applied']} of {len(results)} records were appended, "
        f"{outcomes['not_applied']} were not, and the outcome of {outcomes['unknown']} is "
        f"unknown; the first error: {failures[0]}",
        outcome=common_outcome(outcomes),
        acks=[result if isinstance(result, Ack) else None for result in results],
        errors=[result if isinstance(result, LognodeError) else None for result in results],
    )
