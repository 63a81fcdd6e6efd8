"""Answers about consumer groups as bytes: encoding without I/O."""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from . import codes
from .answers import NO_EPOCH, NO_OFFSET, Broker
from .group import Joined, Synced
from .wire import Writer

_V1: Final = 1
_V2: Final = 2
_V3: Final = 3
_V5: Final = 5


class Committed(NamedTuple):
    """The outcome for a partition of a commit."""

    topic: str
    partition: int
    error: int = codes.NONE


class Position(NamedTuple):
    """The committed offset of a partition; -1: no offset."""

    topic: str
    partition: int
    offset: int = NO_OFFSET
    epoch: int = NO_EPOCH
    metadata: str | None = ""
    error: int = codes.NONE


class MemberRow(NamedTuple):
    """A member of a group."""

    member: str
    client: str
    host: str
    metadata: bytes
    assignment: bytes


class GroupRow(NamedTuple):
    """A group, or the reason why nothing is known of it."""

    group: str
    error: int = codes.NONE
    state: str = ""
    kind: str = ""
    protocol: str = ""
    members: Sequence[MemberRow] = ()


def _begun(version: int, *, throttle_from: int) -> Writer:
    writer = Writer()
    if version >= throttle_from:
        writer.int32(0)  # throttle_time_ms
    return writer


def find_coordinator(error: int, broker: Broker | None, version: int) -> bytes:
    """Return the answer to a request for the coordinator of a group."""
    writer = _begun(version, throttle_from=_V1)
    writer.int16(error)
    if version >= _V1:
        writer.text(None)  # error_message
    found = broker or Broker(-1, "", -1)
    writer.int32(found.node)
    writer.text(found.host)
    writer.int32(found.port)
    return writer.done()


def join_group(joined: Joined, version: int) -> bytes:
    """Return the answer to a request to join."""
    writer = _begun(version, throttle_from=_V2)
    writer.int16(joined.error)
    writer.int32(joined.generation)
    writer.text(joined.protocol)
    writer.text(joined.leader)
    writer.text(joined.member)

    def member(row: tuple[str, bytes]) -> None:
        writer.text(row[0])
        writer.bytes_field(row[1])

    writer.array(joined.members, member)
    return writer.done()


def sync_group(synced: Synced, version: int) -> bytes:
    """Return the answer to a request for an assignment."""
    writer = _begun(version, throttle_from=_V1)
    writer.int16(synced.error)
    writer.bytes_field(synced.assignment)
    return writer.done()


def outcome(error: int, version: int) -> bytes:
    """Return the answer to a heartbeat, or to a request to leave."""
    writer = _begun(version, throttle_from=_V1)
    writer.int16(error)
    return writer.done()


def offset_commit(rows: Sequence[Committed], version: int) -> bytes:
    """Return the answer to a commit."""
    writer = _begun(version, throttle_from=_V3)

    def partition(row: Committed) -> None:
        writer.int32(row.partition)
        writer.int16(row.error)

    def topic(told: tuple[str, Sequence[Committed]]) -> None:
        writer.text(told[0])
        writer.array(told[1], partition)

    found = [(name, list(own)) for name, own in groupby(rows, attrgetter("topic"))]
    writer.array(found, topic)
    return writer.done()


def offset_fetch(error: int, rows: Sequence[Position], version: int) -> bytes:
    """Return the answer to a request for committed offsets. The rows of a topic are neighbours."""
    writer = _begun(version, throttle_from=_V3)

    def partition(row: Position) -> None:
        writer.int32(row.partition)
        writer.int64(row.offset)
        if version >= _V5:
            writer.int32(row.epoch)
        writer.text(row.metadata)
        writer.int16(row.error or error)

    def topic(told: tuple[str, Sequence[Position]]) -> None:
        writer.text(told[0])
        writer.array(told[1], partition)

    found = [(name, list(own)) for name, own in groupby(rows, attrgetter("topic"))]
    writer.array(found, topic)
    if version >= _V2:
        writer.int16(error)
    return writer.done()


def describe_groups(rows: Sequence[GroupRow], version: int) -> bytes:
    """Return the answer to a request to describe groups."""
    writer = _begun(version, throttle_from=_V1)

    def member(row: MemberRow) -> None:
        writer.text(row.member)
        writer.text(row.client)
        writer.text(row.host)
        writer.bytes_field(row.metadata)
        writer.bytes_field(row.assignment)

    def group(row: GroupRow) -> None:
        writer.int16(row.error)
        writer.text(row.group)
        writer.text(row.state)
        writer.text(row.kind)
        writer.text(row.protocol)
        writer.array(row.members, member)

    writer.array(rows, group)
    return writer.done()


def list_groups(error: int, rows: Sequence[tuple[str, str]], version: int) -> bytes:
    """Return the answer to a request for the groups of the node: names with their protocols'
    types."""
    writer = _begun(version, throttle_from=_V1)
    writer.int16(error)

    def group(row: tuple[str, str]) -> None:
        writer.text(row[0])
        writer.text(row[1])

    writer.array(rows, group)
    return writer.done()
