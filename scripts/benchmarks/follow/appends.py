"""The appends of `scripts/bench follow`: python -m benchmarks.follow.appends APPENDER PLAN.

An open loop at the plan's rate. Prints a report as JSON.
"""

import asyncio
import json
import sys
from typing import Any

from lognode.client.bench import pace
from lognode.client.bench.garbage import few_collections
from lognode.client.bench.report import Recorder

from .plan import Plan, Records
from .systems import SYSTEMS


async def run(plan: Plan, appender: int) -> dict[str, Any]:
    """Append for the plan's warm-up and seconds; return the report."""
    to = SYSTEMS[plan.system].Appends(plan)
    await to.open()
    records = Records(plan, appender)
    recorder = Recorder(warmup_s=plan.warmup_s)

    async def call(_: int, due: float) -> int:
        drawn = records.draw(plan.batch, due)
        await to.append(drawn)
        return len(drawn)

    try:
        calls = plan.rate / plan.appenders / plan.batch
        with few_collections():
            await pace.at_rate(calls, plan.warmup_s + plan.seconds, call, recorder)
    finally:
        await to.close()
    return recorder.report("append", {"to_followed": records.to_followed})


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(Plan.from_text(sys.argv[2]), int(sys.argv[1])))))
