"""How a node and its ranges rise to the feature level of the cluster (docs/design/levels.md).

The data directory notes the level first, so that a program that does not know the level ends at its
start. No range follows before the directories of all nodes have noted the level. Then the leader of
each range proposes the level in the range's own log.
"""

from collections.abc import Mapping
from typing import Final

from ...client.protocol.levels import LEVEL_MIN
from ...partitions.levels import Program, all_noted
from ...partitions.metadata import Metadata

REPEAT_S: Final = 5.0
"""A proposal that has not been applied is repeated after this time. Repetitions change nothing."""


def to_note(metadata: Metadata, noted: int) -> int | None:
    """Return the level that the directory must note now; `noted`: the level that it has."""
    level = metadata.feature_level
    return level if level > noted else None


def ranges_may_rise(metadata: Metadata, programs: Mapping[int, Program]) -> bool:
    """Whether ranges may follow the metadata: no program without the level can start any more.

    `programs` are those that the nodes have told, with the level that each directory has noted.
    """
    level = metadata.feature_level
    return level > LEVEL_MIN and all_noted(metadata, programs, level)


def may_propose(own: int, level: int, proposed_at: float | None, now: float) -> bool:
    """Whether the leader of a range at level `own` proposes the level.

    `proposed_at` is when this node last proposed the level to the range, None without that.
    """
    return own < level and (proposed_at is None or now - proposed_at >= REPEAT_S)
