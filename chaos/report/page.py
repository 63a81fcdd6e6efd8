"""`report.html`: the verdict first, then the operations and observations, then the errors."""

import gc
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, Final

from . import faults, gaps, latency, offending, rate, timeline, unseen
from .kit import Time, section
from .run import Run, read
from .style import SCRIPT, sheet
from .words import count

NAME: Final = "report.html"
_SAID: Final = {"valid": "Valid", "invalid": "Invalid", "unknown": "Unknown"}
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_OUTCOMES: Final = ("ok", "fail", "info")


def write(folder: Path) -> Path:
    """Make `report.html` of a folder STORE/TEST/TIME and return its path.

    Raises InvalidArgument when the folder holds no test or its history cannot be read. A folder
    without `results.json` is drawn as not judged.
    """
    path = folder / NAME
    partial = path.with_suffix(".partial")
    with _no_garbage_collection():
        partial.write_text(page(read(folder)), "utf-8")
    partial.replace(path)
    return path


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Turn the garbage collector off: a history is millions of objects without a cycle."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def page(run: Run) -> str:
    """Return the whole page."""
    time = Time(0, max(run.end, 1))
    body = [_header(run), _facts(run.test), _checkers(run.results)]
    if run.operations:
        body += [
            offending.chart(run), faults.chart(run, time), latency.chart(run, time),
            rate.chart(run, time), unseen.chart(run, time), gaps.chart(run, time),
            timeline.chart(run, time),
        ]  # fmt: skip
    else:
        body.append("<section><p>No client did anything.</p></section>\n")
    title = f"{run.test.get('workload', 'test')}: {run.results['verdict']}"
    return document(title, "".join(body) + '<div id="tip"></div>', SCRIPT)


def document(title: str, body: str, script: str = "") -> str:
    """Return a page of HTML in the style of the reports, which can fetch nothing."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{sheet()}</style></head>\n"
        f"<body><main>\n{body}\n</main>"
        f"{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def name_of(test: Mapping[str, Any]) -> str:
    """Return a name such as `append under kill, partition, 3 nodes`."""
    nemesis = ", ".join(test.get("nemesis") or []) or "no faults"
    return f"{test.get('workload', 'test')} under {nemesis}, {test.get('nodes', '?')} nodes"


def _header(run: Run) -> str:
    verdict = run.results["verdict"]
    links = [
        ("offending", "Offending operations", bool(run.found)), ("keys", "Keys", bool(run.found)),
        ("faults", "Faults", True), ("latency", "Latency", True), ("rate", "Rate", True),
        ("unseen", "Unseen", True), ("gaps", "Availability", True), ("timeline", "Timeline", True),
    ]  # fmt: skip
    nav = "".join(f'<a href="#{ident}">{words}</a>' for ident, words, shown in links if shown)
    return (
        f'<header><span class="verdict {escape(verdict)}" id="verdict">{_SAID[verdict]}</span>\n'
        f"<h1>{escape(run.results.get('why', ''))}</h1>\n"
        f'<p class="why">{escape(name_of(run.test))}</p>\n<nav>{nav}</nav></header>\n'
    )


def _facts(test: Mapping[str, Any]) -> str:
    options = test.get("options") or {}
    facts = {
        "began": str(test.get("began", "")).replace("T", " "),
        "seed": test.get("seed"),
        "lognode": " ".join(str(test[n]) for n in ("version", "commit") if test.get(n)),
        "source": test.get("source"),
        "rate": f"{count(test['rate'])} operations/s" if test.get("rate") else None,
        "time limit": f"{count(test['time_limit_s'])} s" if test.get("time_limit_s") else None,
        "a fault every": (
            f"{count(test['nemesis_interval_s'])} s" if test.get("nemesis_interval_s") else None
        ),
        "proxy": test.get("proxy"),
    } | {str(name): str(value) for name, value in options.items()}
    shown = "".join(
        f"<div><b>{escape(name)}</b>{escape(str(value))}</div>"
        for name, value in facts.items()
        if value not in (None, "")
    )
    again = _command(test)
    run_again = f'<div class="wide"><b>run it again</b><code>{again}</code></div>'
    return f'<div class="facts">{shown}{run_again if again else ""}</div>\n'


def _command(test: Mapping[str, Any]) -> str:
    """Return the command as HTML; its lines break between flags only."""
    flags = (
        ("-w", "workload"), ("--nemesis", "nemesis"), ("--nodes", "nodes"), ("--rate", "rate"),
        ("--time-limit", "time_limit_s"), ("--nemesis-interval", "nemesis_interval_s"),
        ("--seed", "seed"), ("--source", "source"),
    )  # fmt: skip
    if test.get("workload") is None:
        return ""
    parts = ["lognode-chaos test"]
    for flag, name in flags:
        value = test.get(name)
        if isinstance(value, list):
            value = ",".join(value)
        if value not in (None, ""):
            shown = f"{value:g}" if isinstance(value, float) else escape(shlex.quote(str(value)))
            parts.append(f'<span class="flag">{flag} {shown}</span>')
    return " ".join(parts)


def _checkers(results: Mapping[str, Any]) -> str:
    rows = []
    for name, one in results.get("checkers", {}).items():
        found = [f"{found['count']:,} {kind}" for kind, found in one["anomalies"].items()]
        said = "; ".join([*found, *one["unknown"]])
        counts = ", ".join(f"{key} {count(value)}" for key, value in one["counts"].items())
        rows.append(
            f'<tr><td>{escape(name)}</td><td class="{one["verdict"]}-text">{one["verdict"]}</td>'
            f"<td>{escape(said) or 'nothing'}</td><td>{escape(counts)}</td></tr>"
        )
    if not rows:
        return ""
    table = "\n".join(rows)
    return section(
        "checkers", "Checkers", _totals(results),
        '<div class="scroll"><table><tr><th>checker</th><th>verdict</th><th>found</th>'
        f"<th>counts</th></tr>\n{table}</table></div>\n",
    )  # fmt: skip


def _totals(results: Mapping[str, Any]) -> str:
    counts = results.get("counts", {})
    ended = ", ".join(
        f'<span class="out {name}">{counts[name]:,} {name}</span>'
        for name in _OUTCOMES
        if name in counts
    )
    seconds = results.get("duration_s")
    return f"Operations: {ended or 'none'}" + (f"; {count(seconds)} s." if seconds else ".")
