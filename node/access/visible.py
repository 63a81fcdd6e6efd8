"""Cut an answer to what a principal may see: the rows of its own logs, and its own keys."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ...client.accepting.access import Access
from ...client.protocol import Operation, Permission
from ...client.protocol.cluster import METADATA, RANGES, STATUS
from ...client.protocol.errors import LognodeError
from ...client.protocol.groups import GROUP_LIST
from ...client.protocol.key_spans import Span
from ...client.protocol.views import VIEW_LIST
from ...partitions.metadata import Metadata
from ...partitions.views import spans_of
from .rights import Rights

Body = dict[str, Any]
_OF_RANGES = ("ranges", "replicas", "damaged", "operations")
"""The sections of a status whose rows are about ranges."""
_TELL_KEYS = frozenset({"start", "end", "hot_key", "reason"})


class Visible:
    """Returns the part of an answer to an operation that an access may see. `metadata` returns the
    newest metadata of this node."""

    def __init__(self, metadata: Callable[[], Metadata]) -> None:
        self._metadata = metadata

    def __call__(self, operation: Operation, access: Access, answer: Body) -> Body:
        return visible(operation, access, answer, self._metadata())

    def asked(self, access: Access | None, body: Body) -> Body:
        """Return the body of a request for `metadata`, with the keys that the asker may know."""
        name = body["log"]
        if isinstance(access, Rights) and name is not None:
            metadata = self._metadata()
            known = metadata.logs.get(metadata.logs.ids.get(name, 0))
            hierarchy = b"" if known is None else known.hierarchy
            return {**body, "spans": access.routed(name, hierarchy)}
        return body

    def clip(self, access: Access | None, error: LognodeError) -> None:
        """Remove from an error's ranges what the access may not see."""
        rows = error.fields.get("ranges")
        if rows and isinstance(access, Rights):
            error.fields["ranges"] = _clipped(access, rows, self._metadata())


def visible(operation: Operation, access: Access, answer: Body, metadata: Metadata) -> Body:
    """Return the part of the answer to an operation that the principal may see."""
    if isinstance(access, Rights):
        if operation in (METADATA, RANGES):
            return metadata_for(access, answer, metadata)
        if operation is STATUS:
            return status_for(access, answer, metadata)
        if operation is GROUP_LIST:
            return groups_for(access, answer, metadata)
        if operation is VIEW_LIST:
            return views_for(access, answer, metadata)
    return answer


def metadata_for(rights: Rights, answer: Body, metadata: Metadata) -> Body:
    """Return the answer to `metadata` or `ranges` without the logs that the principal may not know,
    and without range bounds that are not among its keys."""
    shown = {**answer, "ranges": _clipped(rights, answer["ranges"], metadata)}
    if "logs" in answer:
        shown["logs"] = [row for row in answer["logs"] if rights.sees(row["name"])]
    return shown


def status_for(rights: Rights, status: Body, metadata: Metadata) -> Body:
    """Return the status, or a page of the status, as the principal may see it.

    Logs whose status the principal may not see are left out. For logs that it may not read, the
    fields that contain keys are left out: range bounds, hot keys, reasons."""
    shown = dict(status)
    names = [name for name in _OF_RANGES if name in status]
    if not rights.may_everywhere(Permission.DESCRIBE):
        told = _Logs(metadata, partial(rights.may, Permission.DESCRIBE))
        for name in names:
            shown[name] = [row for row in status[name] if told.has_ranges(_about(row))]
        if "logs" in status:
            shown["logs"] = [row for row in status["logs"] if told.has(row["id"])]
    if not rights.may_everywhere(Permission.READ):
        readable = _Logs(metadata, partial(rights.may, Permission.READ))
        for name in names:
            shown[name] = [
                row if readable.has_ranges(_about(row)) else _without_keys(row)
                for row in shown[name]
            ]
    return shown


def groups_for(rights: Rights, answer: Body, metadata: Metadata) -> Body:
    """Return the consumer groups that the principal may consume or manage. A group's prefix and
    its patterns tell of keys."""
    return {**answer, "groups": [row for row in answer["groups"] if _sees(rights, row, metadata)]}


def views_for(rights: Rights, answer: Body, metadata: Metadata) -> Body:
    """Return the views that the principal may wait for or manage."""
    shown = []
    for row in answer["views"]:
        view = metadata.views.get(row["id"])
        if view is not None and _may_see(rights, view.log_id, spans_of(metadata, view), metadata):
            shown.append(row)
    return {**answer, "views": shown}


def _sees(rights: Rights, row: Body, metadata: Metadata) -> bool:
    group = metadata.groups.get(row["id"])
    return group is not None and _may_see(rights, group.log_id, group.spans, metadata)


def _may_see(rights: Rights, log_id: int, spans: list[Span], metadata: Metadata) -> bool:
    record = metadata.logs.get(log_id)
    return record is not None and (
        rights.may(Permission.GROUP, record.name)
        or all(rights.may_span(Permission.READ, record.name, span) for span in spans)
    )


def _clipped(rights: Rights, rows: list[Body], metadata: Metadata) -> list[Body]:
    """Return the descriptors with a key that the principal may use, cut to such keys."""
    shown = []
    for row in rows:
        record = metadata.logs.get(row["log"])
        if record is None or not rights.sees(record.name):
            continue
        spans = rights.routed(record.name, record.hierarchy)
        if spans is None:
            shown.append(row)
            continue
        bounds = spans.clipped(row["start"], row["end"])
        if bounds is not None:
            start, end = bounds
            shown.append({**row, "start": start, "end": end, "met_at": []})
    return shown


class _Logs:
    """The logs whose name is `allowed`. Each log is checked once."""

    def __init__(self, metadata: Metadata, allowed: Callable[[str], bool]) -> None:
        self._metadata = metadata
        self._allowed = allowed
        self._known: dict[int, bool] = {}

    def has(self, log_id: int) -> bool:
        found = self._known.get(log_id)
        if found is None:
            record = self._metadata.logs.get(log_id)
            found = self._known[log_id] = record is not None and self._allowed(record.name)
        return found

    def has_ranges(self, range_ids: list[int]) -> bool:
        """Return whether all of these ranges are of allowed logs. A missing range is not."""
        ranges = map(self._metadata.ranges.get, range_ids)
        return all(range_ is not None and self.has(range_.log_id) for range_ in ranges)


def _about(row: Body) -> list[int]:
    """Return the ranges that the row is about."""
    return list(row["ranges"]) if "ranges" in row else [row["range" if "range" in row else "id"]]


def _without_keys(row: Body) -> Body:
    """Return the row without the fields that contain keys."""
    shown = {name: value for name, value in row.items() if name not in _TELL_KEYS}
    last = row.get("last_operation")
    return shown if last is None else {**shown, "last_operation": {**last, "reason": None}}
