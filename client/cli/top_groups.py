"""The consumer groups for `lognode top`: a bounded number of groups, with their exact lag."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from ..client import AsyncClient
from ..protocol.errors import LognodeError, NotFound
from ..protocol.types import GroupInfo, GroupLag

_LOGS_MAX: Final = 256
"""Logs that one look asks for their groups."""
_COUNTED_MAX: Final = 100
"""Groups that one look asks for their lag: the ranges of the log count for each."""
_AT_A_TIME: Final = 8

Row = dict[str, Any]


async def look(client: AsyncClient, logs: Sequence[str]) -> list[Row]:
    """Return the groups of these logs by log and name, each with its `lag`, None if unknown.

    The lag of a group is unknown beyond the first hundred groups, and when the ranges of the group
    do not answer. Logs beyond the first 256 are not looked at. Raises the errors of `groups`.
    """
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def of_log(name: str) -> list[tuple[str, GroupInfo]]:
        async with turns:
            try:
                return [(name, info) for info in await client.log(name).groups()]
            except NotFound:
                return []  # the log was deleted since

    async def lag_of(log: str, group: str) -> GroupLag | None:
        async with turns:
            try:
                return await client.log(log).group(group).lag()
            except LognodeError:
                return None

    listed = await asyncio.gather(*map(of_log, sorted(logs)[:_LOGS_MAX]))
    found = [pair for pairs in listed for pair in pairs]
    lags: list[GroupLag | None] = list(
        await asyncio.gather(*(lag_of(log, info.name) for log, info in found[:_COUNTED_MAX]))
    )
    lags += [None] * (len(found) - len(lags))
    return [
        {"log": log, "group": info.name, "lag": None if lag is None else lag._asdict()}
        for (log, info), lag in zip(found, lags, strict=True)
    ]
