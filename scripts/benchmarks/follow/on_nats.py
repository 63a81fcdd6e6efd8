"""Appends to a stream of NATS JetStream, and followers of its subjects, one subject a key.

`core`: a plain subscription, which a server serves before the stream has stored the message.
`consumers`: an ordered consumer of the stream, which gets stored messages, and again what it lost.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from .delivered import Delivered
from .plan import Plan

_STREAM = "bench"
MODES = ("core", "consumers")
_OPENED_AT_ONCE = 64


class Appends:
    """Appends of one process; a message for every record."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    async def open(self) -> None:
        """Connect."""
        self._nats = await _connect(self._plan)
        self._js = self._nats.jetstream(timeout=self._plan.timeout_s)

    async def append(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Return when the records are acknowledged."""
        publish = self._js.publish
        await asyncio.gather(*[publish(_subject(key), value) for key, value in records])

    async def close(self) -> None:
        """Disconnect."""
        await self._nats.close()


class Following:
    """All followers. `failed` is the first error of any of them."""

    def __init__(self, plan: Plan, delivered: Delivered) -> None:
        self._plan = plan
        self._delivered = delivered
        self._gate = asyncio.Semaphore(_OPENED_AT_ONCE)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Return when every follower is subscribed."""
        self._connections = [await _connect(self._plan) for _ in range(self._plan.clients)]
        async with asyncio.TaskGroup() as opening:
            for at, number in enumerate(self._plan.followed()):
                connection = self._connections[at % len(self._connections)]
                opening.create_task(self._open(connection, self._plan.stamps.key(number)))
        for connection in self._connections:
            await connection.flush(round(self._plan.timeout_s))

    async def close(self) -> None:
        """End all followers."""
        for connection in self._connections:
            await connection.close()

    async def _open(self, connection: Any, key: bytes) -> None:
        async with self._gate:
            take = partial(self._take, key)
            if self._plan.mode == "core":
                await connection.subscribe(_subject(key), cb=take)
                return
            from nats.js.api import DeliverPolicy

            js = connection.jetstream(timeout=self._plan.timeout_s)
            await js.subscribe(
                _subject(key), cb=take, ordered_consumer=True, deliver_policy=DeliverPolicy.NEW
            )

    async def _take(self, key: bytes, message: Any) -> None:
        try:
            self._delivered.take(key, message.data)
        except Exception as error:  # the client would log it and go on
            if not self.failed.done():
                self.failed.set_exception(error)


async def create(plan: Plan) -> None:
    """Create the stream of three replicas, in files."""
    from nats.js.api import StorageType, StreamConfig

    connection = await _connect(plan)
    config = StreamConfig(
        name=_STREAM, subjects=[f"{_STREAM}.*"], num_replicas=3, storage=StorageType.FILE
    )
    for attempt in range(100):
        try:
            await connection.jetstream(timeout=plan.timeout_s).add_stream(config)
            break
        except Exception:  # no leader yet; the client raises several classes
            if attempt == 99:
                raise
            await asyncio.sleep(0.2)
    await connection.close()


async def _connect(plan: Plan) -> Any:
    import nats

    return await nats.connect(list(plan.addresses))


def _subject(key: bytes) -> str:
    return f"{_STREAM}.{key.decode()}"
