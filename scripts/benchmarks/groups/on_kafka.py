"""Appends to a topic of Kafka, and its consumers.

`group`: a consumer group, whose members share the partitions out; a member commits after each batch
of a poll. `share`: a share group, whose members share the records out; a member acknowledges each
record. There a topic keeps no order of the records of a key.
"""

import asyncio
import importlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..peers.registry import SYSTEMS as PEERS
from .plan import DELIVERIES_MAX, RETRY_S, Plan
from .work import Item, Work

MODES: Final = ("group", "share")
_TOPIC: Final = "groups"
_GROUP: Final = "workers"
_BATCH: Final = 500
"""Records of a poll, as in Kafka's own client."""
_POLL_S: Final = 0.1


class Appends:
    """Appends of one process."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._over = threading.Event()

    async def open(self) -> None:
        """Connect."""
        from confluent_kafka import Producer

        self._loop = asyncio.get_running_loop()
        self._producer = Producer({
            "bootstrap.servers": ",".join(self._plan.addresses), "acks": "all",
            "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000,
        })  # fmt: skip
        self._polling = threading.Thread(target=self._poll, daemon=True)
        self._polling.start()

    async def append(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Return when the records are acknowledged."""
        done: asyncio.Future[None] = self._loop.create_future()
        left = len(records)

        def delivered(error: Any, _: Any) -> None:
            nonlocal left
            left -= 1
            if error is not None or left == 0:
                self._loop.call_soon_threadsafe(_settle, done, error)

        for key, value in records:
            self._producer.produce(_TOPIC, value, key, on_delivery=delivered)
        await done

    async def close(self) -> None:
        """Disconnect."""
        self._over.set()
        await asyncio.to_thread(self._polling.join)

    def _poll(self) -> None:
        while not self._over.is_set():
            self._producer.poll(_POLL_S)


async def create(plan: Plan) -> None:
    """Create a topic of three replicas, with a partition for every consumer, and the group."""
    await asyncio.to_thread(_create, plan)


async def consume(plan: Plan, number: int, work: Work, left: asyncio.Event) -> None:
    """Be a consumer, in a thread, until `left` is set. Raises the first error."""
    over = threading.Event()
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        error: BaseException | None = None
        try:
            (_group if plan.mode == "group" else _share)(plan, number, work, over)
        except BaseException as found:  # the loop raises it
            error = found
        loop.call_soon_threadsafe(_settle, ended, error)

    threading.Thread(target=run, name=f"consumer {number}", daemon=True).start()
    leaving = asyncio.create_task(left.wait())
    await asyncio.wait({leaving, ended}, return_when=asyncio.FIRST_COMPLETED)
    over.set()
    leaving.cancel()
    await ended


def _group(plan: Plan, number: int, work: Work, over: threading.Event) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer({
        "bootstrap.servers": ",".join(plan.addresses), "group.id": _GROUP,
        "group.protocol": "consumer", "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([_TOPIC])
    try:
        while not over.is_set():
            items = []
            for message in consumer.consume(_BATCH, _POLL_S):
                item = _item(message, work)
                if done(item, work):
                    items.append(item)
            called = time.perf_counter()
            try:
                if items:
                    consumer.commit(asynchronous=False)
            except KafkaException:  # the partition is another member's by now
                work.refuse(len(items))
                continue
            work.end(number, items, called)
    finally:
        consumer.close()


def done(item: Item, work: Work) -> bool:
    """Return whether the item is done; an item that fails is tried again, while the partition
    waits, and is then left out."""
    for attempt in range(DELIVERIES_MAX):
        if not work.fails(item):
            return True
        if attempt < DELIVERIES_MAX - 1:
            time.sleep(RETRY_S)
    return False


def _share(plan: Plan, number: int, work: Work, over: threading.Event) -> None:
    from confluent_kafka import ShareConsumer

    accept, release = _acknowledgements()
    consumer = ShareConsumer({
        "bootstrap.servers": ",".join(plan.addresses), "group.id": _GROUP,
        "share.acknowledgement.mode": "explicit",
    })  # fmt: skip
    consumer.subscribe([_TOPIC])
    try:
        while not over.is_set():
            items = []
            for message in consumer.poll(_POLL_S):
                item = _item(message, work)
                fails = work.fails(item)
                consumer.acknowledge(message, release if fails else accept)
                if not fails:
                    items.append((message.partition(), item))
            called = time.perf_counter()
            if not items:
                continue
            answers = consumer.commit_sync(plan.timeout_s)
            refused = {partition.partition for partition, error in answers.items() if error}
            work.end(number, [item for at, item in items if at not in refused], called)
            work.refuse(sum(at in refused for at, _ in items))
    finally:
        consumer.close()


def _acknowledgements() -> tuple[Any, Any]:
    kinds: Any = importlib.import_module("confluent_kafka").AcknowledgeType
    return kinds.ACCEPT, kinds.RELEASE


def _item(message: Any, work: Work) -> Item:
    if message.error() is not None:
        raise RuntimeError(f"Kafka: {message.error()}")
    return work.begin(message.key(), message.value())


def _create(plan: Plan) -> None:
    admin: Any = importlib.import_module("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": ",".join(plan.addresses)})
    settings = dict(PEERS[plan.system].topic)  # type: ignore[attr-defined]  # it is a Kafka
    # The appends of a turn are kept, so that nothing is removed before it is consumed.
    del settings["retention.bytes"]
    topic = admin.NewTopic(
        _TOPIC, num_partitions=max(plan.ranges, plan.consumers), replication_factor=3,
        config=settings,
    )  # fmt: skip
    _at_last(lambda: client.create_topics([topic])[_TOPIC].result(30))
    if plan.mode == "share":
        entry = admin.ConfigEntry(
            "share.auto.offset.reset", "earliest",
            incremental_operation=admin.AlterConfigOpType.SET,
        )  # fmt: skip
        group = admin.ConfigResource(
            admin.ConfigResource.Type.GROUP, _GROUP, incremental_configs=[entry]
        )
        _at_last(lambda: client.incremental_alter_configs([group])[group].result(30))


def _at_last(call: Callable[[], Any]) -> None:
    for attempt in range(60):
        try:
            call()
            return
        except Exception:  # no leader yet; the client has one class for all errors
            if attempt == 59:
                raise
            time.sleep(0.5)


def _settle(done: "asyncio.Future[None]", error: Any) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        known = error if isinstance(error, BaseException) else RuntimeError(str(error))
        done.set_exception(known)
