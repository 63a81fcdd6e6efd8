"""The keys that a query reads: those of the options, with the hierarchy of the log."""

from typing import NamedTuple

from ..protocol.errors import InvalidArgument, LimitExceeded
from ..protocol.patterns import Patterns
from .options import KeySpan, ReadOptions
from .session import Session


class Wanted(NamedTuple):
    """The keys in the spans that match the patterns, if there are any. The spans are disjoint and
    ascending."""

    spans: tuple[KeySpan, ...]
    patterns: Patterns | None = None


def wanted(session: Session, options: ReadOptions) -> Wanted:
    """Return the keys of a query. Raises InvalidArgument for a pattern that is not valid in the
    log, and LimitExceeded for too many patterns."""
    if options.patterns is None:
        return Wanted(options.spans)
    try:
        patterns = session.patterns(options.patterns)
    except (InvalidArgument, LimitExceeded) as error:
        raise InvalidArgument(f"option pattern: {error.message}", what="pattern") from None
    return Wanted(tuple(patterns.spans), patterns)
