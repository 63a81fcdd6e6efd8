"""`scripts/bench door`: Kafka's client against lognode and against Kafka, in turn, in one run.

Each turn has three fresh members, and the same client (librdkafka, by confluent-kafka) in processes
of its own: an idempotent producer with acks=all, and consumers that assign partitions to
themselves. Every record has to be consumed, once for each reader of its partition, at rising
offsets.

flat     a producer at full speed, then a consumer reads everything: records a second, and the time
         from `produce` to the acknowledgement, most of which a record waits in the client
paced    1,000 records/s, beside a consumer: from the time at which a record is due to its
         acknowledgement, and to the consumer
many     the same, with 1,000 consumers of 100 partitions
idle     9,000 fetches that wait for records, each on a connection: the processor time of the
         members, and what a fetch takes of their memory
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from .. import harness
from . import turn
from .plan import Plan
from .systems import SYSTEMS, TOPICS

PARTS: Final = ("flat", "paced", "many", "idle")


def main(arguments: list[str]) -> int:
    """Run the benchmark, print the table, write the JSON. Return 1 for a turn that failed, or that
    lost or repeated a record."""
    parser = harness.parser("door", __doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="comma-separated")
    parser.add_argument("--partitions", default="1,100", help="numbers for flat and paced")
    parser.add_argument("--consumers", type=int, help="consumers of many (default 1000)")
    parser.add_argument("--fetches", type=int, help="fetches of idle (default 9000)")
    parser.add_argument("--processes", type=int, default=4, help="processes of these consumers")
    parser.add_argument("--rate", type=float, default=1_000.0, help="records a second (1000)")
    parser.add_argument("--seconds", type=float, help="that are measured (default 30)")
    parser.add_argument("--warmup", type=float, help="seconds before (default 10)")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path("peers"),
                        help="where fetch has put programs (default ./peers)")  # fmt: skip
    options = parser.parse_args(arguments)
    parts, systems = options.parts.split(","), options.systems.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"unknown parts {options.parts}; the parts are {', '.join(PARTS)}")
    if not set(systems) <= set(SYSTEMS):
        parser.error(f"unknown systems {options.systems}; known: {', '.join(SYSTEMS)}")
    around = harness.environment()
    rows: list[dict[str, Any]] = []
    for number in range(1, options.rounds + 1):
        for part in parts:
            for plan in _plans(part, options):
                for system in systems:
                    row = {"round": number, "part": part, "partitions": plan.partitions,
                           "system": system, **_row(system, plan, options)}  # fmt: skip
                    print(json.dumps(row), file=sys.stderr, flush=True)
                    rows.append(row)
    for part in parts:
        print(part)
        harness.show(options, around, [row for row in rows if row["part"] == part], rows=rows)
    return int(any(is_wrong(row) for row in rows))


def _plans(part: str, options: Any) -> Iterator[Plan]:
    seconds = options.seconds or (2.0 if options.quick else 30.0)
    warmup = options.warmup if options.warmup is not None else min(10.0, seconds)
    rate = 0.0 if part in ("flat", "idle") else options.rate
    fetches = options.fetches or (300 if options.quick else 9_000)
    consumers = options.consumers or (200 if options.quick else 1_000)
    numbers = [100] if part in ("many", "idle") else map(int, options.partitions.split(","))
    for partitions in numbers:
        count, processes = (consumers, options.processes) if part == "many" else (1, 1)
        yield Plan(
            [], {}, partitions, options.keys, options.value_bytes, rate, seconds, warmup, count,
            processes, fetches if part == "idle" else 0,
        )  # fmt: skip


def _row(system: str, plan: Plan, options: Any) -> dict[str, Any]:
    try:
        return turn.run(
            system, replace(plan, settings=dict(TOPICS[system])), options.data,
            options.cache.resolve(),
        )  # fmt: skip
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return {"failed": str(error)}


def is_wrong(row: dict[str, Any]) -> bool:
    """Return whether a turn failed, lost a record, or repeated a record."""
    return any(row.get(what) for what in ("failed", "missing", "repeated"))
