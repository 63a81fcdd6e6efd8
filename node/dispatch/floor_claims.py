"""The claim with which the floor of a group rises, from what the leader has in memory.

`statemachine.groups.claim` says what a claim is, and why it stays true. The lines and the parked
keys are all keys with undone entries below the reading position (`supply`), so nothing is read
again.
"""

from typing import Final

from ...client.protocol import limits
from ...statemachine.groups.claim import Claim
from ...statemachine.groups.group import Group
from ...statemachine.spans import Span, has
from .supply import Supply

_PINS: Final = 64
"""Slow keys that a claim gives rows to while the group has rows enough. The floor waits for others.
"""


class Pending:
    """A claim that is proposed and not applied."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self._pinned = frozenset(claim.pinned)
        self._finished = frozenset(claim.finished)

    def position(self, group: Group, key: bytes) -> int:
        """Return the position that a key will have once the claim is applied."""
        claim, position = self.claim, group.position(key)
        if not has(claim.span, group.key_of(key)):
            return position
        row = group.rows.get(key)
        if row is None:
            return position if key in self._pinned else max(position, claim.to)
        is_named = key in self._finished or (row.done >= claim.begin and key not in self._pinned)
        is_raised = is_named and not row.parked and row.done <= claim.to
        return max(group.rest(key), claim.to) if is_raised else position


def floor_claim(
    supply: Supply, group: Group, span: Span, next_seq: int, rows_left: int
) -> Claim | None:
    """Return the claim about a span with one floor; None: nothing to change.

    `rows_left`: the rows that the claim may make. A key with a row is pinned too: commands that are
    under way may move the key to an entry above the floor, and the claim must not pass that entry.
    """
    begin = group.floors.at(span[0])
    to = supply.read_through(span, next_seq)
    is_tight = len(group.rows) - len(supply.parked) > limits.group_rows_max // 2
    pins = limits.group_keys_a_command_max if is_tight else _PINS
    everywhere = span == supply.span
    firsts = []
    for key, line in supply.lines.items():
        first = line.first
        if (
            first < to
            and (line.unread_to > begin or (line.seqs and line.seqs[-1] >= begin))
            and (everywhere or has(span, group.key_of(key)))
        ):
            firsts.append((first if first > begin else begin, key))
    for key, (first, last) in supply.parked.items():
        if first < to and last >= begin and has(span, group.key_of(key)):
            firsts.append((max(first, begin), key))
    pinned: list[bytes] = []
    for first, key in sorted(firsts)[: limits.group_keys_a_command_max + 1]:
        if key not in group.rows:
            pins -= 1
            rows_left -= 1
        if pins < 0 or rows_left < 0 or len(pinned) == limits.group_keys_a_command_max:
            to = first
            break
        pinned.append(key)
    least = begin + group.by_entry  # a done entry right below the floor keeps its row no longer
    finished = [
        key for key, row in group.rows.items()
        if row.done < least and key not in supply.lines and key not in supply.parked
        and (everywhere or has(span, group.key_of(key)))
    ][: limits.group_keys_a_command_max]  # fmt: skip
    if to < begin or (to == begin and not finished):
        return None
    return Claim(span, begin, to, pinned, finished)
