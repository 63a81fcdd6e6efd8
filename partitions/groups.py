"""Consumer groups in the metadata: which groups a log has, what they read, and by which rules.

The progress of a group is in the ranges of its log (`statemachine.groups`), under the id of the
group. An id is never given twice: a group that is deleted and created again is another group, and
the ranges forget the state of the id that is gone.

A repetition of a creation answers with the group that exists. A creation with other options than
those of the existing group is refused, and changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from ..client.protocol import characters, limits, log_names
from ..client.protocol.errors import Conflict, InvalidArgument, NotFound, Unsupported
from ..client.protocol.groups import BY_ENTRY, BY_KEY, DEAD_LETTER, LATEST, PARK, TIME
from ..client.protocol.key_spans import Span, prefix_span
from ..client.protocol.levels import GROUPS_FROM
from ..client.protocol.limit_checks import check_limit
from ..client.protocol.patterns import Patterns, patterns_of
from . import views
from .command_fields import number, text

if TYPE_CHECKING:
    from .metadata_state import MetadataState

Command = dict[str, Any]
Answer = dict[str, Any]
_SHOWN_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A consumer group of a log. Times are milliseconds since 1970."""

    group_id: int
    log_id: int
    name: str
    prefix: bytes
    """The group reads the keys with this prefix."""
    separator: bytes
    """The hierarchy of the log for which the patterns were made."""
    patterns: tuple[bytes, ...]
    """The group reads the keys that match; empty: all keys with the prefix."""
    max_deliveries: int
    """Failed deliveries of an entry after which `on_dead` applies."""
    on_dead: str
    """`park`, or `dead_letter:` and the name of a log."""
    lease_ms: int
    begin: str
    """`earliest`, `latest` or `time`."""
    begin_ms: int
    """The group reads the entries from this time on; 0: all entries. A range in which the group
    has not begun looks for the first such entry."""
    waits: bool
    """Whether retention keeps entries that are not done."""
    created_ms: int
    ordering: str = BY_KEY
    """`key`: a key is with at most one consumer at a time. `none`: an entry is."""

    @property
    def by_entry(self) -> bool:
        """Whether consumers get single entries, in any order."""
        return self.ordering == BY_ENTRY

    @property
    def options(self) -> dict[str, Any]:
        """Return what a creation chooses, as `options_of` returns it."""
        return {
            "prefix": self.prefix,
            "separator": self.separator if self.patterns else b"",
            "patterns": self.patterns,
            "max_deliveries": self.max_deliveries,
            "on_dead": self.on_dead,
            "lease_ms": self.lease_ms,
            "begin": self.begin,
            "begin_ms": self.begin_ms if self.begin == TIME else 0,
            "waits": self.waits,
            "ordering": self.ordering,
        }

    @property
    def dead_letters(self) -> str | None:
        """Return the name of the log for entries that failed too often; None: their keys park."""
        return dead_letters(self.on_dead)

    @property
    def spans(self) -> list[Span]:
        """Return the spans that have the keys of the group: disjoint, in the order of keys."""
        chosen = self.selector
        return [prefix_span(self.prefix)] if chosen is None else chosen.spans

    @property
    def selector(self) -> Patterns | None:
        """Return what a key must match; None: the prefix alone chooses."""
        return patterns_of(self.separator, self.patterns) if self.patterns else None

    def to_image(self) -> list[Any]:
        """Return the record as msgpack values."""
        return [
            self.group_id, self.log_id, self.name, self.prefix, self.separator,
            list(self.patterns), self.max_deliveries, self.on_dead, self.lease_ms, self.begin,
            self.begin_ms, self.waits, self.created_ms, *[self.ordering] * self.by_entry,
        ]  # fmt: skip

    @classmethod
    def from_image(cls, told: Any) -> Self:
        """Undo `to_image`. Raises TypeError or ValueError."""
        group_id, log_id, name, prefix, separator, patterns, *others = told
        return cls(group_id, log_id, name, prefix, separator, tuple(patterns), *others)

    def to_body(self) -> dict[str, Any]:
        """Return the fields of a message about the group."""
        patterns = [self.separator, list(self.patterns)] if self.patterns else None
        return {
            "id": self.group_id, "name": self.name, "prefix": self.prefix, "patterns": patterns,
            "max_deliveries": self.max_deliveries, "on_dead": self.on_dead,
            "lease_ms": self.lease_ms, "begin": self.begin, "begin_ms": self.begin_ms,
            "waits": self.waits, "created_ms": self.created_ms, "ordering": self.ordering,
        }  # fmt: skip


def dead_letters(on_dead: str) -> str | None:
    """Return the log that `on_dead` names, or None."""
    return on_dead.removeprefix(DEAD_LETTER) if on_dead.startswith(DEAD_LETTER) else None


def check_level(level: int) -> None:
    """Raise Unsupported in a cluster at a level that has no groups."""
    if level < GROUPS_FROM:
        raise Unsupported(
            f"the cluster is at feature level {level}, and consumer groups need level "
            f"{GROUPS_FROM}. Run `lognode cluster finalize` when all nodes run this version"
        )


def check_new(command: Mapping[str, Any], hierarchy: bytes | None = None) -> None:
    """Raise InvalidArgument or LimitExceeded for a group that must not come into the log.

    Apply asks none of this: patterns are parsed by code that may change between versions.
    """
    name = command["name"]
    if not characters.is_fit(name) or not characters.is_printable(name):
        raise InvalidArgument(
            f"the group name {name!a} has a blank or an unprintable character; use letters, "
            "digits and `/ - _ .`", what="name",
        )  # fmt: skip
    row = command.get("patterns")
    if row is not None:
        separator, texts = row
        patterns_of(separator, texts)
        if command["prefix"]:
            raise InvalidArgument(
                "the group has a prefix and patterns; give one of them", what="patterns"
            )
        if hierarchy is not None and separator != hierarchy:
            raise InvalidArgument(
                f"the patterns are for the separator {separator!r}, and the log has "
                f"{hierarchy!r}; ask for the log again", what="patterns",
            )  # fmt: skip
    if command["begin"] != TIME and command["begin_ms"]:
        raise InvalidArgument(
            f"the group begins at `{command['begin']}` and has a time; a time needs `{TIME}`",
            what="begin_ms",
        )
    _check_on_dead(command["on_dead"])


def _check_on_dead(on_dead: str) -> None:
    if on_dead == PARK:
        return
    target = dead_letters(on_dead)
    if target is None:
        raise InvalidArgument(
            f"`on_dead` is {on_dead!r}; give `{PARK}`, or `{DEAD_LETTER}` and the name of a log",
            what="on_dead",
        )
    log_names.check_new(target)


def create(state: "MetadataState", command: Command) -> Answer:
    """Create a group of a log, or answer with the equal group that exists.

    Raises LogNotFound, Unsupported, InvalidArgument, LimitExceeded; Conflict if the group exists
    with other options.
    """
    check_level(state.feature_level)
    log_id = state.log_named(text(command, "log")).log_id
    name = text(command, "name")
    if not 1 <= len(name) <= limits.group_name_chars_max or not characters.is_fit(name):
        raise InvalidArgument(
            f"the group name is {name!r}; give 1 to {limits.group_name_chars_max} characters "
            "without blanks", what="name",
        )  # fmt: skip
    asked = options_of(command)
    known = state.groups.named(log_id, name)
    if known is not None:
        _check_same(known, asked)
        return {**known.to_body(), "created": False}
    _check_dead_letters(state, log_id, asked["on_dead"])
    here, everywhere = len(state.groups.of_log(log_id)) + 1, len(state.groups) + 1
    check_limit(
        "groups_per_log_max", limits.groups_per_log_max, here,
        f"log {command['log']} would have {here} groups", "Delete groups that are not in use",
    )  # fmt: skip
    check_limit(
        "groups_of_cluster_max", limits.groups_of_cluster_max, everywhere,
        f"the cluster would have {everywhere} groups", "Delete groups that are not in use",
    )  # fmt: skip
    group_id = state.next_ids.get("group", 1)
    state.next_ids["group"] = group_id + 1
    created_ms = number(command, "at_ms")
    if asked["begin"] == LATEST:
        asked["begin_ms"] = created_ms
    record = GroupRecord(group_id, log_id, name, created_ms=created_ms, **asked)
    state.groups[group_id] = record
    return {**record.to_body(), "created": True}


def delete(state: "MetadataState", command: Command) -> Answer:
    """Delete a group. With `id`, only the group with that id.

    Raises LogNotFound; NotFound if the group is gone.
    """
    log_name, name = text(command, "log"), text(command, "name")
    log_id, wanted = state.log_named(log_name).log_id, command.get("id")
    known = state.groups.named(log_id, name)
    if known is None or wanted not in (None, known.group_id):
        raise missing(log_name, name)
    forget(state, known)
    return {"id": known.group_id}


def forget_log(state: "MetadataState", log_id: int) -> None:
    """Delete all groups of a log that goes."""
    for record in state.groups.of_log(log_id):
        forget(state, record)


def forget(state: "MetadataState", record: GroupRecord) -> None:
    """Remove a group and its views, and count it, so that no group disappears without a trace."""
    views.forget_group(state, record.group_id)
    del state.groups[record.group_id]
    state.groups_deleted += 1


def missing(log: str, name: str) -> NotFound:
    """Return the error of a group that does not exist."""
    return NotFound(
        f"log {log} has no group {name!r}; `lognode group list {log}` shows all groups",
        group=name,
    )


def options_of(command: Command) -> dict[str, Any]:
    """Return what a creation chooses, by the fields of `GroupRecord`."""
    separator, patterns = command.get("patterns") or (b"", ())
    return {
        "prefix": command.get("prefix") or b"",
        "separator": separator,
        "patterns": tuple(patterns),
        "max_deliveries": command["max_deliveries"],
        "on_dead": command["on_dead"],
        "lease_ms": command["lease_ms"],
        "begin": command["begin"],
        "begin_ms": number(command, "begin_ms"),
        "waits": bool(command.get("waits")),
        "ordering": command.get("ordering", BY_KEY),
    }


def _check_same(known: GroupRecord, asked: Mapping[str, Any]) -> None:
    """Raise Conflict, with both values of the first options that differ."""
    differing = [
        f"{name} {_shown(value)}, and the request says {_shown(asked[name])}"
        for name, value in known.options.items()
        if asked[name] != value
    ]
    if differing:
        raise Conflict(
            f"the group {known.name!r} exists with {'; '.join(differing)}. Use the options of the "
            "group, or delete the group",
            group=known.name,
        )  # fmt: skip


def _check_dead_letters(state: "MetadataState", log_id: int, on_dead: str) -> None:
    """Raise NotFound or InvalidArgument if dead letters would go to no log, or to the same one."""
    named = dead_letters(on_dead)
    if named is None:
        return
    target = state.log_named(named)
    if target.log_id == log_id:
        raise InvalidArgument(
            f"dead letters of a group of log {target.name} would go to the same log; give "
            "another log", what="on_dead",
        )  # fmt: skip


def _shown(value: Any) -> str:
    return repr(list(value) if isinstance(value, tuple) else value)[:_SHOWN_MAX]
