"""The findings of the checkers: each anomaly with its full operations, and their keys."""

from collections.abc import Iterable
from html import escape
from typing import Any, Final

from ..history import Operation
from . import keyplot, timeline
from .kit import legend, section
from .run import FINAL, Found, Run
from .words import clock, plural, span, whole

_KEYS: Final = 12
_CLOSE_UPS: Final = 4
_OPEN: Final = 400
"""Values longer than this are folded,"""
_LONGEST: Final = 20_000
"""values longer than this are cut,"""
_ALL: Final = 1_000_000
"""and once all together are longer than this, all fold to `_OPEN`. The history has them whole."""


def chart(run: Run) -> str:
    """Show all findings; return nothing without any."""
    if not run.found:
        return ""
    shown = _Operations(run)
    parts = []
    close_ups = 0
    for found in run.found:
        first = [
            one for one in shown.of(found.examples[0]["operations"]) if one.f != FINAL
        ] if found.examples else []  # fmt: skip
        close_ups += bool(first)
        parts.append(_heading(found))
        if first and close_ups <= _CLOSE_UPS:
            parts.append("<h4>The first, close up</h4>" + timeline.close_up(run, first))
        parts += [shown.example(example) for example in found.examples]
        if found.count > len(found.examples):
            parts.append(
                f"<p>{plural(found.count - len(found.examples), 'more')} not listed; see "
                "<code>results.json</code>.</p>".replace("mores", "more")
            )
        parts.append("</article>\n")
    return section(
        "offending", "Offending operations",
        "The findings of the checkers, with the operations that show them.", *parts,
    ) + _keys(run)  # fmt: skip


def _heading(found: Found) -> str:
    promise = f' <span class="tag">breaks {escape(found.promise)}</span>' if found.promise else ""
    return (
        f'<article class="found"><h3><span class="name">{escape(found.name)}</span> '
        f'× {found.count:,}{promise} <span class="by">{escape(found.checker)} checker</span>'
        "</h3>\n"
    )


def _keys(run: Run) -> str:
    names = list(
        dict.fromkeys(
            example["key"]
            for found in run.found
            for example in found.examples
            if example.get("key") is not None
        )
    )
    keys = keyplot.collect(run, names[:_KEYS])
    if not keys:
        return ""
    more = f" {len(names) - _KEYS:,} more keys are not shown." if len(names) > _KEYS else ""
    return section(
        "keys", "Offending keys",
        "Seq against time: bars are appends from their invocation to their completion, at the seq "
        "that they were told or that readers saw; points are entries that readers got. The columns "
        f"at the right are the final reads, of each node and linearizable (all).{more}",
        legend(
            ("bar ok", "append ok"), ("bar info", "info"), ("bar fail", "fail"),
            ("dot read", "read"), ("cell holds", "holds it"), ("cell lacks", "does not hold it"),
            ("cell differs", "holds another value"), ("cell open", "incomplete read"),
        ),
        *(f"<h3>Key <code>{escape(key.name)}</code></h3>\n{keyplot.chart(run, key)}"
          for key in keys.values()),
    )  # fmt: skip


class _Operations:
    """Shows each operation once; later mentions point at the first."""

    def __init__(self, run: Run) -> None:
        self._run = run
        named = run.offending()
        self._by_index = {one.index: one for one in run.operations if one.index in named}
        self._shown: set[tuple[int, str | None]] = set()
        self._length = 0

    def of(self, indexes: Iterable[int]) -> list[Operation]:
        """Return the operations that the history has."""
        return [self._by_index[index] for index in indexes if index in self._by_index]

    def example(self, example: dict[str, Any]) -> str:
        """Show one anomaly: the sentence and its operations."""
        key = example.get("key")
        rows = "".join(self._operation(one, key) for one in self.of(example["operations"]))
        return f'<div class="example"><p>{escape(example["message"])}</p>\n{rows}</div>\n'

    def _operation(self, one: Operation, key: str | None) -> str:
        # A final read holds the whole log: entries of other keys do not belong here.
        part = key if one.f == FINAL else None
        if (one.index, part) in self._shown:
            return f'<p class="op"><a href="#op-{one.index}">{_title(one)}, above</a></p>\n'
        ident = "" if any(one.index == index for index, _ in self._shown) else _ident(one)
        self._shown.add((one.index, part))
        told = self._run.told.get(one.index)
        ended = (
            "never answered" if told is None
            else f"until {clock(told)}, {span(told - one.began)}"
        )  # fmt: skip
        asked = self._value("asked", one.asked) if one.asked else ""
        node = "" if one.node is None else f", node {one.node}"
        error = f'<p class="error">{escape(one.error)}</p>' if one.error else ""
        return (
            f'<div class="op"{ident}><p><span class="out {one.outcome}">{one.outcome}</span> '
            f"<b>{_title(one)}</b>, process {one.process}{node}; from {clock(one.began)} "
            f"{ended}; event {one.index}</p>{error}\n"
            f"{asked}{self._answer(one, part)}</div>\n"
        )

    def _answer(self, one: Operation, part: str | None) -> str:
        if one.answer is None:
            return ""
        if part is None or one.outcome != "ok":
            return self._value("answered", one.answer)
        own = {"keys": {part: one.answer["keys"].get(part, [])}}
        return self._value("answered, of this key", own)

    def _value(self, name: str, value: Any) -> str:
        words = whole(value)
        longest = _LONGEST if self._length < _ALL else _OPEN
        if len(words) > longest:
            words = f"{words[:longest]} … {len(words) - longest:,} more characters in the history"
        self._length += len(words)
        if len(words) <= _OPEN:
            return f"<dl><dt>{name}</dt><dd><code>{escape(words)}</code></dd></dl>\n"
        return (
            f"<details><summary>{name}: {escape(words[:80])}…</summary>"
            f"<pre>{escape(words)}</pre></details>\n"
        )


def _title(one: Operation) -> str:
    return f"{escape(one.f)} {one.index}"


def _ident(one: Operation) -> str:
    return f' id="op-{one.index}"'
