"""`scripts/bench peers`: lognode and others in turn, in one run (P1 and P2).

A round gives each system a turn: three fresh members on this machine, appends at full speed, then
100 a second in an open loop. Some records of both are read back, and the members are ended. With
`--warmup` the appends go on for that long before any count, so that JVMs have compiled and builders
have work. A system's own tool has a turn of its own. Beside each rate stands what a record costs of
the processor, in the client, in the members, and in the processes that members start.

The first system's figures are divided by those of each other system of the same round; the output
has medians over the rounds. A system that cannot be run is named with the reason.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .. import harness
from ..processor import ProcessorWatch, children_seconds, own_seconds
from .load import Plan, short_warmup_s
from .own_tool import measure
from .registry import SYSTEMS
from .system import System, scratch, with_modules

_LATENCY_MAX_S = 60.0
"""The longest appends at a rate, in a run that warms systems up."""
_BUDGET = ("client us", "members us", "children us", "all us", "busy %")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON. Return 1 when a system failed."""
    parser = harness.parser("peers", __doc__)
    parser.add_argument(
        "--seconds", type=float, help="seconds of each workload in a turn (default 60)"
    )
    parser.add_argument(
        "--warmup", type=float, help="seconds at full speed before them (default a fifth, up to 10)"
    )
    parser.add_argument("--rounds", type=int, help="default 3")
    parser.add_argument("--cache", type=Path, default=Path("peers"),
                        help="where fetch has put programs (default ./peers)")  # fmt: skip
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="comma-separated")
    parser.add_argument("--keys", type=int)
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--rate", type=float, default=100.0)
    options = parser.parse_args(arguments)
    options.seconds = options.seconds or (1.0 if options.quick else 60.0)
    options.rounds = options.rounds or (1 if options.quick else 3)
    warm = options.warmup is not None
    plan = Plan(
        options.keys or (10_000 if options.quick else 1_000_000), options.value_bytes,
        options.seconds, options.warmup if warm else short_warmup_s(options.seconds),
        min(_LATENCY_MAX_S, options.seconds) if warm else options.seconds, options.rate,
    )  # fmt: skip
    around = harness.environment()
    found: dict[str, System] = {}
    failed: dict[str, str] = {}
    for name in filter(None, options.systems.split(",")):
        if name not in SYSTEMS:
            parser.error(f"unknown system {name!r}; known: {', '.join(SYSTEMS)}")
        reason = SYSTEMS[name].missing(options.cache)
        if reason is None:
            found[name] = SYSTEMS[name]
        else:
            failed[name] = reason
            print(f"skipped {name}: {reason}", flush=True)
    skipped = dict(failed)
    rows: list[dict[str, Any]] = []
    for number in range(1, options.rounds + 1):
        for name, system in found.items():
            try:
                turn = _turn(system, plan, options)
                rows += [{"round": number, "system": name, **row} for row in turn]
                for row in turn:
                    print(f"round {number}  {name}  {row['workload']}: "
                          f"{row['records_per_second']:,}/s", flush=True)  # fmt: skip
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                failed[name] = str(error)
                print(f"failed {name} in round {number}: {error}", flush=True)
    systems = {
        name: {"version": system.version(options.cache), "durability": system.durability,
               "settings": system.settings(), "note": system.limits}
        for name, system in found.items()
    }  # fmt: skip
    around = {**around, "seconds": plan.seconds, "warmup_s": plan.warmup_s}
    _show(options, around, systems, skipped, rows)
    return int(failed != skipped or not rows)


def _turn(system: System, plan: Plan, options: Any) -> list[dict[str, Any]]:
    """Return the reports of one turn of a system, and of its own tool."""
    cache = options.cache.resolve()
    with scratch(options.data) as directory, system.start(directory, cache) as members:
        reports = _loaded(system, members.addresses, members.pids, plan)
    if not system.has_own_tool:
        return reports
    with scratch(options.data) as directory, system.start(directory, cache) as members:
        tool = asyncio.run(system.own_tool(members.addresses, cache, plan.shape))
        if tool is not None:
            watch = partial(_watch, members.pids)
            reports.append(measure(tool, plan.warmup_s, plan.seconds, watch))
    return reports


def _loaded(
    system: System, addresses: Sequence[str], pids: Sequence[int], plan: Plan
) -> list[dict[str, Any]]:
    """Return the reports of the load, with the processor time of its records."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.peers.load", system.name, ",".join(addresses),
         plan.to_text()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **with_modules()},
    ) as load:  # fmt: skip
        try:
            with _watch(pids, load.pid) as watch:
                said, wrong = load.communicate(
                    timeout=300 + plan.warmup_s + 3 * (plan.seconds + plan.latency_s)
                )
        finally:
            load.kill()
    if load.returncode != 0:
        raise RuntimeError(wrong.strip()[-1_000:])
    reports: list[dict[str, Any]] = json.loads(said)
    for report in reports:
        begin, end = report["measured_s"]
        report |= watch.budget((begin, end), report["records"])
    return reports


def _watch(pids: Sequence[int], client: int) -> ProcessorWatch:
    return ProcessorWatch({
        "client": partial(own_seconds, [client]),
        "members": partial(own_seconds, pids),
        "children": partial(children_seconds, pids),
    })  # fmt: skip


def _show(
    options: Any, around: harness.Row, systems: dict[str, Any], skipped: dict[str, str],
    rows: list[dict[str, Any]],
) -> None:  # fmt: skip
    """Print the table of medians and ratios; write everything as JSON."""
    print("  ".join(f"{name}={value}" for name, value in around.items()))
    for name, system in systems.items():
        print(f"{name}: {system['version']}; acknowledged when {system['durability']}. "
              f"{system['note']}".rstrip())  # fmt: skip
    medians = summary(rows)
    if medians:
        print(harness.table(medians))
    if options.json:
        body = {"environment": dict(around), "systems": systems, "skipped": skipped,
                "results": medians, "rounds": rows}  # fmt: skip
        options.json.write_text(json.dumps(body, indent=2) + "\n")


def summary(rows: Sequence[harness.Row]) -> list[dict[str, Any]]:
    """Return medians of each system and workload, and of the ratios to the first system.

    A ratio is taken within a round.
    """
    first: dict[tuple[int, str], harness.Row] = {}
    for row in rows:
        if row["system"] == rows[0]["system"]:
            first[row["round"], _kind(row)] = row
    groups: dict[tuple[str, str], list[harness.Row]] = {}
    for row in rows:
        groups.setdefault((row["system"], row["workload"]), []).append(row)
    found = []
    for (system, workload), group in groups.items():
        rates = [row["records_per_second"] for row in group]
        pairs = [(first[row["round"], _kind(row)], row) for row in group
                 if (row["round"], _kind(row)) in first]  # fmt: skip
        throughput = _kind(group[0]) == "throughput"
        found.append({
            "system": system, "workload": workload, "rounds": len(group),
            "records_per_second": round(statistics.median(rates), 1),
            "lowest": min(rates), "highest": max(rates),
            "latency_p50_ms": _median(row.get("latency_ms") for row in group),
            "service_p50_ms": _median(row.get("service_ms") for row in group),
            "service_p99_ms": _median((row.get("service_ms") for row in group), "p99"),
            "verified": sum(row["verified"] for row in group),
            **{name: round(statistics.median(row[name] for row in group), 2) for name in _BUDGET},
            f"{rows[0]['system']} / it": round(statistics.median(
                own["records_per_second"] / row["records_per_second"] for own, row in pairs
            ), 2) if pairs and throughput else None,
        })  # fmt: skip
    return found


def _kind(row: harness.Row) -> str:
    return "latency" if row.get("latency_ms") else "throughput"


def _median(spreads: Any, name: str = "p50") -> float | None:
    values = [spread[name] for spread in spreads if spread and name in spread]
    return round(statistics.median(values), 3) if values else None
