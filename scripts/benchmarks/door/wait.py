"""Fetches that wait for records: `python -m benchmarks.door.wait FETCHES PLAN`.

Each fetch has a connection of its own to the leader of its partition, asks for records behind the
last one, and waits as long as a broker of lognode lets it wait. The connections come from several
addresses of this machine, since a node gives one host a share of its connections. A line of JSON
says that all fetches wait. A line on standard input ends the program, which first says how many
fetches were answered meanwhile.
"""

import asyncio
import json
import struct
import sys
from typing import Any, Final

from .plan import TOPIC, Plan

_FETCH: Final = 1
_VERSION: Final = 4
_WAIT_MS: Final = 30_000
_BYTES: Final = 1 << 20
_HOSTS: Final = 16
_AT_ONCE: Final = 200
_SETTLE_S: Final = 1.0
_HELD_MAX: Final = 64 << 10


def main(fetches: int, plan: Plan) -> None:
    """Wait until standard input has a line."""
    asyncio.run(_wait(fetches, _places(plan)))


async def _wait(fetches: int, places: list[tuple[str, int, bytes]]) -> None:
    answered = 0
    entry = asyncio.Semaphore(_AT_ONCE)

    async def fetch(number: int) -> asyncio.StreamWriter:
        host, port, request = places[number % len(places)]
        source = f"127.0.0.{2 + number % _HOSTS}", 0
        async with entry:
            reader, writer = await asyncio.open_connection(
                host, port, local_addr=source, limit=_HELD_MAX
            )
            writer.write(request)
            await writer.drain()
        reading.append(asyncio.create_task(read(reader)))
        return writer

    async def read(reader: asyncio.StreamReader) -> None:
        nonlocal answered
        await reader.read(1)
        answered += 1

    reading: list[asyncio.Task[None]] = []
    writers = await asyncio.gather(*map(fetch, range(fetches)))
    await asyncio.sleep(_SETTLE_S)
    print(json.dumps({"waiting": fetches - answered}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(json.dumps({"answered": answered}), flush=True)
    for task, writer in zip(reading, writers, strict=True):
        task.cancel()
        writer.transport.abort()


def _places(plan: Plan) -> list[tuple[str, int, bytes]]:
    """Return the leader's host and port, and the request, for each partition."""
    from confluent_kafka import Consumer, TopicPartition

    client: Any = Consumer({**plan.client, "group.id": "door"})
    try:
        known = client.list_topics(TOPIC, 30)
        places = []
        for number, each in sorted(known.topics[TOPIC].partitions.items()):
            broker = known.brokers[each.leader]
            _, end = client.get_watermark_offsets(TopicPartition(TOPIC, number), 30)
            places.append((broker.host, broker.port, _request(number, end)))
        return places
    finally:
        client.close()


def _request(partition: int, offset: int) -> bytes:
    """Return a Fetch of version 4 with its length in front."""
    topic = TOPIC.encode()
    body = struct.pack(
        f">hhi h4s iiiib i h{len(topic)}s i iqi", _FETCH, _VERSION, 1, 4, b"wait",
        -1, _WAIT_MS, 1, _BYTES, 0, 1, len(topic), topic, 1, partition, offset, _BYTES,
    )  # fmt: skip
    return struct.pack(">i", len(body)) + body


if __name__ == "__main__":
    main(int(sys.argv[1]), Plan.from_text(sys.argv[2]))
