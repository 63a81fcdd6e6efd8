"""The policy of a log: how many replicas it has, and what may be removed of it, and when.

A log is kept bounded in one of two ways. `cleanup=delete` forgets what is old: by time, by bytes,
or below a key's logical snapshot. `cleanup=compact` keeps of each key the last entry for ever. The
two exclude each other: retention would remove the very entry that compaction promises to keep.

Apply never reads a policy. The leader of a range does, and proposes what follows from it
(x2.22).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from ..client.protocol import limits
from ..client.protocol.errors import InvalidArgument
from ..client.protocol.kinds import INTEGER_MAX, Integer, shown

CLEANUPS: Final = ("delete", "compact")
_NUMBER: Final = Integer()
delete_retention_default_ms: Final = 24 * 3_600 * 1_000


@dataclass(frozen=True, slots=True)
class Policy:
    """A log's policy. Ages are in milliseconds; None: no such rule."""

    replicas: int = 3
    retention_ms: int | None = None
    """Entries older than this may go, whole segments at a time."""
    retention_bytes: int | None = None
    """Of each range at least so many bytes of segments stay, the newest; what is older may go."""
    cleanup: str = "delete"
    """One of CLEANUPS."""
    delete_retention_ms: int | None = None
    """With `compact`: how long tombstones stay; None: `delete_retention_default_ms`."""
    snapshot_delay_ms: int | None = None
    """What a key had before a logical snapshot goes so long after the snapshot."""
    split_bytes: int | None = limits.split_bytes_default
    """A range with more bytes of segments is split; None: never by itself."""
    split_rate: int | None = limits.split_rate_default
    """A range whose leader appends more records and answers more reads a second is split where
    they halve; None: never for its load."""
    ranges_min: int = 1

    @property
    def removes(self) -> bool:
        """Whether anything is ever removed because of this policy."""
        rules = (self.retention_ms, self.retention_bytes, self.snapshot_delay_ms)
        return self.cleanup == "compact" or rules != (None, None, None)

    @property
    def tombstones_ms(self) -> int:
        """How long compaction keeps a tombstone. Never more than a command can say: an old
        version took a larger number."""
        given = self.delete_retention_ms
        return delete_retention_default_ms if given is None else min(given, INTEGER_MAX)

    def to_image(self) -> dict[str, Any]:
        """Return all rules by name, as msgpack values."""
        return {name: getattr(self, name) for name in _RULES}

    def to_body(self) -> dict[str, Any]:
        """As clients see it."""
        body = self.to_image()
        del body["ranges_min"]
        return body


_RULES: Final = tuple(each.name for each in fields(Policy))


ALTERABLE: Final = ("retention_ms", "retention_bytes", "cleanup", "delete_retention_ms",
                    "snapshot_delay_ms", "split_bytes", "split_rate")  # fmt: skip
_LEAST: Final[Mapping[str, int]] = {
    "retention_ms": 1, "retention_bytes": 1, "delete_retention_ms": 0, "snapshot_delay_ms": 0,
    "split_bytes": limits.split_bytes_min, "split_rate": limits.split_rate_min,
}  # fmt: skip
"""The least value of each rule that is a number."""
_ABSENT_WHEN_NIL: Final = ("split_bytes", "split_rate")
"""Rules that are there by default, so that nil takes them away."""


def of_request(body: Mapping[str, Any]) -> Policy:
    """The policy of a log that is created: what is missing has its default, and so has what is nil
    but for rules whose default is no absence. Raises InvalidArgument.
    """
    replicas = body.get("replicas") or 3
    if type(replicas) is not int or not 1 <= replicas <= limits.replicas_max:
        raise InvalidArgument(
            f"{replicas!r} replicas; 1 to {limits.replicas_max} are allowed", what="replicas"
        )
    given = {name: body[name] for name in ALTERABLE if body.get(name) is not None}
    given |= {name: None for name in _ABSENT_WHEN_NIL if name in body and body[name] is None}
    return _checked(replace(Policy(replicas=replicas), **given))


def altered(policy: Policy, changes: object) -> Policy:
    """The policy with `changes`, a map of names to new values; nil takes a rule away.

    Raises InvalidArgument.
    """
    names = _names(changes)
    values = {name: value for name, value in names.items() if name != "cleanup"}
    cleanup = names.get("cleanup", policy.cleanup) or "delete"
    return _checked(replace(policy, cleanup=cleanup, **values))


def check_changes(changes: object) -> dict[str, Any]:
    """The changes, each of them within bounds by itself. Raises InvalidArgument.

    Whether they go together with the rest of the policy is seen when they are applied.
    """
    return {name: check_rule(name, value) for name, value in _names(changes).items()}


def check_rule(name: str, value: object) -> Any:
    """The value of one rule, or of `replicas`. Raises InvalidArgument."""
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
        if name in ("replicas", "ranges"):
            raise InvalidArgument(
                f"the {name} of a log cannot be altered: create a log that has them as you want, "
                "and append to that one",
                what=name,
            )
        if name not in ALTERABLE:
            raise InvalidArgument(
                f"no policy {name!r:.100}; {', '.join(ALTERABLE)} can be altered", what="changes"
            )
    if not changes:
        raise InvalidArgument(
            f"nothing to alter; give one of {', '.join(ALTERABLE)}", what="changes"
        )
    return changes


def _checked(policy: Policy) -> Policy:
    """Applying a command comes here too: what it has accepted once it accepts for ever."""
    _check_cleanup(policy.cleanup)
    for name in _LEAST:
        value = getattr(policy, name)
        if value is not None:
            _check_number(name, value)
    if policy.cleanup == "compact":
        for name in ("retention_ms", "retention_bytes", "snapshot_delay_ms"):
            if getattr(policy, name) is not None:
                raise InvalidArgument(
                    f"cleanup compact with {name} {getattr(policy, name)}: compaction keeps the "
                    f"last entry of each key for ever, {name} would remove it; take one of them "
                    "away",
                    what=name,
                )
    elif policy.delete_retention_ms is not None:
        raise InvalidArgument(
            "delete_retention_ms is how long compaction keeps tombstones; it needs cleanup "
            "compact: give that too, or take delete_retention_ms away",
            what="delete_retention_ms",
        )
    return policy


def _check_cleanup(value: object) -> None:
    if value not in CLEANUPS:
        raise InvalidArgument(
            f"cleanup {value!r:.100}; {' or '.join(CLEANUPS)} is allowed", what="cleanup"
        )


def _check_number(name: str, value: object) -> None:
    least = _LEAST[name]
    if type(value) is not int or value < least:
        raise InvalidArgument(
            f"{name} is {shown(value)}; give a whole number of {least} or more, or leave it "
            "out for none",
            what=name,
        )
