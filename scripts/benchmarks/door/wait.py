"""Fetches that wait for records: `python -m benchmarks.door.wait FETCHES PLAN`.

Each fetch has a connection of its own to the leader of its partition, asks for records behind the
last one, and waits as long as a broker of lognode lets it wait; then it comes again. The
connections come from several addresses of this machine, since a node gives one host a share of its
connections. A line of JSON says that all fetches are there. A line on standard input ends the
program, which first says how many came again meanwhile, and how many connections have ended.
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


class _Fetches:
    def __init__(self, wanted: int, places: list[tuple[str, int, bytes]]) -> None:
        self._wanted = wanted
        self._places = places
        self._entry = asyncio.Semaphore(_AT_ONCE)
        self._are_there = asyncio.Event()
        self.waiting = self.again = 0

    async def run(self, number: int) -> None:
        """Wait for records that do not come, until the connection ends."""
        host, port, request = self._places[number % len(self._places)]
        source = f"127.0.0.{2 + number % _HOSTS}", 0
        async with self._entry:
            reader, writer = await asyncio.open_connection(
                host, port, local_addr=source, limit=_HELD_MAX
            )
        writer.write(request)
        self.waiting += 1
        if self.waiting == self._wanted:
            self._are_there.set()
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                _check(await reader.readexactly(size))
                writer.write(request)
                self.again += 1
        except (OSError, asyncio.IncompleteReadError):
            self.waiting -= 1
        finally:
            writer.transport.abort()

    async def begin(self) -> list[asyncio.Task[None]]:
        """Return the fetches once all are there."""
        running = [asyncio.create_task(self.run(number)) for number in range(self._wanted)]
        there = asyncio.create_task(self._are_there.wait())
        await asyncio.wait((there, *running), return_when=asyncio.FIRST_COMPLETED)
        there.cancel()
        return running


async def _wait(fetches: int, places: list[tuple[str, int, bytes]]) -> None:
    all_ = _Fetches(fetches, places)
    running = await all_.begin()
    await asyncio.sleep(_SETTLE_S)
    before = all_.again
    print(json.dumps({"waiting": all_.waiting}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(json.dumps({"again": all_.again - before, "ended": fetches - all_.waiting}), flush=True)
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def _check(answer: bytes) -> None:
    """Raise RuntimeError unless an answer of version 4 has no error and no records."""
    at = 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4  # up to the error of the only partition
    if int.from_bytes(answer[at : at + 2], "big"):
        raise RuntimeError(f"a fetch failed: {answer.hex()}")


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
