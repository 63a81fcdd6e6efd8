"""The names that a log may have: texts without blanks that people can type and read.

`check` is what apply asks; `check_new` is stricter, and is asked before the name goes into the log.
"""

from typing import Final

from . import characters, limits
from .errors import InvalidArgument, LimitExceeded
from .kinds import shown

AUDIT: Final = "_audit"
USAGE: Final = "_usage"
OF_CLUSTER: Final = frozenset({AUDIT, USAGE})
"""The logs that a cluster writes by itself. Clients read these logs, and never create them."""


def check(name: object) -> None:
    """Raise InvalidArgument or LimitExceeded unless the name is a valid log name.

    The answer is the same in every version of Python.
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgument(
            f"the log name is {shown(name)}; give a name of 1 to {limits.log_name_bytes_max} bytes",
            what="name",
        )
    if len(name.encode()) > limits.log_name_bytes_max:
        raise LimitExceeded(
            f"the log name has {len(name.encode())} bytes; at most {limits.log_name_bytes_max} "
            "are allowed: shorten the name",
            limit="log_name_bytes_max", value=len(name.encode()),
            allowed=limits.log_name_bytes_max,
        )  # fmt: skip
    if not characters.is_fit(name):
        raise InvalidArgument(
            f"log name {name!r} has a blank or an unprintable character; use letters, digits and "
            "`/ - _ .`", what="name",
        )  # fmt: skip


def check_new(name: object) -> None:
    """Raise InvalidArgument or LimitExceeded unless a command may bring this name into the log.

    Members of every version of lognode and of Python accept the name.
    """
    check(name)
    if not characters.is_printable(str(name)):
        raise InvalidArgument(
            f"log name {name!a} has a character that Unicode 14 does not print; use letters, "
            "digits and `/ - _ .`", what="name",
        )  # fmt: skip
