"""The claim with which the leader raises the floor of a group.

The leader reads the entries between the floor and a later seq, `to`, at its applied index, and
names every key with an undone entry there: these keys are pinned. Apply gives each pinned key a row
at its position and raises the floor. The claim is that all other keys have nothing to do there.

The claim holds at every later index too, so apply reads no entries and compares no versions. An
append gets a seq above `to`. Acknowledgements, skips and removals only make more entries done. A
row may go meanwhile, but the key stays named. Positions fall by a reset alone, which raises the
fence; then apply refuses the claim (x30).

Pinned keys pay for a slow key with a row: the key holds up neither the floor nor other keys (G5).
"""

from typing import NamedTuple

from ...client.protocol import limits
from ..spans import Span, has
from .group import Group
from .undone import Search


class Claim(NamedTuple):
    """What the leader found in a span of keys with one floor."""

    span: Span
    begin: int
    """The floor."""
    to: int
    pinned: list[bytes]
    """All keys with undone entries in [begin, to)."""
    finished: list[bytes]
    """Some keys with a row below the floor and nothing to do below `to`."""

    def payload(self, group_id: int, fence: int) -> list[object]:
        """Return the payload of GROUP_FLOOR."""
        return [group_id, fence, *self.span, self.begin, self.to, self.pinned, self.finished]


def claim(search: Search, group: Group, span: Span, *, rows_left: int) -> Claim | None:
    """Return the claim of a complete search of a span with one floor; None: nothing to change.

    `rows_left`: the new rows that the claim may make for slow keys. Where more keys are slow, the
    claim ends at the first undone entry of the next key.
    """
    begin = group.floors.at(span[0])
    to = search.end_seq
    pinned: list[bytes] = []
    for key, first in sorted(search.above.items(), key=lambda found: found[1]):
        rows_left -= key not in group.rows
        if rows_left < 0 or len(pinned) == limits.group_keys_a_command_max:
            to = first
            break
        pinned.append(key)
    finished = [
        key for key, row in group.rows.items()
        if row.done < begin + group.by_entry and not row.parked and key not in search.keys
        and has(span, group.key_of(key))
    ]  # fmt: skip
    if not 0 < begin <= to or (begin == to and not finished):
        return None
    return Claim(span, begin, to, pinned, finished[: limits.group_keys_a_command_max])
