"""Makes the node's own values from the fields of a checked body.

The table of messages has checked types and bounds before a handler sees a body.
"""

from collections.abc import Mapping
from typing import Any

from ...raft.types import GroupId
from ...statemachine.band_reads import Band, Position

Body = Mapping[str, Any]


def group(body: Body) -> GroupId:
    """Return the generation that a request names."""
    return GroupId(body["range"], body["generation"])


def position(value: list[Any] | None) -> Position:
    """Return the position of an export; None: the beginning."""
    if value is None:
        return Position()
    bands, following = value
    return Position(tuple(Band(*band) for band in bands), following)
