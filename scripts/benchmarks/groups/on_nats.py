"""Appends to a stream of NATS JetStream with the retention of a work queue, and its consumers: one
durable consumer, whose messages the server pushes to a queue group of subscriptions.

`plain`: an acknowledgement is sent, and nobody waits for an answer. `confirmed`: the server
answers after a majority of the consumer's replicas has the acknowledgement.

A work queue keeps no order of the messages of a subject: two consumers may have two at once.
"""

import asyncio
import time
from typing import Any, Final

from ..follow.on_nats import Appends as _Appends
from .plan import DELIVERIES_MAX, RETRY_S, Plan
from .work import Item, Work

MODES: Final = ("plain", "confirmed")
_STREAM: Final = "bench"
"""As in the module of the appends."""
_QUEUE: Final = "workers"
_PENDING_MAX: Final = 4_096
"""Messages of the queue that wait for acknowledgements; the server's default is 1,000."""
_LEASE_S: Final = 30.0
_CREATE_S: Final = 2.0
"""How long an attempt to create a stream may take. Servers that are just starting do not answer."""


class Appends(_Appends):
    """Appends of one process; a message for every record."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)  # type: ignore[arg-type]  # it uses what both plans have


async def create(plan: Plan) -> None:
    """Create the stream and its consumer, of three replicas, in files."""
    from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

    connection = await _connect(plan)
    js = connection.jetstream(timeout=_CREATE_S)
    stream = StreamConfig(
        name=_STREAM, subjects=[f"{_STREAM}.*"], num_replicas=3, storage=StorageType.FILE,
        retention=RetentionPolicy.WORK_QUEUE,
    )  # fmt: skip
    consumer = ConsumerConfig(
        durable_name=_QUEUE, deliver_group=_QUEUE, deliver_subject=f"deliver.{_QUEUE}",
        ack_policy=AckPolicy.EXPLICIT, ack_wait=_LEASE_S, max_deliver=DELIVERIES_MAX,
        max_ack_pending=_PENDING_MAX,
    )  # fmt: skip
    for attempt in range(100):
        try:
            await js.add_stream(stream)
            await js.add_consumer(_STREAM, consumer)
            break
        except Exception:  # no leader yet; the client raises several classes
            if attempt == 99:
                raise
            await asyncio.sleep(0.2)
    await connection.close()


async def consume(plan: Plan, number: int, work: Work, left: asyncio.Event) -> None:
    """Be a consumer until `left` is set. Raises the first error of a message."""
    await _Consumer(plan, number, work).run(left)


class _Consumer:
    def __init__(self, plan: Plan, number: int, work: Work) -> None:
        self._plan = plan
        self._number = number
        self._work = work
        self._asking: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, left: asyncio.Event) -> None:
        connection = await _connect(self._plan)
        js = connection.jetstream(timeout=self._plan.timeout_s)
        subscription = await js.subscribe(
            f"{_STREAM}.*", queue=_QUEUE, durable=_QUEUE, stream=_STREAM, cb=self._take,
            manual_ack=True,
        )  # fmt: skip
        leaving = asyncio.create_task(left.wait())
        try:
            await asyncio.wait({leaving, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                await self._failed
            await subscription.drain()
            await asyncio.gather(*self._asking)
        finally:
            leaving.cancel()
            await connection.close()

    async def _take(self, message: Any) -> None:
        try:
            key = message.subject.removeprefix(f"{_STREAM}.").encode()
            item = self._work.begin(key, message.data)
            if self._work.fails(item):
                await message.nak(delay=RETRY_S)
                return
            called = time.perf_counter()
            if self._plan.mode == "plain":
                await message.ack()
                self._work.end(self._number, [item], called)
            else:
                task = asyncio.create_task(self._confirm(message, item, called))
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)
        except Exception as error:  # the client would log it and go on
            self._fail(error)

    async def _confirm(self, message: Any, item: Item, called: float) -> None:
        try:
            await message.ack_sync(timeout=self._plan.timeout_s)
            self._work.end(self._number, [item], called)
        except Exception as error:  # the client raises several classes
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)


async def _connect(plan: Plan) -> Any:
    import nats

    return await nats.connect(list(plan.addresses))
