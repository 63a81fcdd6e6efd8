"""Raise the feature level of the cluster (docs/design/levels.md).

The controller's leader knows from heartbeats which levels the program of each node knows. It
proposes a level only if all nodes know it, and names in the command the process of each node that
it has heard. Apply then needs no knowledge of programs, which older members do not keep: it
refuses the command if a node has joined or started since. Both orders are safe. A registration
after the command is checked against the new level.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..client.protocol.cleanups import COMPACT_AND_DELETE
from ..client.protocol.errors import Conflict, InvalidArgument, Unsupported
from ..client.protocol.levels import (
    COMPACT_AND_DELETE_FROM,
    HIERARCHIES_FROM,
    KAFKA_FROM,
    LEVEL_MAX,
    LEVEL_MIN,
    SCRAM_FROM,
    TIER_ONLY_FROM,
    missing,
    span,
)
from ..client.protocol.scopes import Scope
from .command_fields import number
from .model import NodeRecord

if TYPE_CHECKING:
    from .metadata_state import MetadataState

Command = dict[str, Any]
_SHOWN_MAX = 10
OLDER = "before feature levels"
"""In place of the version of a program that tells none."""


class Program(NamedTuple):
    """The program that a node runs, as the node tells it with each heartbeat."""

    boot: int
    process: int
    low: int
    high: int
    version: str
    noted: int = LEVEL_MIN
    """The level that the node's data directory has noted, durably: programs that do not know this
    level do not start there."""

    @classmethod
    def of_older(cls, node: NodeRecord) -> "Program":
        """Return the program of a node that tells none: a version from before feature levels."""
        return cls(node.boot, node.process, LEVEL_MIN, LEVEL_MIN, OLDER)

    def is_of(self, node: NodeRecord) -> bool:
        """Whether the program runs in the process that is registered as the node."""
        return (self.boot, self.process) == (node.boot, node.process)


def check_known(level: int | None) -> None:
    """Raise InvalidArgument for a level that this program does not know: it could not apply it."""
    if level is not None and level > LEVEL_MAX:
        raise InvalidArgument(
            f"no feature level {level} exists for this node: its version of lognode knows "
            f"{span(LEVEL_MIN, LEVEL_MAX)}", what="level",
        )  # fmt: skip


def check_hierarchy(level: int, hierarchy: bytes) -> None:
    """Raise Unsupported for a log with a hierarchy in a cluster at a level that has none."""
    if hierarchy and level < HIERARCHIES_FROM:
        raise Unsupported(
            f"the log would have a hierarchy, and the cluster is at feature level {level}; "
            f"hierarchies need level {HIERARCHIES_FROM}. Run `lognode cluster finalize`, or create "
            "the log without a hierarchy"
        )


def check_kafka(level: int, partitions: int | None) -> None:
    """Raise Unsupported for a log with Kafka partitions in a cluster at a level that has none."""
    if partitions is not None and level < KAFKA_FROM:
        raise Unsupported(
            f"the log would have Kafka partitions, and the cluster is at feature level {level}; "
            f"partitions need level {KAFKA_FROM}. Run `lognode cluster finalize`, or create the "
            "log without partitions"
        )


def check_local_retention(level: int, rules: Mapping[str, Any]) -> None:
    """Raise Unsupported for rules of a log with files in the tier only, at a level without these.

    A leader of an earlier version would forget which files nodes have in the tier only. And a
    member of an earlier version refuses a change that names the rule, whatever the value is.
    """
    if level < TIER_ONLY_FROM and "local_retention_bytes" in rules:
        raise Unsupported(
            f"local_retention_bytes is {rules['local_retention_bytes']}, and the cluster is at "
            f"feature level {level}; the rule needs level {TIER_ONLY_FROM}. Run `lognode cluster "
            "finalize`, or leave the rule out"
        )


def check_cleanup(level: int, cleanup: object) -> None:
    """Raise Unsupported for a log that is compacted and has a retention, at a level without these:
    a member of an earlier version refuses it."""
    if level < COMPACT_AND_DELETE_FROM and cleanup == COMPACT_AND_DELETE:
        raise Unsupported(
            f"cleanup is {COMPACT_AND_DELETE}, and the cluster is at feature level {level}; this "
            f"cleanup needs level {COMPACT_AND_DELETE_FROM}. Run `lognode cluster finalize`, or "
            "give cleanup compact or delete"
        )


def check_pattern_scopes(level: int, scopes: Iterable[Scope]) -> None:
    """Raise Unsupported for a scope with a pattern in a cluster at a level without hierarchies."""
    if level < HIERARCHIES_FROM and any(scope.by_pattern for scope in scopes):
        raise Unsupported(
            f"the token would have a scope with a pattern, and the cluster is at feature level "
            f"{level}; patterns need level {HIERARCHIES_FROM}. Run `lognode cluster finalize`, or "
            "give keys or a prefix of keys"
        )


def check_scram(level: int, keys: bytes | None) -> None:
    """Raise Unsupported for a token with keys for SCRAM in a cluster at a level that has none."""
    if keys and level < SCRAM_FROM:
        raise Unsupported(
            f"the token would have keys for SCRAM, and the cluster is at feature level {level}; "
            f"SCRAM needs level {SCRAM_FROM}. Run `lognode cluster finalize`, or create the "
            "token without SCRAM, for SASL PLAIN"
        )


def begin(metadata: "MetadataState", command: Command) -> None:
    """Apply the level at which a new cluster begins; a command without a level means the first.

    The founder is the only node, and knows the level.
    """
    level = number(command, "level") or LEVEL_MIN
    if level > LEVEL_MIN:
        metadata.feature_level = level


def finalize(metadata: "MetadataState", command: Command) -> dict[str, Any]:
    """Apply a command that raises the level. A repetition changes nothing.

    Raises Conflict for a lower level, and if `nodes` has not the process of each node.
    """
    level, heard = number(command, "level"), {node: at for node, *at in command["nodes"]}
    _check_not_lower(metadata, level)
    if level > metadata.feature_level:
        for node in present(metadata):
            if heard.get(node.node_id) != [node.boot, node.process]:
                raise Conflict(
                    f"node {node.node_id} has joined or started again meanwhile: ask once more"
                )
        metadata.feature_level = level
    return {"level": metadata.feature_level}


def check_registration(metadata: "MetadataState", command: Command) -> None:
    """Raise Unsupported for a node whose program does not know the level of the cluster.

    A program from before feature levels names none: it knows the first one.
    """
    low, high = command.get("levels") or (LEVEL_MIN, LEVEL_MIN)
    if high < metadata.feature_level:
        raise Unsupported(missing(metadata.feature_level, low, high) or "")


def present(metadata: "MetadataState") -> list[NodeRecord]:
    """Return the nodes that count: all that were not removed, whether they are up or not."""
    return [node for node in metadata.nodes.values() if node.state != "REMOVED"]


def obstacles(
    metadata: "MetadataState", level: int, programs: Mapping[int, Program], alive: set[int]
) -> list[str]:
    """Return why the cluster cannot be raised to the level, one text for each node.

    `programs` are those that were heard, `alive` the nodes that were heard lately.
    """
    found = []
    for node in present(metadata):
        program = programs.get(node.node_id)
        if node.node_id not in alive:
            found.append(f"node {node.node_id} is down")
        elif program is None or not program.is_of(node):
            found.append(f"node {node.node_id} has not said which levels it knows")
        elif not program.low <= level <= program.high:
            known = span(program.low, program.high)
            found.append(f"node {node.node_id} runs version {program.version}, which knows {known}")
    return found


def reachable(metadata: "MetadataState", programs: Mapping[int, Program]) -> int | None:
    """Return the highest level that the programs of all nodes know; None: not known of each."""
    found = [programs.get(node.node_id) for node in present(metadata)]
    known = [program.high for program in found if program is not None]
    return min(known) if known and len(known) == len(found) else None


def all_noted(metadata: "MetadataState", programs: Mapping[int, Program], level: int) -> bool:
    """Whether the directories of all nodes have noted the level.

    Only then may a range rise to the level: no earlier program can meet its entries any more.
    """
    found = [programs.get(node.node_id) for node in present(metadata)]
    return all(program is not None and program.noted >= level for program in found)


def older_leader(node: int | None) -> str:
    """Return why a leader that does not know the command cannot raise the level."""
    return (
        f"the cluster stays at feature level {LEVEL_MIN}: node {node}, which leads the controller, "
        f"runs version {OLDER}. Upgrade all nodes first"
    )


def offered(metadata: "MetadataState", programs: Mapping[int, Program]) -> int | None:
    """Return the level to which the cluster can be raised now; None: it cannot be raised.

    Any node can tell this, but only the controller's leader knows which nodes are silent just now.
    """
    heard = {node.node_id for node in present(metadata) if node.state != "DEAD"}
    level = reachable(metadata, programs)
    if level is None or level <= metadata.feature_level:
        return None
    return None if obstacles(metadata, level, programs, heard) else level


def completed(
    command: Command, metadata: "MetadataState", programs: Mapping[int, Program], alive: set[int]
) -> Command:
    """Return the command as the controller's leader proposes it.

    Without a level the command raises the level as far as all nodes can. Raises Conflict, with the
    nodes that stand in the way.
    """
    level = command.get("level")
    now = metadata.feature_level
    if level is None:
        level = reachable(metadata, programs)
        if level is None or level < now or (level == now < LEVEL_MAX):
            level = max(LEVEL_MAX, now)
    _check_not_lower(metadata, level)
    against = obstacles(metadata, level, programs, alive) if level > now else []
    if against:
        more = f"; and {len(against) - _SHOWN_MAX} more" if len(against) > _SHOWN_MAX else ""
        raise Conflict(
            f"the cluster stays at feature level {now}, since not all nodes know level {level}: "
            f"{'; '.join(against[:_SHOWN_MAX])}{more}. Upgrade these nodes and start them; "
            "remove a node that never comes back: `lognode node remove`"
        )
    nodes = [
        [node.node_id, node.boot, node.process] for node in present(metadata)
    ]  # the same as in `programs`, or `obstacles` had named the node
    return {**command, "level": level, "nodes": nodes}


def _check_not_lower(metadata: "MetadataState", level: int) -> None:
    if level < metadata.feature_level:
        raise Conflict(
            f"the cluster is at feature level {metadata.feature_level}, and a level is never "
            "lowered: entries were applied by its rules"
        )
