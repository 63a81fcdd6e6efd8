"""A record: a map with named fields, each of its kind. Bodies of messages are records.

A field without a value takes its default. Nil and a missing field are the same, unless nil is a
value of the field's kind. Fields that a record does not name are dropped: a newer program may send
them.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from .errors import InvalidArgument
from .kinds import Fault, Kind

_REQUIRED: Final = object()
OMIT: Final = object()
"""As the default of an optional field: a missing field is also missing in the checked body."""


class Optional(NamedTuple):
    """A field that may be missing or nil, and then has the default."""

    kind: Kind
    default: Any = None


Shape = Mapping[str, Kind | Optional]


class Record(Kind):
    """A map with named fields, see the module. `loose`: unknown fields are kept unchecked; only
    answers are loose."""

    types = frozenset({dict})

    def __init__(self, shape: Shape, *, loose: bool = False) -> None:
        self.shape = dict(shape)
        self._loose = loose
        self._fields = [
            (name, field.kind, field.default)
            if isinstance(field, Optional)
            else (name, field, _REQUIRED)
            for name, field in shape.items()
        ]

    def check(self, value: Any, name: str = "body") -> dict[str, Any]:
        """Return the fields, with their defaults. Raises InvalidArgument, LimitExceeded."""
        if type(value) is not dict:
            self.refuse(value, name)
        checked: dict[str, Any] = dict(value) if self._loose else {}
        for field, kind, default in self._fields:
            given = value.get(field)
            if given is not None:
                checked[field] = kind.check(given, field)
            elif default is _REQUIRED:
                _check_nil(kind, field)
                checked[field] = None
            elif field in value and _takes_nil(kind):
                checked[field] = None
            elif default is not OMIT:
                checked[field] = default
        return checked

    def text(self) -> str:
        return "a map with the fields " + ", ".join(f"`{name}`" for name in self.shape)

    def sample(self, rng: random.Random) -> dict[str, Any]:
        return {
            name: kind.sample(rng)
            for name, kind, default in self._fields
            if default is _REQUIRED or rng.random() < 0.7
        }

    def beyond(self) -> Iterator[Fault]:
        """Yield invalid values: each field with each of its faults, all other fields valid."""
        for at, (name, kind, default) in enumerate(self._fields):
            good = self.sample(random.Random(at))
            if default is _REQUIRED and not _takes_nil(kind):
                yield f"{name}: missing", {f: v for f, v in good.items() if f != name}
                yield f"{name}: nil", {**good, name: None}
            for why, value in kind.faults():
                yield f"{name}: {why}", {**good, name: value}


def _check_nil(kind: Kind, field: str) -> None:
    """Raise InvalidArgument when a required field is missing, or nil where nil is not a value."""
    if not _takes_nil(kind):
        raise InvalidArgument(
            f"`{field}` is missing; allowed: {kind.text()}. Add the field.", what=field
        )


def _takes_nil(kind: Kind) -> bool:
    return type(None) in kind.types
