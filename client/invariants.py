"""Invariants: conditions that hold or the process stops. Always on."""

from typing import Any


class InvariantError(Exception):
    """Something that cannot be, is. The node stops: going on could lose or forge data."""


def invariant(condition: bool, what: str, **fields: Any) -> None:
    """Raise InvariantError with `what` and the fields unless the condition holds."""
    if not condition:
        detail = " ".join(f"{name}={value!r}" for name, value in fields.items())
        raise InvariantError(f"{what} {detail}".rstrip())
