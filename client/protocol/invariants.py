"""Invariants: the process ends when a condition does not hold. Always on. The process also ends
when the disk fails."""

import errno
import os
from typing import Any


class InvariantError(Exception):
    """A condition that must hold does not. The node stops, because continuing could lose or
    forge data."""


class DiskFailure(Exception):
    """A write or a sync failed; the message names the file and the cause. The process ends: the
    state after a failed fsync is unknown, and a second fsync may report success wrongly (Rebello
    et al., ATC 2020)."""

    @classmethod
    def of(cls, doing: str, error: OSError, name: str) -> "DiskFailure":
        """Return a failure that says what was done, to which file, and why it failed; `name` is
        the file when the error names none."""
        number = error.errno or 0
        why = f"{os.strerror(number)} ({errno.errorcode.get(number, number)})" if number else error
        return cls(f"{doing} {error.filename or name} failed: {why}")


def invariant(condition: bool, what: str, **fields: Any) -> None:
    """Raise InvariantError with `what` and the fields unless the condition holds."""
    if not condition:
        detail = " ".join(f"{name}={value!r}" for name, value in fields.items())
        raise InvariantError(f"{what} {detail}".rstrip())
