"""`scripts/bench follow`: followers, each of its own key, beside a steady ingest (P4).

A turn has three fresh nodes, all followers in one process, and the appends in others, in an open
loop. A value carries its due time, so that the time from append to delivery includes every queue.
Each delivery is checked: a record that is skipped, repeated or wrong fails the run. The memory of a
follower at the servers is what their processes grow by while the followers come, divided by their
number, before the first append. NATS gets one subject a follower and the same ingest.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import harness
from ..peers.registry import SYSTEMS as PEERS
from ..peers.system import Members, scratch
from ..processor import ProcessorWatch, children_seconds, own_seconds, resident
from ..programs import answer, program, tell
from .plan import KEY_BYTES, Plan
from .systems import SYSTEMS

_SETTLE_S = 2.0
"""How long the servers rest before their memory is read."""


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON. Return 1 for a turn that failed, and for
    a skipped or repeated record."""
    parser = harness.parser("follow", __doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--warmup", type=float, help="seconds of appends before (default 5)")
    parser.add_argument("--followers", help="comma-separated (default 1000,10000,50000)")
    parser.add_argument("--turns", default="lognode:together,lognode:each",
                        help="SYSTEM:MODE,...; also nats:core, nats:consumers")  # fmt: skip
    parser.add_argument("--clients", type=int, default=4, help="clients of the followers")
    parser.add_argument("--keys", type=int)
    parser.add_argument("--value-bytes", type=int, default=1_024)
    parser.add_argument("--ingest", type=float, help="MB/s (default 20)")
    parser.add_argument("--batch", type=int, default=100, help="records of a call")
    parser.add_argument("--appenders", type=int, default=1, help="processes that append")
    parser.add_argument("--ranges", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds that a call may take")
    parser.add_argument("--cache", type=Path, default=Path("peers"),
                        help="where fetch has put programs (default ./peers)")  # fmt: skip
    options = parser.parse_args(arguments)
    seconds = options.seconds or (1.0 if options.quick else 60.0)
    ingest = (options.ingest or (0.5 if options.quick else 20.0)) * 1e6
    keys = options.keys or (1_000 if options.quick else 1_000_000)
    warmup = min(5.0, seconds / 4) if options.warmup is None else options.warmup
    sizes = options.followers or ("100" if options.quick else "1000,10000,50000")
    around = harness.environment()
    rows: list[dict[str, Any]] = []
    for number in range(1, options.rounds + 1):
        for followers in map(int, sizes.split(",")):
            for turn in options.turns.split(","):
                system, _, mode = turn.partition(":")
                if system not in SYSTEMS or mode not in SYSTEMS[system].MODES:
                    parser.error(f"unknown turn {turn!r}")
                plan = Plan(
                    system, mode, [], keys, options.value_bytes, min(followers, keys),
                    options.clients, ingest / (KEY_BYTES + options.value_bytes), options.batch,
                    seconds, warmup, options.ranges, options.appenders, options.timeout,
                )  # fmt: skip
                head = {"round": number, "system": system, "mode": mode,
                        "followers": plan.followers}  # fmt: skip
                try:
                    row = {**head, **_turn(plan, options)}
                except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                    row = {**head, "failed": str(error)}
                print(json.dumps(row), file=sys.stderr, flush=True)
                rows.append(row)
    harness.show(options, around, rows)
    wrong = ("skipped", "repeated", "failed")
    return int(any(row.get(what) for row in rows for what in wrong))


def _turn(plan: Plan, options: Any) -> dict[str, Any]:
    """Return the row of one turn."""
    cache = options.cache.resolve()
    missing = PEERS[plan.system].missing(cache)
    if missing is not None:
        return {"refused": missing}
    with (
        scratch(options.data) as directory,
        PEERS[plan.system].start(directory, cache) as members,
    ):
        plan = replace(plan, addresses=members.addresses)
        asyncio.run(SYSTEMS[plan.system].create(plan))
        return _measure(plan, members)


def _measure(plan: Plan, members: Members) -> dict[str, Any]:
    before = resident(members.pids)
    with program("follow.receive", plan.to_text()) as receiver:
        opened = answer(receiver)
        if "refused" in opened:
            return opened
        time.sleep(_SETTLE_S)
        grown = resident(members.pids) - before
        with contextlib.ExitStack() as stack:
            appenders = [
                stack.enter_context(program("follow.appends", str(number), plan.to_text()))
                for number in range(plan.appenders)
            ]
            watch = ProcessorWatch({
                "appends": partial(own_seconds, [each.pid for each in appenders]),
                "followers": partial(own_seconds, [receiver.pid]),
                "members": partial(own_seconds, members.pids),
                "children": partial(children_seconds, members.pids),
            })  # fmt: skip
            with watch:
                appended = [answer(each) for each in appenders]
        tell(receiver, str(sum(each["to_followed"] for each in appended)))
        delivered = answer(receiver)
    begins, ends = zip(*[each["measured_s"] for each in appended], strict=True)
    interval = min(begins), max(ends)
    records = sum(each["records"] for each in appended)
    spread = delivered.pop("latency_ms") or {}
    return {
        "ingest MB/s": round(
            records * (KEY_BYTES + plan.value_bytes) / 1e6 / (interval[1] - interval[0]), 1
        ),
        "append p50 ms": appended[0]["latency_ms"]["p50"],
        "append p99 ms": appended[0]["latency_ms"]["p99"],
        **delivered,
        **{f"{name} ms": spread.get(name) for name in ("p50", "p99", "max")},
        "opened s": opened["opened_s"],
        "processor s of it": round(opened["processor_s"], 2),
        "server KiB a follower": round(grown / 1024 / plan.followers, 2),
        "client KiB a follower": round(opened["grown_bytes"] / 1024 / plan.followers, 2),
        **watch.budget(interval, records),
    }
