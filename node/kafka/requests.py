"""Requests of Kafka's protocol as values: decoding without I/O. Every function raises Malformed.

The names of the fields are those of Kafka's protocol guide where it has one. Fields that the door
does not use are read and dropped.
"""

from typing import Final, NamedTuple

from .wire import Malformed, Reader

_TOPIC_BYTES: Final = 6
"""The least bytes of a topic in an array: its name, and the count of its partitions."""
_V1: Final = 1
_V2: Final = 2
_V4: Final = 4
_V5: Final = 5
_V7: Final = 7
_V9: Final = 9
_FINAL: Final = -1
_FULL: Final = (0, _FINAL)
"""The epochs of sessions with which a fetch names all of its partitions (KIP-227), whatever the id
of the session is."""


class Produced(NamedTuple):
    """The records for one partition."""

    topic: str
    partition: int
    records: bytes


class Produce(NamedTuple):
    """A request to append records."""

    transactional: bool
    acks: int
    timeout_ms: int
    batches: list[Produced]


class Wanted(NamedTuple):
    """A partition to fetch."""

    topic: str
    partition: int
    offset: int
    bytes_max: int


class Fetch(NamedTuple):
    """A request for records."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    is_incremental: bool
    """Whether the request names only what changed since the last request of a session."""
    partitions: list[Wanted]


class Metadata(NamedTuple):
    """A request for metadata; `topics` None: of all topics."""

    topics: list[str] | None
    may_create: bool


class Asked(NamedTuple):
    """A partition whose offset is asked for: by a time, -1 for the end, -2 for the begin."""

    topic: str
    partition: int
    timestamp: int


class NewTopic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int
    replicas: int
    assigned: bool
    configs: dict[str, str | None]


class CreateTopics(NamedTuple):
    """A request to create topics."""

    topics: list[NewTopic]
    timeout_ms: int
    validate_only: bool


class Resource(NamedTuple):
    """A resource whose configuration is asked for; `names` None: all of it."""

    kind: int
    name: str
    names: list[str] | None


def produce(reader: Reader, _: int) -> Produce:
    """Return a request to append records."""
    transactional = reader.nullable_text() is not None
    acks, timeout_ms = reader.int16(), reader.int32()
    found: list[Produced] = []

    def topic() -> None:
        name = reader.text()

        def partition() -> None:
            index, records = reader.int32(), reader.nullable_bytes()
            found.append(Produced(name, index, records or b""))

        reader.array(partition, 8)

    reader.array(topic, _TOPIC_BYTES)
    return Produce(transactional, acks, timeout_ms, found)


def fetch(reader: Reader, version: int) -> Fetch:
    """Return a request for records."""
    reader.int32()  # replica_id
    max_wait_ms, min_bytes, max_bytes = reader.int32(), reader.int32(), reader.int32()
    reader.int8()  # isolation_level: no record is ever uncommitted
    epoch = _FINAL
    if version >= _V7:
        _, epoch = reader.int32(), reader.int32()  # the id of the session
    found: list[Wanted] = []

    def topic() -> None:
        name = reader.text()

        def partition() -> None:
            index = reader.int32()
            if version >= _V9:
                reader.int32()  # current_leader_epoch
            offset = reader.int64()
            if version >= _V5:
                reader.int64()  # log_start_offset, of followers
            found.append(Wanted(name, index, offset, reader.int32()))

        reader.array(partition, 16)

    reader.array(topic, _TOPIC_BYTES)
    return Fetch(max_wait_ms, min_bytes, max_bytes, epoch not in _FULL, found)


def list_offsets(reader: Reader, version: int) -> list[Asked]:
    """Return the partitions whose offsets are asked for."""
    reader.int32()  # replica_id
    if version >= _V2:
        reader.int8()  # isolation_level
    found: list[Asked] = []

    def topic() -> None:
        name = reader.text()

        def partition() -> None:
            index = reader.int32()
            if version >= _V4:
                reader.int32()  # current_leader_epoch
            found.append(Asked(name, index, reader.int64()))

        reader.array(partition, 12)

    reader.array(topic, _TOPIC_BYTES)
    return found


def metadata(reader: Reader, version: int) -> Metadata:
    """Return a request for metadata. Before version 4 each such request may create topics."""
    if version < _V1:
        return Metadata(reader.array(reader.text, 2) or None, may_create=True)
    names = reader.nullable_array(reader.text, 2)
    return Metadata(names, may_create=reader.flag() if version >= _V4 else True)


def create_topics(reader: Reader, version: int) -> CreateTopics:
    """Return a request to create topics."""

    def assignment() -> None:
        reader.int32()
        reader.array(reader.int32, 4)

    def config() -> tuple[str, str | None]:
        return reader.text(), reader.nullable_text()

    def topic() -> NewTopic:
        name, partitions, replicas = reader.text(), reader.int32(), reader.int16()
        assigned = bool(reader.array(assignment, 8))
        return NewTopic(name, partitions, replicas, assigned, dict(reader.array(config, 4)))

    topics, timeout_ms = reader.array(topic, 16), reader.int32()
    return CreateTopics(topics, timeout_ms, version >= _V1 and reader.flag())


def delete_topics(reader: Reader, _: int) -> tuple[list[str], int]:
    """Return the topics to delete, and the timeout in milliseconds."""
    return reader.array(reader.text, 2), reader.int32()


def init_producer_id(reader: Reader, _: int) -> bool:
    """Return whether the producer wants transactions."""
    transactional = reader.nullable_text() is not None
    reader.int32()  # transaction_timeout_ms
    return transactional


def describe_configs(reader: Reader, version: int) -> list[Resource]:
    """Return the resources whose configurations are asked for."""

    def resource() -> Resource:
        kind, name = reader.int8(), reader.text()
        return Resource(kind, name, reader.nullable_array(reader.text, 2))

    found = reader.array(resource, 7)
    if version >= _V1:
        reader.flag()  # include_synonyms: no configuration has any
    return found


def check_no_repeats(names: list[tuple[str, int]]) -> None:
    """Raise Malformed for a request that names a partition twice."""
    if len(set(names)) < len(names):
        raise Malformed("the request names a partition twice")
