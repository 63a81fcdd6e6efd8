"""Requests of consumer groups as values: decoding without I/O. Every function raises Malformed."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from .group import Wish
from .wire import Malformed, Reader

PROTOCOLS_MAX: Final = 32
"""Protocols of a member: each join compares them with those of all members, which takes 3 ms for a
thousand members."""
NAMES_MAX: Final = 1_000
"""Groups of a request to describe groups."""
_TOPIC_BYTES: Final = 6
_V1: Final = 1
_V5: Final = 5
_V6: Final = 6
_NO_EPOCH: Final = -1


class Lookup(NamedTuple):
    """A request for the coordinator; `kind` 0 is that of a group, 1 that of transactions."""

    group: str
    kind: int


class Sync(NamedTuple):
    """A request for the assignment of a member."""

    group: str
    generation: int
    member: str
    assignments: dict[str, bytes]


class Beat(NamedTuple):
    """A heartbeat."""

    group: str
    generation: int
    member: str


class Leave(NamedTuple):
    """A request to leave a group."""

    group: str
    member: str


class Mark(NamedTuple):
    """The offset of a partition that a consumer commits: the next one that it wants."""

    topic: str
    partition: int
    offset: int
    epoch: int
    metadata: str | None


class Commit(NamedTuple):
    """A request to commit offsets. `generation` -1 without a member: not as a member."""

    group: str
    generation: int
    member: str
    marks: Sequence[Mark]


class Positions(NamedTuple):
    """A request for committed offsets; `partitions` None: of all partitions."""

    group: str
    partitions: Sequence[tuple[str, int]] | None


def find_coordinator(reader: Reader, version: int) -> Lookup:
    """Return a request for the coordinator of a group."""
    return Lookup(reader.text(), reader.int8() if version >= _V1 else 0)


def join_group(reader: Reader, version: int) -> Wish:
    """Return a request to join a group."""
    group, session_ms = reader.text(), reader.int32()
    rebalance_ms = reader.int32() if version >= _V1 else session_ms
    member, kind = reader.text(), reader.text()

    def protocol() -> tuple[str, bytes]:
        return reader.text(), reader.nullable_bytes() or b""

    protocols = reader.array(protocol, 6)
    if len(protocols) > PROTOCOLS_MAX:
        raise Malformed(f"a member has {len(protocols)} protocols; {PROTOCOLS_MAX} are allowed")
    return Wish(group, member, session_ms, rebalance_ms, kind, protocols)


def sync_group(reader: Reader, _: int) -> Sync:
    """Return a request for an assignment."""
    group, generation, member = reader.text(), reader.int32(), reader.text()

    def assignment() -> tuple[str, bytes]:
        return reader.text(), reader.nullable_bytes() or b""

    return Sync(group, generation, member, dict(reader.array(assignment, 6)))


def heartbeat(reader: Reader, _: int) -> Beat:
    """Return a heartbeat."""
    return Beat(reader.text(), reader.int32(), reader.text())


def leave_group(reader: Reader, _: int) -> Leave:
    """Return a request to leave a group."""
    return Leave(reader.text(), reader.text())


def offset_commit(reader: Reader, version: int) -> Commit:
    """Return a request to commit offsets."""
    group, generation, member = reader.text(), reader.int32(), reader.text()
    if version < _V5:
        reader.int64()  # retention_time_ms: committed offsets are kept
    found: list[Mark] = []

    def topic() -> None:
        name = reader.text()

        def partition() -> None:
            index, offset = reader.int32(), reader.int64()
            epoch = reader.int32() if version >= _V6 else _NO_EPOCH
            found.append(Mark(name, index, offset, epoch, reader.nullable_text()))

        reader.array(partition, 14)

    reader.array(topic, _TOPIC_BYTES)
    return Commit(group, generation, member, found)


def offset_fetch(reader: Reader, version: int) -> Positions:
    """Return a request for committed offsets."""
    group = reader.text()
    found: list[tuple[str, int]] = []

    def topic() -> None:
        name = reader.text()

        def partition() -> None:
            found.append((name, reader.int32()))

        reader.array(partition, 4)

    topics = reader.nullable_array(topic, _TOPIC_BYTES)
    # Version 1 has no way to ask for all partitions: a null array is an empty one there.
    return Positions(group, None if topics is None and version > _V1 else found)


def describe_groups(reader: Reader, _: int) -> list[str]:
    """Return the names of the groups to describe."""
    names = reader.array(reader.text, 2)
    if len(names) > NAMES_MAX:
        raise Malformed(f"a request describes {len(names)} groups; {NAMES_MAX} are allowed")
    return names


def list_groups(_: Reader, __: int) -> None:
    """Take a request for the groups of the node, which has no fields."""
