"""The forms of the payloads of a group's commands.

`group` is the id of a group: a group that is deleted and created again has another id. `fence` is
the number from the reply to the leader's last GROUP_OPEN. Seqs are positions: the next seq wanted.
What the forms call a key is a unit (`units`), except for the keys of a reset.
"""

from operator import lt
from typing import Any, Final

from ...client.protocol import limits
from ..forms import NUMBER_MAX, are, is_number, is_span, is_text
from .units import UNIT_BYTES_MAX

PARK: Final = 1
"""The next entry of the key failed too often: the key stops."""
REJECT: Final = 2
"""A consumer refused the next entry: the key stops."""
RETRY: Final = 3
"""A parked key goes on with the same entry."""
SKIP: Final = 4
"""Entries of the key were passed by request."""
DEAD_LETTER: Final = 5
"""Entries of the key were copied to another log, and passed."""
RESET: Final = 6
"""The group begins elsewhere."""
LOST: Final = 7
"""Retention removed entries that may not have been done."""
DECISIONS: Final = range(PARK, LOST + 1)

_STEP_FIELDS: Final = 3
_LETTER_FIELDS: Final = 4
_NOTE_FIELDS: Final = 5


def is_open(payload: Any) -> bool:
    """[group, begin, waits]: where the group begins if it is new, and whether trims wait for it.

    A `begin` above the next seq is the next seq: the group gets what is appended from now on. A
    fourth field, which is true, says that each entry is a unit of its own.
    """
    return (
        (_has(payload, 3) or (_has(payload, 4) and payload[3] is True))
        and _are_numbers(payload[:2])
        and type(payload[2]) is bool
    )


def is_ack(payload: Any) -> bool:
    """[group, fence, keys, expected, through]: each key goes from one position to the next.

    The last three are columns of equal length, which C checks: a range acknowledges many keys.
    """
    if not (_has(payload, 5) and _are_numbers(payload[:2])):
        return False
    keys, expected, through = payload[2:]
    return (
        bool(keys)
        and are(keys, bytes)
        and are(expected, int)
        and are(through, int)
        and len(keys) == len(expected) == len(through) <= limits.group_keys_a_command_max
        and min(map(len, keys)) >= 1
        and max(map(len, keys)) <= UNIT_BYTES_MAX
        and min(expected) > 0
        and max(through) <= NUMBER_MAX
        and all(map(lt, expected, through))
    )


def is_append(payload: Any) -> bool:
    """[group, fence, acks, batch]: each ack is [key, expected, through], with another key; the
    bytes of a batch."""
    return (
        _has(payload, 4)
        and _are_numbers(payload[:2])
        and _are_some(payload[2], _is_step)
        and len({row[0] for row in payload[2]}) == len(payload[2])
        and type(payload[3]) is bytes
    )


def is_note(payload: Any) -> bool:
    """[group, fence, notes, who]: a note is [key, expected, deliveries, parked, error].

    `parked` is 0, or the reason: PARK or REJECT.
    """
    return (
        _has(payload, 4)
        and _are_numbers(payload[:2])
        and _are_some(payload[2], _is_note)
        and _is_text(payload[3])
    )


def is_floor(payload: Any) -> bool:
    """[group, fence, start, end or nil, from, to, pinned, finished]: see `claim`.

    Every key of the span that has undone entries from `from` up to `to` is pinned. The finished
    keys have no undone entry below `to`.
    """
    return (
        _has(payload, 8)
        and _are_numbers((*payload[:2], *payload[4:6]))
        and is_span(payload[2], payload[3])
        and 0 < payload[4] <= payload[5]
        and _are_keys(payload[6])
        and _are_keys(payload[7])
    )


def is_retry(payload: Any) -> bool:
    """[group, keys, who]: keys that are parked."""
    return (
        _has(payload, 3)
        and is_number(payload[0])
        and _are_some(payload[1], _is_unit)
        and _is_text(payload[2])
    )


def is_skip(payload: Any) -> bool:
    """[group, skips, what, who, why]: a skip is [key, expected, through].

    `what` is SKIP or REJECT.
    """
    return (
        _has(payload, 5)
        and is_number(payload[0])
        and _are_some(payload[1], _is_step)
        and type(payload[2]) is int
        and payload[2] in (SKIP, REJECT)
        and _is_text(payload[3])
        and _is_text(payload[4])
    )


def is_reset(payload: Any) -> bool:
    """[group, spans, keys, who]: spans of [start, end or nil, to], then single keys of [key, to].

    Seq 0 is not a position: a group cannot go back to not having begun.
    """
    return (
        _has(payload, 4)
        and is_number(payload[0])
        and _are_few(payload[1], _is_span_position)
        and _are_few(payload[2], _is_key_position)
        and bool(payload[1] or payload[2])
        and _is_text(payload[3])
    )


def is_letter(payload: Any) -> bool:
    """[group, fence, producer, letters]: a letter is [key, expected, seq, number].

    The next entry of the parked key is at `seq`. Its copies have this producer and number.
    """
    return _has(payload, 4) and _are_numbers(payload[:3]) and _are_some(payload[3], _is_letter)


def is_copied(payload: Any) -> bool:
    """[group, fence, copies, what]: a copy is [key, seq], by the letter of the key.

    `what` is DEAD_LETTER, or LOST for entries that are gone.
    """
    return (
        _has(payload, 4)
        and _are_numbers(payload[:2])
        and _are_some(payload[2], _is_key_position)
        and type(payload[3]) is int
        and payload[3] in (DEAD_LETTER, LOST)
    )


def is_forget(payload: Any) -> bool:
    """[group]."""
    return _has(payload, 1) and is_number(payload[0])


def _has(payload: Any, fields: int) -> bool:
    return type(payload) is list and len(payload) == fields


def _are_numbers(values: Any) -> bool:
    return all(map(is_number, values))


def _are_few(values: Any, form: Any) -> bool:
    return (
        type(values) is list
        and len(values) <= limits.group_keys_a_command_max
        and all(map(form, values))
    )


def _are_some(values: Any, form: Any) -> bool:
    return bool(values) and _are_few(values, form)


def _is_unit(value: Any) -> bool:
    return type(value) is bytes and 1 <= len(value) <= UNIT_BYTES_MAX


def _are_keys(values: Any) -> bool:
    return _are_few(values, _is_unit)


def _is_text(value: Any) -> bool:
    return is_text(value, limits.group_text_chars_max)


def _is_step(row: Any) -> bool:
    return (
        _has(row, _STEP_FIELDS)
        and _is_unit(row[0])
        and _are_numbers(row[1:])
        and 0 < row[1] < row[2]
    )


def _is_note(row: Any) -> bool:
    return (
        _has(row, _NOTE_FIELDS)
        and _is_unit(row[0])
        and _are_numbers(row[1:4])
        and row[3] in (0, PARK, REJECT)
        and _is_text(row[4])
    )


def _is_letter(row: Any) -> bool:
    return (
        _has(row, _LETTER_FIELDS)
        and _is_unit(row[0])
        and _are_numbers(row[1:])
        and 0 < row[1] <= row[2]
        and row[3] > 0
    )


def _is_span_position(row: Any) -> bool:
    return _has(row, 3) and is_span(row[0], row[1]) and is_number(row[2]) and row[2] > 0


def _is_key_position(row: Any) -> bool:
    return _has(row, 2) and _is_unit(row[0]) and is_number(row[1]) and row[1] > 0
