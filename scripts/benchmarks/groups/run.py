"""`scripts/bench groups`: consumer groups of lognode, work queues and groups of other systems.

Each turn has three fresh members. Consumers run in processes of their own, check each item, and
note when they got the item and when they acknowledged it. Over all processes, each item has to be
acknowledged once, and the items of a key one after the other. Otherwise a turn of lognode fails;
the table has the counts of other systems, which promise less.

drain    a backlog, by 1, 4, 16 consumers: acknowledged records a second; one record of a
         key follows another, or ten, before the next key
latency  1,000 records/s: from the time at which a record is due to the consumer's handler
poison   the same, with a key at which consumers fail: the other keys' latency with and without
churn    consumers that leave and join all the time: how long a key with something to do stood
growth   a million keys, one record each: memory and meta bytes of a member
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from .. import harness
from . import turn
from .plan import Plan
from .systems import SYSTEMS

PARTS: Final = ("drain", "latency", "poison", "churn", "growth")
_WRONG: Final = ("missing", "repeated", "out of order")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON. Return 1 for a turn that failed, for
    missing items, and for anything that lognode repeats or reorders."""
    parser = harness.parser("groups", __doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated")
    parser.add_argument("--turns", default="lognode",
                        help="SYSTEM[:MODE],...; also nats:plain, nats:confirmed, kafka:group, "
                             "kafka:share")  # fmt: skip
    parser.add_argument("--consumers", default="1,4,16", help="numbers for drain, comma-separated")
    parser.add_argument("--bursts", default="1,10",
                        help="records of a key, one after the other, in drain")  # fmt: skip
    parser.add_argument("--records", type=int, help="backlog in drain (default 500000)")
    parser.add_argument("--keys", type=int, help="default 100000; in growth 1000000")
    parser.add_argument("--rate", type=float, help="records a second (default 1000)")
    parser.add_argument("--seconds", type=float, help="appends at the rate (default 60)")
    parser.add_argument("--life", type=float, default=1.0, help="seconds of a consumer in churn")
    parser.add_argument("--processes", type=int, default=2, help="processes of consumers")
    parser.add_argument("--credit", type=int, default=4_096,
                        help="most keys that a consumer of lognode has at a time")  # fmt: skip
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--ranges", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path("peers"),
                        help="where fetch has put programs (default ./peers)")  # fmt: skip
    options = parser.parse_args(arguments)
    turns = [each.partition(":")[::2] for each in options.turns.split(",")]
    for system, mode in turns:
        if system not in SYSTEMS or mode not in ("", *SYSTEMS[system].MODES):
            parser.error(f"unknown turn {system}:{mode}")
    parts = options.parts.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"unknown parts {options.parts}; the parts are {', '.join(PARTS)}")
    around = harness.environment()
    rows: list[dict[str, Any]] = []
    for number in range(1, options.rounds + 1):
        for part in parts:
            for head, plan in _plans(part, options):
                for system, mode in turns:
                    known = replace(plan, system=system, mode=mode or SYSTEMS[system].MODES[0])
                    row = {"round": number, "part": part, "system": known.system,
                           "mode": known.mode, **head, **_row(part, known, options)}  # fmt: skip
                    print(json.dumps(row), file=sys.stderr, flush=True)
                    rows.append(row)
    harness.show(options, around, rows)
    return int(any(map(is_wrong, rows)))


def _plans(part: str, options: Any) -> Iterator[tuple[dict[str, Any], Plan]]:
    """Yield the plans of a part, each with what its rows begin with."""
    quick = options.quick
    seconds = options.seconds or (2.0 if quick else 60.0)
    keys = options.keys or (1_000 if quick else 100_000)
    base = Plan("", "", [], "", keys, options.value_bytes, 4, options.processes, batch=1,
                ranges=options.ranges, credit=options.credit)  # fmt: skip
    paced = replace(base, rate=options.rate or (100.0 if quick else 1_000.0), seconds=seconds,
                    warmup_s=min(5.0, seconds / 4))  # fmt: skip
    if part == "drain":
        records = options.records or (5_000 if quick else 500_000)
        for burst in map(int, options.bursts.split(",")):
            for count in map(int, options.consumers.split(",")):
                yield {"consumers": count, "burst": burst}, replace(
                    base, consumers=count, processes=min(count, options.processes), records=records,
                    batch=500, burst=burst,
                )  # fmt: skip
    elif part == "latency":
        yield {"consumers": 4}, paced
    elif part == "poison":
        for fails in (False, True):
            every = max(1, int(paced.rate))
            yield {"consumers": 4, "poison": fails}, replace(paced, poison_every=every, fails=fails)
    elif part == "churn":
        yield {"consumers": 32}, replace(paced, consumers=32, life_s=options.life)
    else:
        many = options.keys or (10_000 if quick else 1_000_000)
        yield {"consumers": 4}, replace(base, keys=many, records=many, in_order=True, batch=500)


def _row(part: str, plan: Plan, options: Any) -> dict[str, Any]:
    try:
        return turn.run(plan, options.data, options.cache.resolve(), grows=part == "growth")
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return {"failed": str(error)}


def is_wrong(row: dict[str, Any]) -> bool:
    """Return whether a turn failed, or whether a system broke what it promises."""
    wrong = _WRONG if row["system"] == "lognode" else ("missing",)
    return "failed" in row or any(row.get(what) for what in wrong)
