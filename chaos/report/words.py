"""Times, numbers and operations in words, for labels and for the pointer."""

import json
from collections.abc import Sequence
from typing import Any, Final

from ..history import Operation
from .entries import sent

_SHORT: Final = 90
_ENTRIES_SHOWN: Final = 3


def clock(ns: float) -> str:
    """Return a moment of the test: `12.345 s`, from a minute on `3:07.25`."""
    seconds = ns / 1e9
    if seconds < 60:
        return f"{seconds:.3f} s"
    minutes = int(seconds // 60)
    return f"{minutes}:{seconds - 60 * minutes:05.2f}"


def span(ns: float) -> str:
    """Return a duration with about three digits: `412 µs`, `3.2 ms`, `1.75 s`, `4 min 2 s`."""
    for size, unit in ((1e6, "µs"), (1e9, "ms")):
        if ns < size:
            return f"{ns / size * 1e3:.3g} {unit}"
    if ns < 120e9:
        return f"{ns / 1e9:.3g} s"
    minutes, seconds = divmod(round(ns / 1e9), 60)
    return f"{minutes} min {seconds} s"


def count(number: float) -> str:
    """Return a number such as `12,345`; fractions have three digits."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.3g}"


def short(text: str, size: int = _SHORT) -> str:
    """Return the text, or its beginning and an ellipsis."""
    return text if len(text) <= size else text[: max(size - 1, 0)] + "…"


def plural(number: int, thing: str) -> str:
    """Return `1 fault`, `2 faults`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def operation(one: Operation) -> str:
    """Return the request and the answer in one short line."""
    return short(f"{one.f} {_asked(one)} {_answer(one)}".replace("  ", " ").strip())


def _asked(one: Operation) -> str:
    if records := sent(one):
        expect = one.asked.get("expect")
        condition = "" if expect is None else f" if last is {expect}"
        return ", ".join(f"{key}: {value}" for key, value in records[:_ENTRIES_SHOWN]) + condition
    asked = one.asked if isinstance(one.asked, dict) else {"value": one.asked}
    return " ".join(str(asked[name]) for name in ("key", "prefix", "follower", "target", "value")
                    if asked.get(name) is not None)  # fmt: skip


def _answer(one: Operation) -> str:
    if one.outcome != "ok":
        return f"{one.outcome}: {one.error}" if one.error else one.outcome
    if not isinstance(one.answer, dict):
        return ""
    if one.f == "append":
        return "→ seq " + ", ".join(str(seq) for seq in one.answer["seqs"][:_ENTRIES_SHOWN])
    if "keys" in one.answer:
        return f"→ {plural(len(one.answer['keys']), 'key')}"
    return "→ " + _listed(one.answer.get("entries", ()))


def _listed(entries: Sequence[Sequence[Any]]) -> str:
    if not entries:
        return "nothing"
    if len(entries) <= _ENTRIES_SHOWN:
        return ", ".join(f"{one[-2]}: {one[-1]}" for one in entries)
    return f"{len(entries):,} entries, seq {entries[0][-2]} to {entries[-1][-2]}"


def whole(value: Any) -> str:
    """Return a value of the history in full, as JSON with spaces and keys in their order."""
    return json.dumps(value, ensure_ascii=False)
