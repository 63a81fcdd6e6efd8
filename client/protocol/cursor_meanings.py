"""What each field of the requests for cursors means; see `meanings`."""

from collections.abc import Mapping
from typing import Final

_CURSOR: Final = {"cursor": "The name of the cursor."}
_POSITIONS: Final = {
    **_CURSOR,
    "spans": "Spans of keys in order, without overlaps, and their positions.",
    "spans[].start": "The first key of the span.",
    "spans[].end": "The span has the keys below it; nil: to the end of all keys.",
    "spans[].next": "The position of the span: the next seq wanted.",
    "> end_key": "The range took the rows of the keys below it alone; send the others again. Nil: "
    "it took all rows.",
}
CURSORS: Final[Mapping[str, Mapping[str, str]]] = {
    "cursor_open": {
        **_POSITIONS,
        "holder": "The number of the reader: above that of the holder in `cursor_read`. FENCED "
        "where another holder has a higher number.",
        "spans[].next": "The position of keys for which the cursor does not exist yet. A position "
        "behind the newest entry stands for the position behind the newest entry.",
    },
    "cursor_commit": {
        **_POSITIONS,
        "holder": "The number with which the reader has opened the cursor. FENCED where it is not "
        "the holder, NOT_FOUND where nobody has opened the cursor.",
        "keys": "Keys in order, with positions of their own above those of their spans.",
        "keys[].key": "The key.",
        "keys[].next": "The position of the key: the next seq wanted.",
    },
    "cursor_set": {**_POSITIONS, "holder": "As in `cursor_open`."},
    "cursor_delete": {
        **_CURSOR,
        "start_key": "The cursor is forgotten from this key on. The key is the range's.",
        "end_key": "The cursor is forgotten below it alone; nil: to the end of the range.",
        "> end_key": "The cursor is forgotten below it alone: send the rest again; nil: all of it.",
    },
    "cursor_read": {
        **_CURSOR,
        "start_key": "The read begins with this key. The key is the range's.",
        "> spans": "Spans for which the cursor exists, in order.",
        "> spans[].start": "The first key of the span.",
        "> spans[].end": "The span has the keys below it; nil: to the end of all keys.",
        "> spans[].holder": "The number of the reader that opened the cursor here last.",
        "> spans[].next": "The position of the span: the next seq wanted.",
        "> keys": "Keys with a position of their own, in order.",
        "> keys[].key": "The key.",
        "> keys[].next": "The position of the key: the next seq wanted.",
        "> end_key": "The page has the keys below it alone: ask for the others from it on.",
    },
    "cursor_list": {
        "after": "The page begins behind this name; nil: with the first.",
        "start_key": "The read begins with this key. The key is the range's.",
        "> cursors": "The cursors that have a position for a key of the span.",
        "> cursors[].cursor": "The name of the cursor.",
        "> cursors[].holder": "The highest number of a holder.",
        "> cursors[].next": "The lowest position of a span.",
        "> cursors[].keys": "How many keys have a position of their own.",
        "> after": "The next page begins behind this name; nil: this is the last page.",
    },
}
"""Meanings by operation and path, as in `meanings.OWN`."""
