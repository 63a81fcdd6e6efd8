"""The logs of a query: those that the options name, or all whose names begin with a prefix."""

from ..protocol.errors import InvalidArgument
from .options import ReadOptions, logs_max
from .session import Session


def logs_of(session: Session, options: ReadOptions) -> list[str]:
    """Return the names, ascending. Raises InvalidArgument for too many names of a prefix."""
    if options.logs is not None:
        return list(options.logs)
    prefix = options.log_prefix
    if prefix is None:
        return [options.log]
    found = [name for name in session.names() if name.startswith(prefix)]
    if len(found) > logs_max:
        raise InvalidArgument(
            f"option logPrefix: {len(found)} logs begin with {prefix!r}; a query reads at most "
            f"{logs_max} logs. Give a longer prefix",
            what="logPrefix",
        )
    return found
