"""What the fields of a checked body mean to a node.

The table of messages has checked types and bounds before a handler sees a body; what is left is to
make the node's own values of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..client.errors import InvalidArgument
from ..raft.types import GroupId
from ..statemachine.band_reads import Band, Position

T = TypeVar("T")
Body = Mapping[str, Any]


def group(body: Body) -> GroupId:
    """The generation that a request names."""
    return GroupId(body["range"], body["generation"])


def position(value: list[Any] | None) -> Position:
    """The position of an export; None: the beginning."""
    if value is None:
        return Position()
    bands, following = value
    return Position(tuple(Band(*band) for band in bands), following)


def parsed(what: str, parse: Callable[[Any], T], value: Any) -> T:
    """Return what `parse` makes of a nested record of a peer. Raises InvalidArgument."""
    try:
        return parse(value)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InvalidArgument(f"`{what}` is malformed: {error!r}", what=what) from None
