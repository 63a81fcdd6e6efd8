"""Objects whose histories `wgl` can judge: a register, and a string that is appended to."""

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
