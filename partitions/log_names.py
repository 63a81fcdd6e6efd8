"""The names that a log may have: texts without blanks that people can type and read."""

from ..client.protocol import limits
from ..client.protocol.errors import InvalidArgument, LimitExceeded
from ..client.protocol.kinds import shown


def check(name: object) -> None:
    """Raise InvalidArgument or LimitExceeded unless the name is a valid log name."""
    if not isinstance(name, str) or not name.strip():
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
    if any(character.isspace() or not character.isprintable() for character in name):
        raise InvalidArgument(
            f"log name {name!r} has a blank or an unprintable character; use letters, digits and "
            "`/ - _ .`", what="name",
        )  # fmt: skip
