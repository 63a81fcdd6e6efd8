"""Kinds of values: the values that a field of a message may hold.

Each kind has four duties. `check` returns the value, or raises InvalidArgument (LimitExceeded for a
size or count above its bound) with the given and the allowed value. `text` describes the kind for
the reference. `sample` makes a valid value; `faults` makes invalid values, each of which violates a
bound or the type: the fuzz tests are generated from these two.

Integers have at most 63 bits: every language and every column of a table can hold them.
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any, Final, NoReturn

from . import limits
from .errors import InvalidArgument, LimitExceeded

INTEGER_MAX: Final = limits.number_max
_OF_EACH_TYPE: Final[tuple[Any, ...]] = (
    None,
    True,
    7,
    -7,
    1.5,
    "text",
    b"bytes",
    [[]],
    {"map": {}},
)
"""A value of each type that msgpack knows."""
_ARRAYS: Final = (list, tuple)
_ARRAY_TYPES: Final = frozenset(_ARRAYS)
"""Types that pack to an array, named tuples included."""
_FEW_ROWS: Final = 16
"""Up to this number, checking rows one by one is as fast as checking them together."""
Fault = tuple[str, Any]
"""The description of a fault, and a value with that fault."""


class Kind(ABC):
    """The set of values that a field may hold."""

    types: frozenset[type]
    """The Python types of the values."""

    @abstractmethod
    def check(self, value: Any, name: str) -> Any:
        """Return the value. Raise InvalidArgument for a value that is not of this kind."""

    @abstractmethod
    def text(self) -> str:
        """Describe the kind in a few words, for the reference."""

    @abstractmethod
    def sample(self, rng: random.Random) -> Any:
        """Make a valid value."""

    def faults(self) -> Iterator[Fault]:
        """Make invalid values: a value of each other type, then values that violate a bound."""
        for value in _OF_EACH_TYPE:
            if value is not None and type(value) not in self.types:
                yield f"{type(value).__name__}", value
        yield from self.beyond()

    def beyond(self) -> Iterator[Fault]:
        """Make values of the right type that violate a bound."""
        return iter(())

    def refuse(self, value: Any, name: str) -> NoReturn:
        """Raise the error for a value that is not of this kind."""
        raise InvalidArgument(
            f"`{name}` is {shown(value)}; allowed: {self.text()}. Correct the field.", what=name
        )


class Integer(Kind):
    """An integer within bounds, both included."""

    types = frozenset({int})

    def __init__(self, low: int = 0, high: int = INTEGER_MAX) -> None:
        self.low, self.high = low, high

    def check(self, value: Any, name: str) -> int:
        if type(value) is not int or not self.low <= value <= self.high:
            self.refuse(value, name)
        return value

    def text(self) -> str:
        high = "2^63 - 1" if self.high == INTEGER_MAX else f"{self.high:,}"
        return f"an integer of {self.low:,} to {high}"

    def sample(self, rng: random.Random) -> int:
        return rng.choice((self.low, self.high, rng.randint(self.low, min(self.high, 1_000_000))))

    def beyond(self) -> Iterator[Fault]:
        yield "below the lowest", self.low - 1
        yield "above the highest", self.high + 1
        if self.high + 1 < 1 << 63:
            yield "64 bits", (1 << 64) - 1


_OF_63_BITS: Final = Integer()


class Number(Kind):
    """A finite number within bounds, both included; an integer is allowed too."""

    types = frozenset({int, float})

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def check(self, value: Any, name: str) -> float:
        if type(value) not in self.types or not self.low <= value <= self.high:
            self.refuse(value, name)
        return float(value)

    def text(self) -> str:
        return f"a number of {self.low:g} to {self.high:g}"

    def sample(self, rng: random.Random) -> float:
        return rng.uniform(self.low, self.high)

    def beyond(self) -> Iterator[Fault]:
        for value in (self.low - 1.0, self.high + 1.0, math.nan, math.inf, -math.inf):
            yield "out of bounds", value


class Flag(Kind):
    """True or false."""

    types = frozenset({bool})

    def check(self, value: Any, name: str) -> bool:
        if type(value) is not bool:
            self.refuse(value, name)
        return value

    def text(self) -> str:
        return "true or false"

    def sample(self, rng: random.Random) -> bool:
        return rng.random() < 0.5


class Text(Kind):
    """Text of a bounded number of UTF-8 bytes, without control characters.

    `among`: only these texts. `lines`: line breaks and tabs are allowed, as in a message. `chars`:
    the bounds count characters.
    """

    types = frozenset({str})

    def __init__(
        self,
        bytes_max: int,
        bytes_min: int = 0,
        *,
        limit: str = "",
        among: Sequence[str] = (),
        lines: bool = False,
        chars: bool = False,
    ) -> None:
        self.low, self.high = bytes_min, bytes_max
        self._chars = chars
        self._limit = limit
        self._among = among
        self._lines = lines

    def check(self, value: Any, name: str) -> str:
        if type(value) is not str:
            self.refuse(value, name)
        if self._among:
            if value not in self._among:
                self.refuse(value, name)
            return value
        try:
            size = len(value) if self._chars else len(value.encode())
        except UnicodeEncodeError:
            self.refuse(value, name)
        if size > self.high and self._limit:
            too_large(name, size, "bytes", self.high, self._limit)
        if not self.low <= size <= self.high or not self._is_plain(value):
            self.refuse(value, name)
        return value

    def text(self) -> str:
        if self._among:
            return "one of " + ", ".join(f"`{word}`" for word in self._among)
        unit = "characters" if self._chars else "bytes of UTF-8"
        return f"text of {self.low:,} to {self.high:,} {unit} without control characters"

    def sample(self, rng: random.Random) -> str:
        if self._among:
            return rng.choice(self._among)
        return "x" * rng.choice((self.low, min(self.high, max(self.low, 9))))

    def beyond(self) -> Iterator[Fault]:
        if self._among:
            yield "another text", "\u00fcbrig"
            return
        if self.low:
            yield "too short", "x" * (self.low - 1)
        yield "too long", "x" * (self.high + 1)
        if not self._chars:
            yield "too long in UTF-8", "\u00fc" * (self.high // 2 + 1)
        if self.high:
            yield "a NUL", "\0" * max(1, self.low)

    def _is_plain(self, value: str) -> bool:
        return value.isprintable() or all(map(self._may_have, value))

    def _may_have(self, character: str) -> bool:
        if self._lines and character in "\n\r\t":
            return True
        return ord(character) >= 0x20 and not 0x7F <= ord(character) < 0xA0


class AnyText(Kind):
    """Text that no reader relies on: any text is valid."""

    types = frozenset({str})

    def check(self, value: Any, name: str) -> str:
        if type(value) is not str:
            self.refuse(value, name)
        return value

    def text(self) -> str:
        return "text"

    def sample(self, rng: random.Random) -> str:
        return rng.choice(("", "text"))


class SecretText(Text):
    """Text that errors do not repeat."""

    def refuse(self, value: Any, name: str) -> NoReturn:
        size = f" with {len(value)} characters" if type(value) is str else ""
        raise InvalidArgument(
            f"`{name}` is {type(value).__name__}{size}; allowed: {self.text()}. Correct the field.",
            what=name,
        )


class Binary(Kind):
    """Bytes of a bounded length."""

    types = frozenset({bytes})

    def __init__(self, bytes_max: int, bytes_min: int = 0, *, limit: str = "") -> None:
        self.low, self.high = bytes_min, bytes_max
        self._limit = limit

    def check(self, value: Any, name: str) -> bytes:
        if type(value) is not bytes:
            self.refuse(value, name)
        if not self.low <= len(value) <= self.high:
            if self._limit:
                too_large(name, len(value), "bytes", self.high, self._limit, self.low)
            self.refuse(value, name)
        return value

    def text(self) -> str:
        return f"bytes, {self.low:,} to {self.high:,} of them"

    def sample(self, rng: random.Random) -> bytes:
        return rng.randbytes(rng.choice((self.low, min(self.high, max(self.low, 9)))))

    def beyond(self) -> Iterator[Fault]:
        if self.low:
            yield "too short", bytes(self.low - 1)
        yield "too long", bytes(self.high + 1)


class Array(Kind):
    """An array of values of one kind. Rows are checked column by column, in C where the column
    is plain. Any other element is checked alone: for short arrays."""

    types = frozenset({list, tuple})

    def __init__(self, kind: Kind, count_max: int, count_min: int = 0, *, limit: str = "") -> None:
        self.kind = kind
        self.low, self.high = count_min, count_max
        self._limit = limit
        self._nil = isinstance(kind, Nullable)
        row = kind.kind if isinstance(kind, Nullable) else kind
        self._row = row if type(row) is Row else None

    def check(self, value: Any, name: str) -> list[Any]:
        if not isinstance(value, _ARRAYS):
            self.refuse(value, name)
        if len(value) > self.high and self._limit:
            too_large(name, len(value), "elements", self.high, self._limit)
        if not self.low <= len(value) <= self.high:
            self.refuse(value, name)
        if self._row is not None and len(value) > _FEW_ROWS:
            return self._check_rows(self._row, value, name)
        check = self.kind.check
        return [check(element, name) for element in value]

    def _check_rows(self, kind: "Row", value: Sequence[Any], name: str) -> list[Any]:
        present = [row for row in value if row is not None] if self._nil else value
        checked = kind.check_all(present, name) if present else []
        if len(checked) == len(value):
            return checked
        rows = iter(checked)
        return [None if row is None else next(rows) for row in value]

    def text(self) -> str:
        inside = _bracketed(self.kind.text())
        return f"an array of {self.low:,} to {self.high:,} elements, each {inside}"

    def sample(self, rng: random.Random) -> list[Any]:
        count = rng.choice((self.low, min(self.high, max(self.low, 2))))
        return [self.kind.sample(rng) for _ in range(count)]

    def beyond(self) -> Iterator[Fault]:
        rng = random.Random(0)
        if self.low:
            yield "too few", [self.kind.sample(rng) for _ in range(self.low - 1)]
        yield "too many", [self.kind.sample(rng)] * (self.high + 1)
        for why, value in self.kind.faults():
            yield (
                f"an element: {why}",
                [*(self.kind.sample(rng) for _ in range(self.low)), value][-max(self.low, 1) :],
            )


class Column(Kind):
    """A long array of plain values, checked in C: types, and bounds of integers or of lengths.

    `nil`: an element may be nil. `low` and `high` bound the integers, or the lengths of bytes.
    """

    types = frozenset({list, tuple})

    def __init__(
        self,
        of: type[int] | type[bytes],
        count_max: int,
        count_min: int = 0,
        *,
        low: int = 0,
        high: int = INTEGER_MAX,
        nil: bool = False,
        limit: str = "",
    ) -> None:
        self._of = of
        self._count_low, self._count_high = count_min, count_max
        self.low, self.high = low, high
        self._nil = nil
        self._limit = limit
        self._allowed = {of, type(None)} if nil else {of}

    def check(self, value: Any, name: str) -> Any:
        if not isinstance(value, _ARRAYS):
            self.refuse(value, name)
        if len(value) > self._count_high and self._limit:
            too_large(name, len(value), "elements", self._count_high, self._limit)
        if not self._count_low <= len(value) <= self._count_high:
            self.refuse(value, name)
        if not set(map(type, value)) <= self._allowed:
            self.refuse(value, name)
        present = [each for each in value if each is not None] if self._nil else value
        if present:
            numbers = present if self._of is int else list(map(len, present))
            if min(numbers) < self.low or max(numbers) > self.high:
                self.refuse(value, name)
        return value

    def text(self) -> str:
        what = "an integer" if self._of is int else "bytes with a length"
        high = "2^63 - 1" if self.high == INTEGER_MAX else f"{self.high:,}"
        count = f"an array of {self._count_low:,} to {self._count_high:,} elements"
        return f"{count}, each {what} of {self.low:,} to {high}{' or nil' if self._nil else ''}"

    def sample(self, rng: random.Random) -> list[Any]:
        count = rng.choice((self._count_low, min(self._count_high, max(self._count_low, 3))))
        return [self._element(self.low) for _ in range(count)]

    def beyond(self) -> Iterator[Fault]:
        good = self._element(self.low)
        if self._count_low:
            yield "too few", [good] * (self._count_low - 1)
        if self._count_high < 1 << 20:
            yield "too many", [good] * (self._count_high + 1)
        elements: tuple[Any, ...] = (True, 1.5, "text", [[]], {})
        for element in elements:
            yield f"an element of type {type(element).__name__}", [element]
        if self._of is int or self.low > 0:
            yield "an element too small", [self._element(self.low - 1)]
        if self._of is int or self.high < 1 << 24:
            yield "an element too large", [self._element(self.high + 1)]

    def _element(self, size: int) -> Any:
        return size if self._of is int else bytes(size)


class Table(Kind):
    """A map with free names, from one plain kind to another. Checked in C, like `Column`."""

    types = frozenset({dict})

    def __init__(self, keys: Kind, values: Kind, count_max: int, *, limit: str = "") -> None:
        self.keys, self.values = keys, values
        self.high = count_max
        self._limit = limit

    def check(self, value: Any, name: str) -> dict[Any, Any]:
        if type(value) is not dict:
            self.refuse(value, name)
        if len(value) > self.high:
            if self._limit:
                too_large(name, len(value), "elements", self.high, self._limit)
            self.refuse(value, name)
        _check_all(self.keys, value.keys(), name)
        _check_all(self.values, value.values(), name)
        return value

    def text(self) -> str:
        return (
            f"a map of at most {self.high:,} elements, from {self.keys.text()} "
            f"to {_bracketed(self.values.text())}"
        )

    def sample(self, rng: random.Random) -> dict[Any, Any]:
        return {self.keys.sample(rng): self.values.sample(rng) for _ in range(rng.choice((0, 2)))}

    def beyond(self) -> Iterator[Fault]:
        rng = random.Random(0)
        for why, key in self.keys.faults():
            if type(key) not in (list, dict):
                yield f"a key: {why}", {key: self.values.sample(rng)}
        for why, value in self.values.faults():
            yield f"a value: {why}", {self.keys.sample(rng): value}


class Row(Kind):
    """An array of a fixed number of values, each of its own kind.

    Its leading 63-bit integers, which are few, are checked without a call for each.
    """

    types = frozenset({list, tuple})

    def __init__(self, **kinds: Kind) -> None:
        self.kinds = kinds
        self._count = len(kinds)
        of_63_bits = [
            type(kind) is Integer and (kind.low, kind.high) == (0, INTEGER_MAX)
            for kind in kinds.values()
        ]
        self._plain = [*of_63_bits, False].index(False)
        self._others = list(enumerate(kinds.values()))[self._plain :]

    def check(self, value: Any, name: str) -> list[Any]:
        if not isinstance(value, _ARRAYS) or len(value) != self._count:
            self.refuse(value, name)
        checked = list(value)
        for element in checked[: self._plain]:
            if type(element) is not int or not 0 <= element <= INTEGER_MAX:
                _OF_63_BITS.refuse(element, name)
        for at, kind in self._others:
            checked[at] = kind.check(checked[at], name)
        return checked

    def check_all(self, rows: Sequence[Any], name: str) -> list[list[Any]]:
        """Check many rows column by column: 65,536 rows of integers take 25 ms, one by one they
        take 80 ms. Raises InvalidArgument."""
        if not _ARRAY_TYPES.issuperset(map(type, rows)) or set(map(len, rows)) != {self._count}:
            for row in rows:
                self.check(row, name)  # a row is at fault, and raises
        columns = list(zip(*rows, strict=True))
        checked = [
            _check_all(kind, column, name)
            for kind, column in zip(self.kinds.values(), columns, strict=True)
        ]
        if all(map(is_, checked, columns)):
            return list(rows)
        return list(map(list, zip(*checked, strict=True)))

    def text(self) -> str:
        return f"an array [{', '.join(self.kinds)}]"

    def sample(self, rng: random.Random) -> list[Any]:
        return [kind.sample(rng) for kind in self.kinds.values()]

    def beyond(self) -> Iterator[Fault]:
        rng = random.Random(0)
        good = self.sample(rng)
        yield "an element too few", good[:-1]
        yield "an element too many", [*good, 0]
        for at, (name, kind) in enumerate(self.kinds.items()):
            for why, value in kind.faults():
                yield f"{name}: {why}", [*good[:at], value, *good[at + 1 :]]


class Variant(Kind):
    """An array of one of several rows; its first element, a number, selects the row."""

    types = frozenset({list, tuple})

    def __init__(self, rows: Mapping[int, Row]) -> None:
        self.rows = dict(rows)

    def check(self, value: Any, name: str) -> list[Any]:
        number = value[0] if isinstance(value, _ARRAYS) and value else None
        row = self.rows.get(number) if type(number) is int else None
        if row is None:
            self.refuse(value, name)
        return row.check(value, name)

    def text(self) -> str:
        numbers = ", ".join(map(str, self.rows))
        return f"an array whose first element, one of {numbers}, says what follows"

    def sample(self, rng: random.Random) -> list[Any]:
        number = rng.choice(list(self.rows))
        return [number, *self.rows[number].sample(rng)[1:]]

    def beyond(self) -> Iterator[Fault]:
        yield "no element", []
        rng = random.Random(0)
        for number, row in self.rows.items():
            for why, (first, *others) in ((why, v) for why, v in row.beyond() if v):
                if "kind" not in why:
                    yield f"{number}: {why}", [number, *others]
                elif type(first) is not int or first not in self.rows:
                    yield f"{number}: {why}", [first, *others]
        sample = self.sample(rng)
        for unknown in (0, max(self.rows) + 1, -1, 1 << 63):
            yield f"of kind {unknown}", [unknown, *sample[1:]]


class Later(Kind):
    """An array whose elements only its reader checks: unread elements cost nothing, and the reader
    of many checks them in steps. The number of elements of an `Array` is checked at once."""

    types = frozenset({list})

    def __init__(self, kind: Kind, reader: str) -> None:
        self.kind = kind
        self._reader = reader
        self._high = kind.high if isinstance(kind, Array) else None

    def check(self, value: Any, name: str) -> Any:
        if type(value) is not list or (self._high is not None and len(value) > self._high):
            self.refuse(value, name)
        return value

    def text(self) -> str:
        return f"{self.kind.text()}; `{self._reader}` checks the rest"

    def sample(self, rng: random.Random) -> Any:
        return self.kind.sample(rng)

    def beyond(self) -> Iterator[Fault]:
        if self._high is not None:
            yield "too many", [None] * (self._high + 1)


class OneOf(Kind):
    """A value of one of several kinds, whose types differ, except that several may be arrays."""

    def __init__(self, *kinds: Kind) -> None:
        self.kinds = kinds
        self.types = frozenset(chain.from_iterable(kind.types for kind in kinds))

    def check(self, value: Any, name: str) -> Any:
        fitting = [kind for kind in self.kinds if type(value) in kind.types]
        for kind in fitting[:-1]:
            try:
                return kind.check(value, name)
            except InvalidArgument:
                continue
        if not fitting:
            self.refuse(value, name)
        return fitting[-1].check(value, name)

    def text(self) -> str:
        return ", or ".join(kind.text() for kind in self.kinds)

    def sample(self, rng: random.Random) -> Any:
        return rng.choice(self.kinds).sample(rng)

    def beyond(self) -> Iterator[Fault]:
        for kind in self.kinds:
            for why, value in kind.beyond():
                if sum(type(value) in other.types for other in self.kinds) == 1:
                    yield why, value


class Nullable(Kind):
    """A value of a kind, or nil."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.types = kind.types | {type(None)}

    def check(self, value: Any, name: str) -> Any:
        return None if value is None else self.kind.check(value, name)

    def text(self) -> str:
        return f"{self.kind.text()}, or nil"

    def sample(self, rng: random.Random) -> Any:
        return None if rng.random() < 0.3 else self.kind.sample(rng)

    def beyond(self) -> Iterator[Fault]:
        return self.kind.beyond()


class Opaque(Kind):
    """A map or array whose content the table does not describe: the module `reader` checks it.

    `about` describes the content for people who cannot read the module.
    """

    def __init__(
        self,
        reader: str,
        of: type[dict[Any, Any]] | type[list[Any]] = dict,
        *,
        about: str = "",
    ) -> None:
        self._reader = reader
        self._of = of
        self._about = about
        self.types = frozenset({of})

    def check(self, value: Any, name: str) -> Any:
        if type(value) is not self._of:
            self.refuse(value, name)
        return value

    def text(self) -> str:
        what = "a map" if self._of is dict else "an array"
        return f"{what}: {self._about}" if self._about else f"{what}, as `{self._reader}` reads it"

    def sample(self, rng: random.Random) -> Any:
        return self._of()


def shown(value: Any) -> str:
    """Return the text of the value, or its type and size when the value is long."""
    if type(value) in (bytes, list, tuple, dict):
        return f"{type(value).__name__} with {len(value)} elements"
    text = repr(value)
    return text if len(text) <= 64 else f"{type(value).__name__} {text[:60]}..."


def too_large(
    name: str, size: int, unit: str, allowed: int, limit: str, lowest: int = 0
) -> NoReturn:
    """Raise LimitExceeded for a field with `size` bytes or elements."""
    raise LimitExceeded(
        f"`{name}` has {size:,} {unit}; allowed are {lowest:,} to {allowed:,}. Send less at once.",
        limit=limit, value=size, allowed=allowed,
    )  # fmt: skip


def _bracketed(text: str) -> str:
    """Return the description of the content, marked so that its alternatives stay inside."""
    return f"({text})" if ", or " in text else text


def _check_all(kind: Kind, values: Collection[Any], name: str) -> Collection[Any]:
    """Return many values, each checked; in C where the kind is plain."""
    if isinstance(kind, Integer):
        Column(int, len(values), low=kind.low, high=kind.high).check(list(values), name)
        return values
    if type(kind) is Binary:
        Column(bytes, len(values), low=kind.low, high=kind.high).check(list(values), name)
        return values
    return [kind.check(value, name) for value in values]
