"""Views in the metadata: names of a log's groups and cursors that appends can wait for.

An id is never given twice: a view that is deleted and registered again is another view. A view of
a group names the group by its id, and goes with the group. A repetition of a registration answers
with the view that exists; other options than those of the existing view are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ..client.protocol import characters, limits
from ..client.protocol.errors import Conflict, InvalidArgument, NotFound, Unsupported
from ..client.protocol.key_spans import Span, prefix_span
from ..client.protocol.levels import VIEWS_FROM
from ..client.protocol.limit_checks import check_limit
from ..client.protocol.views import LIVE
from .command_fields import number, text

if TYPE_CHECKING:
    from .metadata_state import MetadataState

Command = dict[str, Any]
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ViewRecord:
    """A view of a log: of a group or of a cursor."""

    view_id: int
    log_id: int
    name: str
    group_id: int
    """The group; 0: the view is of a cursor."""
    cursor: str
    """The name of the cursor, or the empty text."""
    prefix: bytes
    """A view of a cursor has the keys with this prefix. A group has its own keys."""
    policy: str
    created_ms: int
    """When the view was registered, in milliseconds since 1970."""

    def to_image(self) -> list[Any]:
        """Return the record as msgpack values."""
        return [
            self.view_id, self.log_id, self.name, self.group_id, self.cursor, self.prefix,
            self.policy, self.created_ms,
        ]  # fmt: skip

    @classmethod
    def from_image(cls, told: Any) -> Self:
        """Undo `to_image`. Raises TypeError."""
        return cls(*told)


def body_of(state: "MetadataState", record: ViewRecord) -> dict[str, Any]:
    """Return the fields of a message about the view."""
    group = state.groups.get(record.group_id)
    keys = {"prefix": record.prefix, "patterns": None} if group is None else {
        name: value for name, value in group.to_body().items() if name in ("prefix", "patterns")
    }  # fmt: skip
    return {
        "id": record.view_id, "name": record.name, "group": None if group is None else group.name,
        "cursor": record.cursor or None, **keys, "policy": record.policy,
        "created_ms": record.created_ms,
    }  # fmt: skip


def spans_of(state: "MetadataState", record: ViewRecord) -> list[Span]:
    """Return the spans that have the keys of the view."""
    group = state.groups.get(record.group_id)
    return [prefix_span(record.prefix)] if group is None else group.spans


def check_level(level: int) -> None:
    """Raise Unsupported in a cluster at a level that has no views."""
    if level < VIEWS_FROM:
        raise Unsupported(
            f"the cluster is at feature level {level}, and views need level {VIEWS_FROM}. Run "
            "`lognode cluster finalize` when all nodes run this version"
        )


def check_new(command: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a view that must not come into the log."""
    name = command["name"]
    if not characters.is_fit(name) or not characters.is_printable(name):
        raise InvalidArgument(
            f"the view name {name!a} has a blank or an unprintable character; use letters, "
            "digits and `/ - _ .`", what="name",
        )  # fmt: skip
    if (command["group"] is None) == (command["cursor"] is None):
        raise InvalidArgument("a view is of a group or of a cursor; give one of them", what="group")
    if command["group"] is not None and command["prefix"]:
        raise InvalidArgument(
            "the view of a group has the keys of the group; leave out the prefix", what="prefix"
        )
    if command["group"] is None and command["policy"] == LIVE:
        raise InvalidArgument(
            "a cursor has no consumers that live; the policy `live` is for groups", what="policy"
        )


def register(state: "MetadataState", command: Command) -> Answer:
    """Register a view of a log, or answer with the equal view that exists.

    Raises LogNotFound, NotFound for an unknown group, Unsupported, LimitExceeded; Conflict if the
    view exists with other options.
    """
    check_level(state.feature_level)
    log_name, name = text(command, "log"), text(command, "name")
    log_id, group_id = state.log_named(log_name).log_id, 0
    if command.get("group") is not None:
        group = state.groups.named(log_id, text(command, "group"))
        if group is None:
            raise NotFound(
                f"log {log_name} has no group {command['group']!r}; create the group first",
                group=command["group"],
            )
        group_id = group.group_id
    asked: dict[str, Any] = {
        "group_id": group_id, "cursor": command.get("cursor") or "",
        "prefix": command.get("prefix") or b"", "policy": text(command, "policy"),
    }  # fmt: skip
    known = state.views.named(log_id, name)
    if known is not None:
        differing = [field for field, value in asked.items() if getattr(known, field) != value]
        if differing:
            raise Conflict(
                f"the view {name!r} exists with another {differing[0].removesuffix('_id')}; use "
                "another name, or delete the view",
                view=name,
            )
        return body_of(state, known)
    here, everywhere = len(state.views.of_log(log_id)) + 1, len(state.views) + 1
    check_limit(
        "views_per_log_max", limits.views_per_log_max, here,
        f"log {log_name} would have {here} views", "Delete views that are not in use",
    )  # fmt: skip
    check_limit(
        "views_of_cluster_max", limits.views_of_cluster_max, everywhere,
        f"the cluster would have {everywhere} views", "Delete views that are not in use",
    )  # fmt: skip
    view_id = state.next_ids.get("view", 1)
    state.next_ids["view"] = view_id + 1
    record = ViewRecord(view_id, log_id, name, created_ms=number(command, "at_ms"), **asked)
    state.views[view_id] = record
    return body_of(state, record)


def delete(state: "MetadataState", command: Command) -> Answer:
    """Delete a view. Raises LogNotFound; NotFound if the view is gone."""
    log_name, name = text(command, "log"), text(command, "name")
    known = state.views.named(state.log_named(log_name).log_id, name)
    if known is None:
        raise missing(log_name, name)
    _forget(state, known)
    return {"id": known.view_id}


def forget_log(state: "MetadataState", log_id: int) -> None:
    """Delete all views of a log that goes."""
    for record in state.views.of_log(log_id):
        _forget(state, record)


def forget_group(state: "MetadataState", group_id: int) -> None:
    """Delete all views of a group that goes."""
    log_id = state.groups[group_id].log_id
    for record in state.views.of_log(log_id):
        if record.group_id == group_id:
            _forget(state, record)


def missing(log: str, name: str) -> NotFound:
    """Return the error of a view that does not exist."""
    return NotFound(
        f"log {log} has no view {name!r}; `lognode view list {log}` shows all views", view=name
    )


def _forget(state: "MetadataState", record: ViewRecord) -> None:
    """Remove a view and count it, so that no view disappears without a trace."""
    del state.views[record.view_id]
    state.views_deleted += 1
