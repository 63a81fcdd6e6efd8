"""Feature levels: which rules of apply are in force in a cluster, and which a program knows.

A node applies entries by the rules of a level. A cluster begins at level 1. `lognode cluster
finalize` raises the level once all nodes run programs that know it, and nothing lowers it. So nodes
of two versions apply every entry alike while a cluster is upgraded, and an upgrade can be undone
until it is finalized. docs/design/levels.md says how a level takes effect.
"""

from typing import Final

LEVEL_MIN: Final = 1
"""The lowest level whose rules this program knows."""
LEVEL_MAX: Final = 7
"""The highest level whose rules this program knows. `statemachine.rules` has the rules."""
CAUSES_FROM: Final = 3
"""The level from which the metadata keep causes of operations as codes, and not as texts."""
HIERARCHIES_FROM: Final = 4
"""The level from which a log may be created with a hierarchy."""
CURSORS_FROM: Final = 4
"""The level from which ranges keep cursors."""
GROUPS_FROM: Final = 4
"""The level from which ranges take the commands of consumer groups."""
RESTORES_FROM: Final = 4
"""The level from which ranges take entries of a backup with their seqs."""
VIEWS_FROM: Final = 4
"""The level from which the metadata keep views."""
TIER_ONLY_FROM: Final = 4
"""The level from which a log may have files in the tier only."""
KAFKA_FROM: Final = 4
"""The level from which a log may have Kafka partitions."""
SCRAM_FROM: Final = 6
"""The level from which tokens may have keys for SCRAM."""
COMPACT_AND_DELETE_FROM: Final = 7
"""The level from which a log may be compacted and have a retention."""
LEVELS_END: Final = 1 << 31
"""A level in a message is below this number."""


def span(low: int, high: int) -> str:
    """Return the levels that a program knows, in words."""
    return f"level {low} alone" if low == high else f"levels {low} to {high}"


def missing(level: int, low: int = LEVEL_MIN, high: int = LEVEL_MAX) -> str | None:
    """Return why a program that knows the levels `low` to `high` cannot serve a cluster at `level`.

    None: the program can. The text says what to do.
    """
    if low <= level <= high:
        return None
    other = "a later" if level > high else "an earlier"
    return (
        f"the cluster is at feature level {level}, and this version of lognode knows "
        f"{span(low, high)}: start {other} version, which knows level {level}"
    )
