"""What the fields of a checked body mean to a node.

The table of messages has checked types and bounds before a handler sees a body; what is left is to
make the node's own values of them.
"""

from collections.abc import Mapping
from typing import Any

from ...raft.types import GroupId
from ...statemachine.band_reads import Band, Position

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
