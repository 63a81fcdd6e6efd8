"""The reads at the end of a test: everything, once from the cluster and once from each node, and
the dead letters."""

import asyncio
import contextlib
from typing import Any, Final

from ..client.protocol.errors import NodeNotFound
from ..client.protocol.types import Entry
from .process import Process
from .workloads.parts import DEAD, seqs, text

_AT_ONCE: Final = 16
_ATTEMPTS: Final = 5
Span = tuple[bytes, bytes | None]


async def read_all(process: Process, node: int | None, through: dict[str, int]) -> dict[str, int]:
    """Run one `final` operation. Returns the last seq of each key that it has read.

    With a node, it reads all keys in ranges that have the node as a member (`spans` in the answer),
    once the node has applied `through`, the last seq of each key.
    """
    found: dict[str, list[Entry]] = {}

    async def act() -> dict[str, Any]:
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(NodeNotFound):  # replicas are balanced meanwhile
                return await collect()
        return await collect()

    async def collect() -> dict[str, Any]:
        found.clear()
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(key: str) -> None:
            async with gate:
                scan = process.log.scan(key, node=node, through=through.get(key))
                found[key] = [entry async for entry in scan]

        spans = await _spans(process, node)
        listed = [key for span in spans for key in await _keys(process, node, span)]
        keys = set(listed) | {key for key in through if _within(key, spans)}
        await asyncio.gather(*map(one, sorted(keys)))
        answer: dict[str, Any] = {"keys": {key: seqs(found[key]) for key in sorted(keys)}}
        if node is not None:
            answer["spans"] = [[low.decode(), high and high.decode()] for low, high in spans]
        return answer

    await process.call("final", {}, act(), writes=False, node=node)
    return {key: entries[-1].seq for key, entries in found.items() if entries}


async def read_letters(process: Process) -> None:
    """Run one `letters` operation, which reads the log of dead letters."""
    log = process.client.log(DEAD)

    async def act() -> dict[str, Any]:
        found: list[list[Any]] = []
        async for key in log.keys():
            async for entry in log.scan(key):
                headers = {text(name): text(told) for name, told in (entry.headers or {}).items()}
                found.append([key.decode(), entry.seq, text(entry.value), headers])
        return {"letters": found}

    await process.call("letters", {}, act(), writes=False)


async def _spans(process: Process, node: int | None) -> list[Span]:
    """Return the keys that the node has, by range; without a node, all keys of the log."""
    if node is None:
        return [(b"", None)]
    ranges = (await process.log.describe())["ranges"]
    return [(row["start"], row["end"]) for row in ranges if node in row["members"]]


async def _keys(process: Process, node: int | None, span: Span) -> list[str]:
    low, high = span
    found = []
    with contextlib.suppress(NodeNotFound):  # the next range is not on the node
        async for key in process.log.keys(start_after=low or None, node=node):
            if high is not None and key >= high:
                break
            found.append(key.decode())
    return found


def _within(key: str, spans: list[Span]) -> bool:
    return any(low <= key.encode() and (high is None or key.encode() < high) for low, high in spans)
