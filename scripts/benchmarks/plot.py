"""`scripts/bench plot`: SVG charts of the JSON files that other benchmarks have written.

The figures of a file show its kind: peers, a sustained or steady run, polls by number of keys,
followers, memory, or the sweeps of growth. NAME.json becomes NAME.svg, or NAME-PART.svg if it holds
several charts.
"""

import argparse
import itertools
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import svg

_MIB = 1 << 20
_LONG_S = 20.0
"""A run of this length is drawn over time."""


def main(arguments: Sequence[str]) -> int:
    """Draw each file. Return 1 when a file holds nothing that can be drawn."""
    parser = argparse.ArgumentParser(prog="scripts/bench plot", allow_abbrev=False)
    parser.add_argument("files", nargs="+", type=Path, metavar="JSON")
    parser.add_argument("--out", type=Path, default=Path("docs/performance"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    empty = 0
    for path in options.files:
        charts = list(_charts(json.loads(path.read_text())))
        empty += not charts
        if not charts:
            print(f"{path}: nothing to draw")
        for part, chart in charts:
            name = options.out / f"{path.stem}{'-' * bool(part)}{part}.svg"
            name.write_text(chart)
            print(name)
    return int(empty > 0)


def _charts(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the parts and their charts."""
    rows: list[dict[str, Any]] = body["results"]
    if "systems" in body:
        yield from _peers(rows)
        yield from _over_time(body["rounds"])
    elif "memory" in body:
        yield "", _memory(body["memory"])
    elif rows and "mode" in rows[0]:
        yield from _follow(rows)
    elif "samples" in body:
        yield from _steady(body)
    elif rows and "sweep" in rows[0]:
        yield from _growth(rows)
    elif rows and "poll keys" in rows[0]:
        yield "", _polls(rows)
    elif rows and "series" in rows[0]:
        points = [(at["at_s"], at["records_per_second"]) for at in rows[0]["series"]]
        yield "", svg.lines("Durable appends", "seconds", "records/s", {"lognode": points})


def _peers(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    through = [row for row in rows if row["latency_p50_ms"] is None]
    timed = [row for row in rows if row["latency_p50_ms"] is not None]
    yield "throughput", svg.bars(
        "Appends, three replicas on one machine", "records/s, medians of the rounds",
        sorted(((_name(row), row["records_per_second"]) for row in through), key=_by_value),
    )  # fmt: skip
    yield "latency", svg.bars(
        "One append at a time, 100/s, open loop", "p50 in microseconds from when it was due",
        sorted(((row["system"], row["latency_p50_ms"] * 1e3) for row in timed), key=_by_value),
    )  # fmt: skip


def _over_time(rounds: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the rates of the first round over time, if it is long enough to be of interest."""
    first = [row for row in rounds if row["round"] == 1 and not row.get("latency_ms")]
    series = {
        _name(row): [(at["at_s"], at["records_per_second"]) for at in row["series"]]
        for row in first
        if row["seconds"] >= _LONG_S
    }
    if series:
        yield (
            "sustained",
            svg.lines(
                "Appends after the warm-up", "seconds", "records/s", dict(list(series.items())[:6])
            ),
        )


def _memory(samples: Sequence[dict[str, Any]]) -> str:
    """Draw the memory of the node that has the most, and its parts."""
    names = [name for name in samples[0]["nodes"][0] if name not in ("files of the node", "rest")]
    largest = max(
        range(len(samples[0]["nodes"])),
        key=lambda n: max(sample["nodes"][n]["node"] for sample in samples),
    )
    series = {
        name: [(s["at_s"], s["nodes"][largest][name] / _MIB) for s in samples] for name in names
    }
    return svg.lines("A node under half load", "seconds", "MiB", dict(list(series.items())[:6]))


def _follow(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    done = [row for row in rows if "p50 ms" in row]
    for name in ("p50", "p99"):
        series = {
            turn: [
                (row["followers"], row[f"{name} ms"])
                for row in done
                if f"{row['system']} {row['mode']}" == turn and row[f"{name} ms"] is not None
            ]
            for turn in dict.fromkeys(f"{row['system']} {row['mode']}" for row in done)
        }
        yield (
            name,
            svg.lines(
                f"From append to delivery, {name}", "followers", "ms from due", series, log_x=True
            ),
        )


def _by_value(row: tuple[str, float]) -> float:
    return row[1]


def _name(row: dict[str, Any]) -> str:
    return f"{row['system']}{', own tool' if 'own tool' in row['workload'] else ''}"


def _steady(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    samples: list[dict[str, Any]] = body["samples"]
    for part, figure, unit, size in (
        ("memory", "resident_bytes", "MiB resident, node and builder", _MIB),
        ("files", "open_files", "open files", 1),
        ("disk", "disk_bytes", "MiB on disk", _MIB),
    ):
        count = len(samples[0][figure]) if samples else 0
        series = {
            f"node {n + 1}": [(s["at_s"], s[figure][n] / size) for s in samples]
            for n in range(count)
        }
        yield part, svg.lines(f"Half load: {unit}", "seconds", unit, series)
    latency = {
        name: [(row["at_s"], row[f"{name}_ms"]) for row in body["series"]]
        for name in ("p50", "p99")
    }
    yield "latency", svg.lines("Half load: append latency", "seconds", "ms from due", latency)


def _polls(rows: Sequence[dict[str, Any]]) -> str:
    kinds = dict.fromkeys(row["poll consistency"] for row in rows)
    series = {
        f"{kind} {name}": [
            (row["poll keys"], row[f"poll latency_ms {name}"])
            for row in rows
            if row["poll consistency"] == kind
        ]
        for kind, name in itertools.product(kinds, ("p50", "p99"))
    }
    return svg.lines("Polls of one key under ingest", "keys", "ms from due", series, log_x=True)


def _growth(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for sweep in dict.fromkeys(row["sweep"] for row in rows):
        own = [row for row in rows if row["sweep"] == sweep]
        points = [
            (at, statistics.median(row["of the first"] for row in own if row["point"] == at))
            for at in sorted({row["point"] for row in own})
        ]
        title = f"Appends by number of {sweep}"
        yield sweep, svg.lines(title, sweep, "of the first point", {"appends": points}, log_x=True)
