"""The exception with which every checker reports a broken promise."""

from typing import Any


class Violation(Exception):
    """A promise or a property of Raft does not hold. `promise` is its id or its name."""

    def __init__(self, promise: str, what: str, **fields: Any) -> None:
        detail = " ".join(f"{name}={value!r}" for name, value in fields.items())
        super().__init__(f"{promise}: {what} {detail}".rstrip())
        self.promise = promise
