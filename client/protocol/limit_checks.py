"""The refusal of what is above a limit: what was given, what is allowed, what to do."""

from .errors import LimitExceeded


def check_limit(limit: str, allowed: int, value: int, given: str, advice: str) -> None:
    """Raise LimitExceeded if the value is above what the limit of that name allows.

    `given` says what has the value; `advice` is a sentence on what to do.
    """
    if value > allowed:
        raise LimitExceeded(
            f"{given}; the limit is {allowed}. {advice}", limit=limit, value=value, allowed=allowed
        )
