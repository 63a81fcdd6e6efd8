"""Invariants: conditions that hold or the process stops. Always on. And the disk: it obeys, or
the process stops."""

import errno
import os
from typing import Any


class InvariantError(Exception):
    """Something that cannot be, is. The node stops: going on could lose or forge data."""


class DiskFailure(Exception):
    """A write or a sync failed; the message names the file and the cause. The process ends: what
    a failed fsync left is unknown, and a second one may lie (Rebello et al., ATC 2020)."""

    @classmethod
    def of(cls, doing: str, error: OSError, name: str) -> "DiskFailure":
        """That `doing` the file failed, which is `name` where the error names none, and why."""
        number = error.errno or 0
        why = f"{os.strerror(number)} ({errno.errorcode.get(number, number)})" if number else error
        return cls(f"{doing} {error.filename or name} failed: {why}")


def invariant(condition: bool, what: str, **fields: Any) -> None:
    """Raise InvariantError with `what` and the fields unless the condition holds."""
    if not condition:
        detail = " ".join(f"{name}={value!r}" for name, value in fields.items())
        raise InvariantError(f"{what} {detail}".rstrip())
