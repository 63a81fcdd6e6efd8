"""Appends and polls at once, each at its rate, on separate connections."""

import asyncio
from typing import Any

from .appending import Appender
from .polling import Poller


async def run(appender: Appender, poller: Poller) -> dict[str, Any]:
    """Run both, and return both reports. Raises the error of either."""
    try:
        async with asyncio.TaskGroup() as group:
            appended = group.create_task(appender.run())
            polled = group.create_task(poller.run())
    except BaseExceptionGroup as found:
        raise found.exceptions[0] from None
    return {"workload": "mixed", "append": appended.result(), "poll": polled.result()}
