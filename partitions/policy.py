"""The policy of a log: how many replicas it has, which data may be removed, and when.

A log is kept bounded in one of three ways. `cleanup=delete` removes old data: by time, by bytes, or
below a key's logical snapshot. `cleanup=compact` keeps the last entry of each key for ever, so a
retention is refused, which would remove the very entry that compaction promises to keep.
`cleanup=compact,delete` keeps the last entry of each key as long as the retention keeps it.

Apply never reads a policy. The leader of a range reads the policy, and proposes what follows from
it (x2.22).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from ..client.protocol import cleanups, limits
from ..client.protocol.cleanups import CLEANUPS, COMPACT_AND_DELETE
from ..client.protocol.errors import InvalidArgument
from ..client.protocol.kinds import INTEGER_MAX, Integer, shown

_NUMBER: Final = Integer()
delete_retention_default_ms: Final = 24 * 3_600 * 1_000


@dataclass(frozen=True, slots=True)
class Policy:
    """A log's policy. Ages are in milliseconds; None means no such rule."""

    replicas: int = 3
    retention_ms: int | None = None
    """Entries older than this may go, whole segments at a time."""
    retention_bytes: int | None = None
    """The least bytes of segments that stay in each range, the newest; older segments may go."""
    cleanup: str = "delete"
    """One of CLEANUPS."""
    delete_retention_ms: int | None = None
    """With compaction, how long tombstones stay; None: `delete_retention_default_ms`."""
    snapshot_delay_ms: int | None = None
    """Entries of a key before a logical snapshot are removed this long after the snapshot."""
    split_bytes: int | None = limits.split_bytes_default
    """A range with more bytes of segments is split; None: never automatically."""
    split_rate: int | None = limits.split_rate_default
    """A range whose leader handles more appended records and answered reads a second is split where
    they halve; None: never for its load."""
    ranges_min: int = 1
    kafka_partitions: int | None = None
    """The fixed number of Kafka partitions (`client.protocol.key_partitions`); None: the log has no
    partitions."""
    local_retention_bytes: int | None = None
    """A node with a tier keeps about so many bytes of segments of each range on its own disk, the
    newest. Older segments are in the tier only. None: all segments are on the disks too."""

    @property
    def removes(self) -> bool:
        """Whether this policy ever removes anything."""
        rules = (self.retention_ms, self.retention_bytes, self.snapshot_delay_ms)
        return self.compacts or rules != (None, None, None)

    @property
    def compacts(self) -> bool:
        """Whether only the last entry of each key stays."""
        return cleanups.compacts(self.cleanup)

    @property
    def tombstones_ms(self) -> int:
        """Return how long compaction keeps a tombstone.

        The value never exceeds what a command can hold: an old version accepted larger numbers.
        """
        given = self.delete_retention_ms
        return delete_retention_default_ms if given is None else min(given, INTEGER_MAX)

    def to_image(self) -> dict[str, Any]:
        """Return all rules by name, as msgpack values."""
        body = {name: getattr(self, name) for name in _RULES}
        for name in ("kafka_partitions", "local_retention_bytes"):
            if body[name] is None:  # as earlier versions write a policy
                del body[name]
        return body

    def to_body(self) -> dict[str, Any]:
        """Return the policy as clients see it."""
        body = self.to_image()
        del body["ranges_min"]
        return body


_RULES: Final = tuple(each.name for each in fields(Policy))


ALTERABLE: Final = ("retention_ms", "retention_bytes", "cleanup", "delete_retention_ms",
                    "snapshot_delay_ms", "split_bytes", "split_rate",
                    "local_retention_bytes")  # fmt: skip
_LEAST: Final[Mapping[str, int]] = {
    "retention_ms": 1, "retention_bytes": 1, "delete_retention_ms": 0, "snapshot_delay_ms": 0,
    "split_bytes": limits.split_bytes_min, "split_rate": limits.split_rate_min,
    "local_retention_bytes": 1,
}  # fmt: skip
"""The least value of each numeric rule."""
_ABSENT_WHEN_NIL: Final = ("split_bytes", "split_rate")
"""Rules that exist by default, so that nil removes them."""


def of_request(body: Mapping[str, Any]) -> Policy:
    """Return the policy of a log that is created. Raises InvalidArgument.

    A missing rule has its default. So has a rule whose value is nil, except rules that nil removes.
    """
    replicas = body.get("replicas") or 3
    if type(replicas) is not int or not 1 <= replicas <= limits.replicas_max:
        raise InvalidArgument(
            f"a log would have {replicas!r} replicas; 1 to {limits.replicas_max} are allowed",
            what="replicas",
        )
    given = {name: body[name] for name in ALTERABLE if body.get(name) is not None}
    given |= {name: None for name in _ABSENT_WHEN_NIL if name in body and body[name] is None}
    partitions = check_partitions(body.get("kafka_partitions"))
    return _checked(replace(Policy(replicas=replicas, kafka_partitions=partitions), **given))


def check_partitions(count: object) -> int | None:
    """Return the number of Kafka partitions of a new log. Raises InvalidArgument."""
    if count is None:
        return None
    if type(count) is not int or not 1 <= count <= limits.kafka_partitions_max:
        raise InvalidArgument(
            f"kafka_partitions is {count!r:.100}; 1 to {limits.kafka_partitions_max} are allowed",
            what="kafka_partitions",
        )
    return count


def altered(policy: Policy, changes: object) -> Policy:
    """Return the policy with `changes`, a map of names to new values; nil removes a rule.

    Raises InvalidArgument.
    """
    names = _names(changes)
    values = {name: value for name, value in names.items() if name != "cleanup"}
    cleanup = names.get("cleanup", policy.cleanup) or "delete"
    return _checked(replace(policy, cleanup=cleanup, **values))


def check_changes(changes: object) -> dict[str, Any]:
    """Return the changes, each checked by itself. Raises InvalidArgument.

    Whether they fit the rest of the policy is checked when they are applied.
    """
    return {name: check_rule(name, value) for name, value in _names(changes).items()}


def check_rule(name: str, value: object) -> Any:
    """Return the checked value of one rule, or of `replicas`. Raises InvalidArgument."""
    if value is None:
        return None
    if name == "cleanup":
        _check_cleanup(value)
    elif name == "replicas":
        _NUMBER.check(value, name)
    else:
        _check_number(name, value)
        _NUMBER.check(value, name)
    return value


def _names(changes: object) -> Mapping[str, Any]:
    if not isinstance(changes, Mapping):
        raise InvalidArgument("`changes` must be a map of names to new values", what="changes")
    for name in changes:
        if name in ("replicas", "ranges", "kafka_partitions"):
            raise InvalidArgument(
                f"the {name} of a log cannot change: create another log with the wanted "
                f"{name}, and append to that log",
                what=name,
            )
        if name not in ALTERABLE:
            raise InvalidArgument(
                f"the policy {name!r:.100} does not exist; {', '.join(ALTERABLE)} can change",
                what="changes",
            )
    if not changes:
        raise InvalidArgument(
            f"no change is given; give one of {', '.join(ALTERABLE)}", what="changes"
        )
    return changes


def _checked(policy: Policy) -> Policy:
    """Check the whole policy.

    Applying uses this too, so it must always accept what it once accepted.
    """
    _check_cleanup(policy.cleanup)
    for name in _LEAST:
        value = getattr(policy, name)
        if value is not None:
            _check_number(name, value)
    if policy.compacts:
        _check_compacted(policy)
    elif policy.delete_retention_ms is not None:
        raise InvalidArgument(
            "delete_retention_ms is the time that compaction keeps tombstones and needs "
            f"cleanup compact or {COMPACT_AND_DELETE}: give one of these too, or unset "
            "delete_retention_ms",
            what="delete_retention_ms",
        )
    return policy


def _check_compacted(policy: Policy) -> None:
    retention = ("retention_ms", "retention_bytes") if policy.cleanup == "compact" else ()
    for name in retention:
        if getattr(policy, name) is not None:
            raise InvalidArgument(
                f"cleanup is compact and {name} is {getattr(policy, name)}: compaction "
                f"keeps the last entry of each key for ever, and {name} would remove "
                f"it; unset one of the two, or give cleanup {COMPACT_AND_DELETE}",
                what=name,
            )
    if policy.snapshot_delay_ms is not None:
        raise InvalidArgument(
            f"cleanup is {policy.cleanup} and snapshot_delay_ms is {policy.snapshot_delay_ms}: "
            "compaction keeps the last entry of each key, which is all that a logical snapshot "
            "would leave; unset one of the two",
            what="snapshot_delay_ms",
        )
    if policy.local_retention_bytes is not None:
        raise InvalidArgument(
            f"cleanup is {policy.cleanup} and local_retention_bytes is "
            f"{policy.local_retention_bytes}: compaction rewrites the oldest segments, which "
            "local_retention_bytes leaves in the tier only; unset one of the two",
            what="local_retention_bytes",
        )


def _check_cleanup(value: object) -> None:
    if value not in CLEANUPS:
        raise InvalidArgument(
            f"cleanup is {value!r:.100}; {' or '.join(CLEANUPS)} is allowed", what="cleanup"
        )


def _check_number(name: str, value: object) -> None:
    least = _LEAST[name]
    if type(value) is not int or value < least:
        raise InvalidArgument(
            f"{name} is {shown(value)}; give a whole number of {least} or more, or leave "
            "the option out for no limit",
            what=name,
        )
