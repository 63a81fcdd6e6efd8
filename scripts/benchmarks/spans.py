"""Reading all entries of a range from one node, page by page."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import lognode
from lognode.client.pages import entries_of
from lognode.client.protocol import chunks, limits
from lognode.client.protocol.reads import EXPORT


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The keys of one range."""

    start: bytes
    end: bytes | None


async def of_log(client: lognode.AsyncClient, log: str) -> list[KeySpan]:
    """Return the spans of the log's ranges, in order."""
    ranges = (await client.metadata(log))["ranges"]
    found = [KeySpan(bytes(each["start"]), each["end"]) for each in ranges]
    return sorted(found, key=lambda span: span.start)


async def entries(
    log: lognode.AsyncLog, span: KeySpan, node: int
) -> AsyncIterator[Sequence[lognode.Entry]]:
    """Yield pages of the span's entries, of that node's own replica."""
    position = None
    while True:
        body = {"start_key": span.start, "end_key": span.end, "position": position,
                "limit": limits.page_entries_max, "bytes": limits.page_bytes_max}  # fmt: skip
        answer = await log._reads.read(  # no public read of a span names a node
            EXPORT, span.start, body, None, "linearizable", node, None
        )
        found = entries_of(chunks.unpacked(answer))
        if found:
            yield found
        position = answer["position"]
        if position is None:
            return
