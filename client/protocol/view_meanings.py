"""What each field of the requests of views means; see `meanings`."""

from collections.abc import Mapping
from typing import Final

_OPTIONS: Final = {
    "group": "The consumer group of the view; nil: the view is a cursor.",
    "cursor": "The cursor of the view; nil: the view is a group.",
    "policy": "`wait`: appends wait up to their limit. `live`: appends do not wait while no "
    "consumer of the group asks the leader for keys.",
}
_ROW: Final = {
    **_OPTIONS,
    "id": "The id of the view, which no other view ever gets.",
    "name": "The name of the view.",
    "prefix": "The view has the keys with this prefix; empty: all keys.",
    "patterns": "The view has the keys that match these patterns; nil: without patterns.",
    "created_ms": "When the view was registered, in Unix time.",
}
VIEWS: Final[Mapping[str, Mapping[str, str]]] = {
    "views_wait": {
        "keys": "The keys, each with the seq of the entry that the views are to acknowledge.",
        "keys[].key": "The key.",
        "keys[].seq": "The seq of an entry of the key.",
        "views": "The ids of the views, from `view_list`. NOT_FOUND: a view was deleted.",
        "wait_ms": "How long the leader waits; 0: the answer comes at once.",
        "enough": "The wait ends when so many of the views have acknowledged each entry; nil: all "
        "of the views for which the leader waits.",
        "together": "The wait ends when `enough` of the views have acknowledged all entries.",
        "live": "The leader takes the policy of each view for `live`.",
        "> seen": "For each key, in the order of the request, a number whose bit n is set when "
        "view n of the request has acknowledged the entry.",
    },
    "view_register": {
        **_OPTIONS,
        "name": "The name of the view.",
        "prefix": "For a cursor: the view has the keys with this prefix. A group has its own keys.",
        **{f"> {name}": text for name, text in _ROW.items()},
    },
    "view_delete": {
        "name": "The name of the view.",
        "> id": "The id of the deleted view.",
    },
    "view_list": {
        "> views": "The views by name.",
        **{f"> views[].{name}": text for name, text in _ROW.items()},
    },
}
