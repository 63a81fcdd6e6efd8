"""All groups of a range, by id."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...client.protocol.errors import Conflict, LognodeError, NotFound, Overloaded
from ...client.protocol.levels import GROUPS_FROM
from ..rules import Rules
from ..spans import Span
from .entry_group import EntryGroup
from .group import Group

GROUP_FIELDS: Final = 5
"""Fields of the row of a group with an order; that of another group has one more."""


class Groups:
    """The groups of one range of keys [start, end)."""

    def __init__(self, start: bytes, end: bytes | None, rows: Mapping[int, Any]) -> None:
        """Continue the table of a base."""
        self.span: Span = (start, end)
        self.by_id: dict[int, Group] = {
            group_id: (EntryGroup if _is_by_entry(row) else Group).from_wire(row)
            for group_id, row in rows.items()
        }

    def __bool__(self) -> bool:
        return bool(self.by_id)

    def found(self, group_id: int) -> Group | NotFound:
        """Return the group, or the error of a command about a group without state here."""
        group = self.by_id.get(group_id)
        return group or NotFound(
            f"the range has no state of group {group_id}: no leader has opened the group here, or "
            "the group was deleted"
        )

    def open(
        self, group_id: int, begin: int, waits: bool, by_entry: bool, next_seq: int, rules: Rules
    ) -> LognodeError | None:
        """Begin to lease units of a group, which is new here or not."""
        if not rules.groups_max:
            return Conflict(
                f"consumer groups need feature level {GROUPS_FROM}, and the range is below: run "
                "`lognode cluster finalize` when all nodes run this version"
            )
        group = self.by_id.get(group_id)
        if group is None:
            if len(self.by_id) >= rules.groups_max:
                return Overloaded(
                    f"the range has state of {len(self.by_id)} groups; the limit is "
                    f"{rules.groups_max}. Delete groups that are not in use.",
                    retry_after=60.0,
                )
            group = self.by_id[group_id] = EntryGroup() if by_entry else Group()
        group.open(max(1, min(begin, next_seq)), waits, [self.span])
        return None

    def to_wire(self) -> dict[int, Any]:
        """Return a copy of the present state as tables store it (x16)."""
        return {group_id: group.to_wire() for group_id, group in self.by_id.items()}


def _is_by_entry(row: Sequence[Any]) -> bool:
    """Whether the row of a table is of a group without an order."""
    return bool(row[GROUP_FIELDS:])
