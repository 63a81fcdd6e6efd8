"""Use a node as hard as one principal can, and heed no refusal.

`--kind bulk` appends batches of 512 KiB, `hot` single records of one key, `export` reads all of a
key in pages, `status` asks for status and metadata, `churn` connects and leaves. Each connection
but those of `churn` keeps `--in-flight` requests under way. `handshakes` is for a node with TLS: it
says the same first message of a handshake again and again, and leaves once the node has answered.
That costs the node a signature, and the sender nothing.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator

from attack import Body, Line, arguments, range_of

from lognode.client.protocol import Operation, frames, limits
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.cluster import METADATA, PRODUCER_OPEN, STATUS
from lognode.client.protocol.reads import SCAN
from lognode.client.protocol.records import encode_batch

Request = tuple[Operation, Body]
Requests = Callable[[Body, int, argparse.Namespace], Iterator[Request]]
counts = {"answered": 0, "refused": 0, "connections": 0}


def bulk(range_: Body, producer: int, options: argparse.Namespace) -> Iterator[Request]:
    """Appends of 64 records of 8 KiB that cannot be compressed."""
    values = [os.urandom(8 << 10) for _ in range(64)]
    return _appends(range_, producer, [options.key.encode()] * 64, values)


def hot(range_: Body, producer: int, options: argparse.Namespace) -> Iterator[Request]:
    """Appends of a record to the same key."""
    return _appends(range_, producer, [options.key.encode()], [b"x" * 100])


def _appends(
    range_: Body, producer: int, keys: list[bytes], values: list[bytes]
) -> Iterator[Request]:
    for first in itertools.count(1, len(keys)):
        batch = encode_batch(
            keys, values, producer=producer, epoch=1, low=first, numbers=first, each=False
        )
        yield APPEND, {**range_, "batches": [batch]}  # as it is by now


def export(range_: Body, _: int, options: argparse.Namespace) -> Iterator[Request]:
    """The largest pages of a key, from its first entry on."""
    page = {"key": options.key.encode(), "start": 1, "end": None,
            "limit": limits.page_entries_max, "bytes": limits.page_bytes_max}  # fmt: skip
    while True:
        yield SCAN, {**range_, **page}


def status(_: Body, __: int, ___: argparse.Namespace) -> Iterator[Request]:
    """Status and metadata of everything."""
    return itertools.cycle(((STATUS, {}), (METADATA, {})))


KINDS: dict[str, Requests] = {"bulk": bulk, "hot": hot, "export": export, "status": status}


async def use(options: argparse.Namespace) -> None:
    """One connection that keeps requests under way."""
    line = await Line.open(options)
    counts["connections"] += 1
    try:
        range_ = await _found(line, options)
        producer = (await _persist(lambda: line.ask(PRODUCER_OPEN, {})))["id"]
        requests = KINDS[options.kind](range_, producer, options)
        for _ in range(options.in_flight):
            operation, body = next(requests)
            await line.say(operation.number, body)
        while True:
            answer = await line.read()
            if answer.kind in (frames.OK, frames.ERROR):
                counts["answered" if answer.kind == frames.OK else "refused"] += 1
                if "ranges" in answer.body:  # the range was split
                    other = await Line.open(options)
                    range_.update(await _found(other, options))
                    other.close()
                operation, body = next(requests)
                await line.say(operation.number, body)
    finally:
        line.close()


async def _found(line: Line, options: argparse.Namespace) -> Body:
    """The range with the key."""
    return await _persist(lambda: range_of(line, options.log, options.key.encode()))


async def _persist(ask: Callable[[], "asyncio.Future[Body]"]) -> Body:
    """The answer, once it is none of a refusal."""
    while True:
        with contextlib.suppress(KeyError):
            answer = await ask()
            if "ranges" not in answer and "id" not in answer and "range" not in answer:
                raise KeyError("refused")
            return answer
        await asyncio.sleep(0.05)


async def churn(options: argparse.Namespace) -> None:
    """Connect, shake hands, leave, again."""
    while True:
        try:
            line = await Line.open(options)
        except OSError:
            counts["refused"] += 1
            await asyncio.sleep(0.001)
            continue
        counts["connections"] += 1
        line.close()


async def handshakes(options: argparse.Namespace) -> None:
    """Begin TLS handshakes with bytes that were made once, and end none of them."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    shaking = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        shaking.do_handshake()
    hello = outgoing.read()
    while True:
        line = None
        try:
            line = await Line.connect(options)
            await line.write(hello)
            counts["connections" if await line.receive() else "refused"] += 1
        except OSError:
            counts["refused"] += 1
            await asyncio.sleep(0.001)
        finally:
            if line is not None:
                line.close()


async def main(options: argparse.Namespace) -> None:
    """Run until the time is up and print the result."""
    work = {"churn": churn, "handshakes": handshakes}.get(options.kind, use)
    tasks = [asyncio.create_task(work(options)) for _ in range(options.connections)]
    await asyncio.wait(tasks, timeout=options.seconds)
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            counts["ended"] = counts.get("ended", 0) + 1
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--kind", choices=(*KINDS, "churn", "handshakes"), required=True)
    parser.add_argument("--in-flight", type=int, default=16)
    began = time.monotonic()
    asyncio.run(main(parser.parse_args()))
