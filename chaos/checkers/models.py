"""Objects whose histories `wgl` can judge: a register, a growing text, a key of a log."""

from typing import Any, Final

from .wgl import IMPOSSIBLE, Act, Model


def _register(state: int | None, act: Act) -> Any:
    if act[0] == "read":
        return state if act[1] == state else IMPOSSIBLE
    if act[0] == "write":
        return act[1]
    return act[2] if act[1] == state else IMPOSSIBLE


REGISTER: Final = Model(
    None, _register, frozenset({"read"}), lambda state: "nil" if state is None else str(state)
)
"""A register with compare-and-set: (read, value), (write, value), (cas, expected, new)."""


def _text(state: str, act: Act) -> Any:
    if act[0] == "get":
        return state if act[1] == state else IMPOSSIBLE
    return act[1] if act[0] == "put" else state + act[1]


TEXT: Final = Model("", _text, frozenset({"get"}), repr)
"""One key of a key-value store: (get, value), (put, value), (append, value)."""

UNSEEN: Final = -1
"""The seq of an entry that was never shown; two such entries may be the same."""

Last = tuple[int, str] | None
"""The last entry of a key as seq and value; None: the key has no entry."""


def _log_key(state: Last, act: Act) -> Any:
    last = 0 if state is None else state[0]
    if act[0] == "read":
        return state if act[1] == state else IMPOSSIBLE
    if act[0] == "refused":
        _, expect, told = act
        differs = told != expect or told == UNSEEN
        return state if told == last and differs else IMPOSSIBLE
    _, expect, entry = act
    if expect is not None and expect != last:
        return IMPOSSIBLE
    return entry if last < entry[0] or UNSEEN in (last, entry[0]) else IMPOSSIBLE


LOG_KEY: Final = Model(
    None,
    _log_key,
    frozenset({"read", "refused"}),
    lambda state: "no entry" if state is None else f"seq {state[0]} with {state[1]}",
)
"""The last entry of a key of a log: (read, last), (append, expected seq or None, last), (refused,
expected seq, the key's last seq). No entry is seq 0."""
