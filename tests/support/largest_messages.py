"""The largest valid requests of an operation: each field in turn as large as a frame allows."""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgpack

from lognode.client.protocol import Operation, frame, limits
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.kinds import (
    Array,
    Binary,
    Column,
    Integer,
    Kind,
    Later,
    Nullable,
    OneOf,
    Row,
    Table,
    Text,
)
from lognode.client.protocol.record import Optional, Record

Body = dict[str, Any]
_LONG_BYTES = 4 * limits.KIB
_MANY = 64
_RNG = random.Random(1)


class Large(NamedTuple):
    """A way to make a value large: `make` gives a value of a size, which is at most `most`."""

    why: str
    make: Callable[[int], Any]
    most: int


def largest(operation: Operation, known: Mapping[str, Any]) -> Iterator[tuple[str, Body]]:
    """Valid bodies of the operation. `known` has fields that are to name something real."""
    fields = operation.request.shape
    plain = {
        name: known.get(name, None if isinstance(field, Optional) else _small(field, 1))
        for name, field in fields.items()
        if name in known or not isinstance(field, Optional)
    }
    yield "plain", plain
    for name, field in fields.items():
        kind = field.kind if isinstance(field, Optional) else field
        for why, make, most in _ways(kind):
            count = min(most, 2 * limits.frame_bytes_max // len(msgpack.packb(make(1))))
            while count and not _fits(operation, {**plain, name: make(count)}):
                count //= 2
            if count:
                yield f"{name}: {count:,} {why}", {**plain, name: make(count)}


def _fits(operation: Operation, body: Body) -> bool:
    """Whether a frame takes the body, and the table of messages does."""
    try:
        data = frame.encode(1, operation.number, body)
        (event,) = frame.Decoder().feed(data)
        if isinstance(event, frame.Broken):
            return False
        operation.request.check(event.body)
    except LognodeError:
        return False
    return True


def _ways(kind: Kind) -> Iterator[Large]:
    """All ways to make a value of the kind large."""
    if isinstance(kind, Nullable | Later):
        yield from _ways(kind.kind)
    elif isinstance(kind, OneOf):
        for each in kind.kinds:
            yield from _ways(each)
    elif isinstance(kind, Text | Binary):
        if kind.high >= _LONG_BYTES:
            one = "x" if isinstance(kind, Text) else b"x"
            yield Large("bytes", lambda count: one * count, kind.high)
    elif isinstance(kind, Column):
        if kind._count_high >= _MANY:
            for size in {kind.low, min(kind.high, 1 << 62)}:
                yield Large(
                    f"elements of {size}",
                    lambda n, size=size: [_element(kind, size, at) for at in range(n)],
                    kind._count_high,
                )  # fmt: skip
    elif isinstance(kind, Table):
        if kind.high >= _MANY:
            yield Large(
                "pairs", lambda n: {_small(kind.keys, i): _small(kind.values, i) for i in range(n)},
                kind.high,
            )  # fmt: skip
    elif isinstance(kind, Array):
        if kind.high >= _MANY:
            yield Large("elements", lambda n: [_small(kind.kind, i) for i in range(n)], kind.high)
        for why, make, most in _ways(kind.kind):
            for inner in (most, max(1, most // 16)):
                yield Large(
                    f"elements with {inner:,} {why}",
                    lambda n, make=make, inner=inner: [make(inner)] * n, kind.high,
                )  # fmt: skip
    elif isinstance(kind, Row):
        for at, (name, field) in enumerate(kind.kinds.items()):
            for why, make, most in _ways(field):
                yield Large(
                    f"{why} in {name}",
                    lambda n, at=at, make=make: _replaced(_small(kind, 1), at, make(n)), most,
                )  # fmt: skip
    elif isinstance(kind, Record):
        for name, field in kind.shape.items():
            field = field.kind if isinstance(field, Optional) else field
            for why, make, most in _ways(field):
                yield Large(
                    f"{why} in {name}",
                    lambda n, name=name, make=make: {**_small(kind, 1), name: make(n)}, most,
                )  # fmt: skip


def _element(column: Column, size: int, at: int) -> Any:
    """An element of a column; those of other places differ where they can."""
    element = column._element(size)
    if isinstance(element, bytes):
        return (b"%x" % at).rjust(size, b"0")[-max(size, 4) :]
    return element


def _replaced(row: list[Any], at: int, value: Any) -> list[Any]:
    return [*row[:at], value, *row[at + 1 :]]


def _small(kind: Kind, at: int) -> Any:
    """A short value of the kind; values of other places differ where they can."""
    if isinstance(kind, Integer):
        return kind.low + at % (kind.high - kind.low + 1)
    if isinstance(kind, Nullable):
        return _small(kind.kind, at)
    if isinstance(kind, OneOf):
        return _small(kind.kinds[0], at)
    if type(kind) is Text and not kind._among:
        return f"{at:x}"[-kind.high :].rjust(kind.low, "0")
    if isinstance(kind, Binary):
        return b"%x" % at if kind.low <= 1 else bytes(kind.low)
    if isinstance(kind, Row):
        return [_small(each, at) for each in kind.kinds.values()]
    if isinstance(kind, Array):
        return [_small(kind.kind, at) for _ in range(kind.low)]
    if isinstance(kind, Column):
        return [kind._element(kind.low)] * kind._count_low
    if isinstance(kind, Table):
        return {}
    if isinstance(kind, Record):
        required = {n: f for n, f in kind.shape.items() if not isinstance(f, Optional)}
        return {name: _small(field, at) for name, field in required.items()}
    return kind.sample(_RNG)
