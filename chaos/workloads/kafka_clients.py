"""Kafka clients of the test: librdkafka by confluent-kafka, each with a thread of its own.

librdkafka calls block, and cannot be cancelled. A client that its process has left goes on until
the call under way ends, and is then closed.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ...client.protocol.errors import Timeout, Unavailable
from .parts import LOG

T = TypeVar("T")
Place = tuple[int, int]
"""A partition and an offset."""
_POLL_S: Final = 0.1
_LEAVE_S: Final = 3.0
"""How long a test waits for a client that is closed; the client is closed later all the same."""
_ANSWER_S: Final = 8.0
_NONE: Final = 0
"""Offsets below are names of places, or say that there is no offset."""
_COMMON: Final = {
    "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2_000, "log_level": 0,
}  # fmt: skip


class _Threaded:
    """A client whose calls run in its thread, one after another."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka")

    async def _call(self, call: Callable[..., T], *given: Any) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call, *given)
        except KafkaException as error:
            raise Timeout(str(error), outcome="unknown") from None

    async def _end(self, close: Callable[[], Any]) -> None:
        """Close the client once its calls have ended; wait a moment for this."""
        closing = asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown(wait=False)
        await asyncio.wait([closing], timeout=_LEAVE_S)


class KafkaProducer(_Threaded):
    """An idempotent producer; `more` has further settings of librdkafka."""

    def __init__(self, servers: str, timeout_s: float, more: dict[str, Any]) -> None:
        super().__init__()
        self._timeout_s = timeout_s
        self._broken: str | None = None
        self._producer = Producer({
            **_COMMON, "bootstrap.servers": servers, "enable.idempotence": True, "acks": "all",
            "message.timeout.ms": int(1000 * timeout_s), "error_cb": self._note, **more,
        })  # fmt: skip

    async def send(self, records: Sequence[tuple[int, str]]) -> dict[str, Any]:
        """Send values to partitions, all at once. Returns `seqs`, None for a record without a known
        offset; `unsure`, the places of the records whose outcome is unknown; and `broken`, the
        error for which the producer sends nothing more, if there is one.

        Raises Unavailable if the producer sends nothing.
        """
        return await self._call(self._send, records)

    def _send(self, records: Sequence[tuple[int, str]]) -> dict[str, Any]:
        seqs: list[int | None] = [None] * len(records)
        unsure, errors = set(range(len(records))), list[str]()

        def told(place: int) -> Callable[[KafkaError | None, Any], None]:
            def tell(error: KafkaError | None, message: Any) -> None:
                if error is None:
                    unsure.discard(place)
                    offset = message.offset()  # None: librdkafka does not know the offset
                    seqs[place] = None if offset is None or offset < _NONE else offset
                else:
                    errors.append(error.name())

            return tell

        for place, (partition, value) in enumerate(records):
            try:
                self._producer.produce(
                    LOG, value, value, partition=partition, on_delivery=told(place)
                )
            except KafkaException as error:
                if not place:
                    raise Unavailable(f"nothing is sent: {error}", reason="broken") from None
                break
        self._producer.flush(self._timeout_s + _POLL_S)
        return {
            "seqs": seqs, "unsure": sorted(unsure), **({"errors": errors} if errors else {}),
            **({"broken": self._broken} if self._broken else {}),
        }  # fmt: skip

    def _note(self, error: KafkaError) -> None:
        """Note the first error that ends the producer; others end by themselves."""
        if error.fatal() and self._broken is None:
            self._broken = error.str()

    async def close(self) -> None:
        """Forget what is not sent."""
        await self._end(self._producer.purge)


class KafkaConsumer(_Threaded):
    """A consumer of a group, or with partitions that are assigned to it. With `tells_ends` the
    consumer says where it has found nothing more."""

    def __init__(self, servers: str, group: str, *, tells_ends: bool = False) -> None:
        super().__init__()
        self._events: list[Any] = []
        self._reached: dict[str, int] = {}
        """By partition, the offset at which there was nothing more."""
        self._assigned: set[int] = set()
        self._consumer = Consumer({
            **_COMMON, "bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500, "fetch.wait.max.ms": 200, "socket.timeout.ms": 6_000,
            "enable.partition.eof": tells_ends,
        })  # fmt: skip

    async def subscribe(self) -> None:
        """Become a member of the group."""

        def subscribe() -> None:
            self._consumer.subscribe(
                [LOG], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )

        await self._call(subscribe)

    async def assign(self, places: Sequence[Place]) -> None:
        """Consume these partitions from these offsets on."""
        self._assigned = {partition for partition, _ in places}
        await self._call(
            self._consumer.assign, [TopicPartition(LOG, at, offset) for at, offset in places]
        )

    async def consume(self, seconds: float, most: int) -> dict[str, Any]:
        """Consume up to `most` records. Returns `events`, which are [partition, offset, value] of a
        record, ["assign", [partition, ...]] and ["revoke", [partition, ...]]; and `ends`, the high
        watermarks that the consumer then has been told, by partition.
        """
        return await self._call(self._consume, seconds, most)

    def _consume(self, seconds: float, most: int) -> dict[str, Any]:
        events, errors, count = self._events, [], 0
        until = time.monotonic() + seconds
        while count < most and time.monotonic() < until:
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._reached[str(message.partition())] = message.offset() or _NONE
                continue
            if error is not None:
                errors.append(error.name())
                if error.fatal():
                    break
                continue
            value = message.value()
            told = None if value is None else value.decode(errors="backslashreplace")
            events.append([message.partition(), message.offset(), told])
            count += 1
        self._events = []
        ends = {}
        for partition in sorted(self._assigned):
            place = TopicPartition(LOG, partition)
            known = self._consumer.get_watermark_offsets(place, cached=True)
            if known is not None and known[1] >= _NONE:
                ends[str(partition)] = known[1]
        return {"events": events, "ends": ends} | ({"errors": errors} if errors else {})

    def reached(self, partition: str) -> int:
        """Return an offset up to which the consumer has taken everything, 0 if unknown."""
        return self._reached.get(partition, _NONE)

    async def commit(self, places: Sequence[Place]) -> None:
        """Commit offsets. Raises Unavailable: librdkafka repeats requests by itself, so the outcome
        of a commit that failed is unknown, whatever its error."""
        try:
            done = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._commit, places
            )
        except KafkaException as error:
            raise Unavailable(f"the commit failed: {error}", reason="failed") from None
        for each in done:
            if each.error is not None:
                raise Unavailable(f"the commit failed: {each.error}", reason="failed")

    def _commit(self, places: Sequence[Place]) -> list[TopicPartition]:
        offsets = [TopicPartition(LOG, at, offset) for at, offset in places]
        found: list[TopicPartition] = self._consumer.commit(offsets=offsets, asynchronous=False)
        return found

    async def committed(self, partitions: int) -> dict[str, int]:
        """Return the committed offsets of the group by partition. Raises Timeout."""
        return await self._call(self._committed, partitions)

    def _committed(self, partitions: int) -> dict[str, int]:
        places = [TopicPartition(LOG, at) for at in range(partitions)]
        found = self._consumer.committed(places, timeout=_ANSWER_S)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return {str(each.partition): each.offset for each in found if each.offset >= _NONE}

    async def ends(self, partitions: int) -> dict[str, list[int]]:
        """Return the low and the high watermark of each partition, as of now. Raises Timeout."""
        return await self._call(self._ends, partitions)

    def _ends(self, partitions: int) -> dict[str, list[int]]:
        found = {}
        for partition in range(partitions):
            place = TopicPartition(LOG, partition)
            found[str(partition)] = list(
                self._consumer.get_watermark_offsets(place, timeout=_ANSWER_S)
            )
        return found

    async def close(self) -> None:
        """Leave the group."""
        await self._end(self._consumer.close)

    def _on_assign(self, _: Any, partitions: Sequence[TopicPartition]) -> None:
        self._assigned = {each.partition for each in partitions}
        self._events.append(["assign", sorted(self._assigned)])

    def _on_revoke(self, _: Any, partitions: Sequence[TopicPartition]) -> None:
        gone = {each.partition for each in partitions}
        self._assigned -= gone
        self._events.append(["revoke", sorted(gone)])
