"""The followers of `scripts/bench follow`: python -m benchmarks.follow.receive PLAN.

Prints one line of JSON when all followers are there, or `{"refused": why}`. Then it reads a number
from standard input, waits until that many records are delivered, and prints a report.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

from ..processor import resident
from .delivered import Delivered
from .plan import Plan
from .systems import SYSTEMS

_LAST_S = 60.0
"""The longest wait for what is still under way after the last append."""


async def run(plan: Plan) -> None:
    """Follow, check, report."""
    keys = map(plan.stamps.key, plan.followed())
    delivered = Delivered(plan.stamps, keys, plan.warmup_s)
    following = SYSTEMS[plan.system].Following(plan, delivered)
    begun, used = time.perf_counter(), time.process_time()
    before = resident([os.getpid()])
    try:
        try:
            await following.open()
        except Exception as error:  # whatever it is, it is this system's answer
            _say({"refused": _first_text(error)})
            return
        opened_s = round(time.perf_counter() - begun, 3)
        grown = resident([os.getpid()]) - before
        _say(
            {"opened_s": opened_s, "processor_s": time.process_time() - used, "grown_bytes": grown}
        )
        reading = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        await asyncio.wait({reading, following.failed}, return_when=asyncio.FIRST_COMPLETED)
        if following.failed.done():
            await following.failed
        expected = int(await reading)
        deadline = time.perf_counter() + _LAST_S
        while delivered.count < expected and time.perf_counter() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        _say(delivered.report(expected))
    finally:
        await following.close()


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def _first_text(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    asyncio.run(run(Plan.from_text(sys.argv[1])))
