"""Heartbeats: whom a node asks for news of the metadata, and what the controller's leader keeps.

Every node asks the controller's leader for news twice a second, and so shows that it is alive. None
of this is needed for safety (docs/design/ranges.md#metadata).
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from ...client.protocol import limits
from ...partitions.facts import Facts
from ...partitions.lifecycle import is_removed
from ...partitions.metadata import Metadata
from ...partitions.planner import Damage, Large
from ...partitions.proposals import readable
from ...partitions.shrinking import Small
from ...raft.types import GroupId

PERIOD_S: Final = 0.5

Version = tuple[int, int]
"""The order of images: the controller's generation, then its count of changes."""


class Told(NamedTuple):
    """What a node reports of itself, as far as the planner uses it."""

    damaged: Sequence[Damage]
    large: Sequence[Large] = ()
    small: Sequence[Small] = ()
    stored: Mapping[str, int] = {}


def next_to_ask(metadata: Metadata, node_id: int, turn: int) -> int | None:
    """Return the node to ask while no leader of the controller is known; None: there is no other.

    `turn` counts the questions. The controller's members and all other nodes take turns, since the
    members may have changed (x29).
    """
    others = [
        node.node_id
        for node in metadata.nodes.values()
        if node.node_id != node_id and node.state != "REMOVED"
    ]
    members = [node for node in metadata.controller.members if node != node_id]
    asked = members if members and turn % 2 else others
    return asked[turn // 2 % len(asked)] if asked else None


def version_of(metadata: Metadata) -> Version:
    """Return where the image is in the order of images."""
    return metadata.controller.generation, metadata.version


def has_news(metadata: Metadata, has: Version) -> bool:
    """Whether a node with that image needs a newer one."""
    return version_of(metadata) > has


def is_heard(node: int, metadata: Metadata) -> bool:
    """Whether the leader keeps what a node reports: a removed node gets the news only."""
    return not is_removed(node, metadata.nodes)


def damage_told(replicas: Mapping[GroupId, str]) -> list[Damage]:
    """Return the replicas and the reasons why they stopped, as a heartbeat carries them.

    The receiver refuses a report with more rows or a longer reason, and a node that nobody hears
    is DEAD.
    """
    return [
        (gid.range_id, gid.generation, _cut(readable(why)))
        for gid, why in islice(replicas.items(), limits.told_rows_max)
    ]


def _cut(reason: str) -> str:
    return reason.encode()[: limits.told_reason_bytes_max].decode(errors="ignore")


def keep(facts: Facts, node: int, told: Told) -> None:
    """Keep what a node has reported, in place of its earlier report."""
    facts.learn(
        node, damaged=list(told.damaged), large=list(told.large), small=list(told.small),
        stored=told.stored,
    )  # fmt: skip
