"""Answers of Kafka's protocol as bytes: encoding without I/O."""

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, TypeVar

from . import codes
from .wire import Writer

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
_MESSAGE_MAX: Final = 1_000
"""Characters of a message: messages may repeat what the client has sent."""
_V1: Final = 1
_V2: Final = 2
_V3: Final = 3
_V4: Final = 4
_V5: Final = 5
_V7: Final = 7


class _OfTopic(Protocol):
    @property
    def topic(self) -> str: ...


R = TypeVar("R", bound=_OfTopic)


class Appended(NamedTuple):
    """The outcome of a batch of a partition."""

    topic: str
    partition: int
    error: int = codes.NONE
    offset: int = NO_OFFSET
    timestamp_ms: int = NO_OFFSET
    begin: int = NO_OFFSET


class Fetched(NamedTuple):
    """The records of a partition; `end` is the high watermark, `begin` the first offset."""

    topic: str
    partition: int
    error: int = codes.NONE
    end: int = NO_OFFSET
    begin: int = NO_OFFSET
    records: Sequence[bytes] = ()


class Offset(NamedTuple):
    """An offset of a partition."""

    topic: str
    partition: int
    error: int = codes.NONE
    timestamp_ms: int = NO_OFFSET
    offset: int = NO_OFFSET


class Broker(NamedTuple):
    """A node that serves Kafka clients."""

    node: int
    host: str
    port: int


class Partition(NamedTuple):
    """A partition, with the nodes of its range."""

    partition: int
    leader: int
    replicas: Sequence[int]


class Topic(NamedTuple):
    """A topic with its partitions, or the reason why there is none."""

    name: str
    error: int = codes.NONE
    partitions: Sequence[Partition] = ()


class Done(NamedTuple):
    """The outcome for a topic that was to be created or deleted."""

    topic: str
    error: int = codes.NONE
    message: str | None = None


class Setting(NamedTuple):
    """A setting of a topic or of the node."""

    name: str
    value: str | None
    is_default: bool


class Settings(NamedTuple):
    """The settings of a resource, or the reason why there are none."""

    kind: int
    name: str
    error: int = codes.NONE
    message: str | None = None
    settings: Sequence[Setting] = ()


def _short(message: str | None) -> str | None:
    return None if message is None else message[:_MESSAGE_MAX]


def _by_topic(writer: Writer, rows: Sequence[R], write: Callable[[R], None]) -> None:
    """Write rows in arrays by topic; the rows of a topic are neighbours."""
    topics = [(name, list(own)) for name, own in groupby(rows, attrgetter("topic"))]

    def topic(told: tuple[str, list[R]]) -> None:
        writer.text(told[0])
        writer.array(told[1], write)

    writer.array(topics, topic)


def produce(rows: Sequence[Appended], version: int) -> bytes:
    """Return the answer to a request to append records."""
    writer = Writer()

    def partition(row: Appended) -> None:
        writer.int32(row.partition)
        writer.int16(row.error)
        writer.int64(row.offset)
        writer.int64(row.timestamp_ms)
        if version >= _V5:
            writer.int64(row.begin)

    _by_topic(writer, rows, partition)
    writer.int32(0)  # throttle_time_ms
    return writer.done()


def fetch(rows: Sequence[Fetched], version: int, error: int = codes.NONE) -> bytes:
    """Return the answer to a request for records. There are no sessions: their id is 0."""
    writer = Writer()
    writer.int32(0)  # throttle_time_ms
    if version >= _V7:
        writer.int16(error)
        writer.int32(0)  # session_id

    def partition(row: Fetched) -> None:
        writer.int32(row.partition)
        writer.int16(row.error)
        writer.int64(row.end)
        writer.int64(row.end)  # last_stable_offset: no transaction is ever open
        if version >= _V5:
            writer.int64(row.begin)
        writer.null_array()  # aborted_transactions
        writer.bytes_of(row.records)

    _by_topic(writer, rows, partition)
    return writer.done()


def list_offsets(rows: Sequence[Offset], version: int) -> bytes:
    """Return the answer to a request for offsets."""
    writer = Writer()
    if version >= _V2:
        writer.int32(0)  # throttle_time_ms

    def partition(row: Offset) -> None:
        writer.int32(row.partition)
        writer.int16(row.error)
        writer.int64(row.timestamp_ms)
        writer.int64(row.offset)
        if version >= _V4:
            writer.int32(NO_EPOCH)

    _by_topic(writer, rows, partition)
    return writer.done()


def metadata(
    brokers: Sequence[Broker], cluster: str, controller: int, topics: Sequence[Topic], version: int
) -> bytes:
    """Return the answer to a request for metadata."""
    writer = Writer()
    if version >= _V3:
        writer.int32(0)  # throttle_time_ms

    def broker(row: Broker) -> None:
        writer.int32(row.node)
        writer.text(row.host)
        writer.int32(row.port)
        if version >= _V1:
            writer.text(None)  # rack

    def partition(row: Partition) -> None:
        writer.int16(codes.NONE)
        writer.int32(row.partition)
        writer.int32(row.leader)
        if version >= _V7:
            writer.int32(NO_EPOCH)
        writer.array(row.replicas, writer.int32)
        writer.array(row.replicas, writer.int32)  # isr_nodes
        if version >= _V5:
            writer.array((), writer.int32)  # offline_replicas

    def topic(row: Topic) -> None:
        writer.int16(row.error)
        writer.text(row.name)
        if version >= _V1:
            writer.flag(False)  # is_internal
        writer.array(row.partitions, partition)

    writer.array(brokers, broker)
    if version >= _V2:
        writer.text(cluster)
    if version >= _V1:
        writer.int32(controller)
    writer.array(topics, topic)
    return writer.done()


def create_topics(rows: Sequence[Done], version: int) -> bytes:
    """Return the answer to a request to create topics."""
    writer = Writer()
    if version >= _V2:
        writer.int32(0)  # throttle_time_ms

    def topic(row: Done) -> None:
        writer.text(row.topic)
        writer.int16(row.error)
        if version >= _V1:
            writer.text(_short(row.message))

    writer.array(rows, topic)
    return writer.done()


def delete_topics(rows: Sequence[Done], version: int) -> bytes:
    """Return the answer to a request to delete topics."""
    writer = Writer()
    if version >= _V1:
        writer.int32(0)  # throttle_time_ms

    def topic(row: Done) -> None:
        writer.text(row.topic)
        writer.int16(row.error)

    writer.array(rows, topic)
    return writer.done()


def init_producer_id(error: int, producer: int) -> bytes:
    """Return the answer to a request for a producer id; its epoch is 0."""
    writer = Writer()
    writer.int32(0)  # throttle_time_ms
    writer.int16(error)
    writer.int64(producer)
    writer.int16(NO_EPOCH if error else 0)
    return writer.done()


def describe_configs(rows: Sequence[Settings], version: int) -> bytes:
    """Return the answer to a request for configurations. Clients may change those that are not
    defaults."""
    writer = Writer()
    writer.int32(0)  # throttle_time_ms

    def setting(row: Setting) -> None:
        writer.text(row.name)
        writer.text(row.value)
        writer.flag(row.is_default)  # read_only
        if version >= _V1:
            writer.int8(5 if row.is_default else 1)  # config_source: a default, or of the topic
        else:
            writer.flag(row.is_default)
        writer.flag(False)  # is_sensitive
        if version >= _V1:
            writer.array((), writer.int8)  # synonyms

    def resource(row: Settings) -> None:
        writer.int16(row.error)
        writer.text(_short(row.message))
        writer.int8(row.kind)
        writer.text(row.name)
        writer.array(row.settings, setting)

    writer.array(rows, resource)
    return writer.done()
