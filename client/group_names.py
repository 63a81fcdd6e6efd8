"""The names of consumer groups: find, create, delete and list the groups of a log."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from .cluster import Body, Cluster, LogRoutes
from .key_choice import chosen
from .protocol import limits
from .protocol.errors import Conflict, InvalidArgument, NotFound
from .protocol.groups import GROUP_CREATE, GROUP_DECIDE, GROUP_DELETE, GROUP_LIST, TIME
from .protocol.key_spans import Span, prefix_span
from .protocol.patterns import patterns_of
from .protocol.types import GroupInfo, Pattern


async def found(cluster: Cluster, log: str, name: str, deadline: float) -> GroupInfo:
    """Return the group of that name. Raises LogNotFound, NotFound."""
    listed_ = await listed(cluster, log, deadline, name)
    if not listed_:
        raise NotFound(
            f"log {log!r} has no consumer group {name!r}; `lognode group list` shows the groups. A "
            "group is created when a consumer begins",
            group=name,
        )
    return listed_[0]


async def listed(
    cluster: Cluster, log: str, deadline: float, name: str | None = None
) -> list[GroupInfo]:
    """Return the groups of a log by name. Raises LogNotFound."""
    body = {"log": log, "name": name}
    answer = await cluster.call_any(GROUP_LIST, body, deadline=deadline)
    return list(map(info_of, answer["groups"]))


async def created(
    cluster: Cluster, routes: LogRoutes, name: str, options: Mapping[str, Any],
    prefix: bytes | str | None, pattern: Pattern | None, deadline: float,
) -> tuple[GroupInfo, bool]:  # fmt: skip
    """Do as `opened` for a group of a prefix or patterns; None: the caller has not chosen."""
    group = dict(options)
    if prefix is not None or pattern is not None:
        choice = await chosen(cluster, routes, prefix, pattern, deadline)
        patterns = choice.patterns
        group["prefix"] = b"" if patterns is not None else choice.prefixes[0]
        group["patterns"] = None if patterns is None else patterns.to_wire()
    return await opened(cluster, routes.name, name, group, deadline)


async def opened(
    cluster: Cluster, log: str, name: str, options: Mapping[str, Any], deadline: float
) -> tuple[GroupInfo, bool]:
    """Return the group of that name, and whether this call has created it.

    `options` has the fields of GROUP_CREATE that the caller has chosen; those of an existing group
    must be equal. Raises Conflict, with both values; LogNotFound, LimitExceeded, Unsupported.
    """
    while True:
        there = await listed(cluster, log, deadline, name)
        if there:
            _check_same(there[0], options)
            return there[0], False
        try:
            body = {"log": log, "name": name, **options}
            answer = await cluster.call_any(GROUP_CREATE, body, deadline=deadline)
        except Conflict as error:
            # Another consumer has created the group since, maybe with other defaults.
            if error.fields.get("group") != name:
                raise
            continue
        return info_of(answer), bool(answer["created"])


async def deleted(
    cluster: Cluster, log: str, name: str, group_id: int | None, deadline: float
) -> None:
    """Delete a group. Raises LogNotFound, NotFound."""
    body = {"log": log, "name": name, "id": group_id}
    await cluster.call_any(GROUP_DELETE, body, deadline=deadline)


async def begun(cluster: Cluster, routes: LogRoutes, name: str, deadline: float) -> GroupInfo:
    """Let the group of that name begin in each range where it has not begun. Raises NotFound."""
    info = await found(cluster, routes.name, name, deadline)
    first, end = hull(info)
    at: bytes | None = first
    while at is not None and (end is None or at < end):
        body = {"group": info.id}  # no decision: the leader begins to lease
        _, known = await cluster.call(routes, at, GROUP_DECIDE, body, deadline=deadline)
        at = known.end
    return info


def info_of(row: Body) -> GroupInfo:
    """Return a group from a checked answer."""
    separator, texts = row["patterns"] or (b"", ())
    begins_at = row["begin_ms"] if row["begin"] == TIME else None
    return GroupInfo(
        row["id"], row["name"], row["prefix"], separator, tuple(texts), row["max_deliveries"],
        row["on_dead"], row["lease_ms"], row["begin"], begins_at, row["waits"], row["created_ms"],
        row["ordering"],
    )  # fmt: skip


def checked_name(name: str) -> str:
    """Return the name of a group. Raises InvalidArgument."""
    if type(name) is not str or not 1 <= len(name) <= limits.group_name_chars_max:
        raise InvalidArgument(
            f"the name of the group is {name!r}; give 1 to {limits.group_name_chars_max} "
            "characters without blanks",
            what="name",
        )
    return name


def spans_of(info: GroupInfo) -> list[Span]:
    """Return the spans that have the keys of a group: disjoint, in the order of keys."""
    if info.patterns:
        return patterns_of(info.separator, info.patterns).spans
    return [prefix_span(info.prefix)]


def hull(info: GroupInfo) -> Span:
    """Return the span from the first to the last key that a group may have."""
    spans = spans_of(info)
    return spans[0][0], spans[-1][1]


def prefix_of(info: GroupInfo) -> bytes:
    """Return the longest prefix of all keys that a group may have."""
    starts = [start for start, _ in spans_of(info)]
    first, last = starts[0], starts[-1]
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return first[: sum(1 for _ in same)]


def _check_same(known: GroupInfo, asked: Mapping[str, Any]) -> None:
    """Raise Conflict, with both values, if the group differs from what the caller has chosen."""
    now = {
        "prefix": known.prefix,
        "patterns": [known.separator, list(known.patterns)] if known.patterns else None,
        "max_deliveries": known.max_deliveries,
        "on_dead": known.on_dead,
        "lease_ms": known.lease_ms,
        "begin": known.begin,
        "begin_ms": known.begin_ms or 0,
        "waits": known.waits,
        "ordering": known.ordering,
    }
    differing = [
        f"{name} {now[name]!r}, and this consumer asks for {value!r}"
        for name, value in asked.items()
        if now[name] != value
    ]
    if differing:
        raise Conflict(
            f"the group {known.name!r} exists with {'; '.join(differing)}. Leave these options "
            "out, or delete the group",
            group=known.name,
        )
