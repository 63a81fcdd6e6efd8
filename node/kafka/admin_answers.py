"""Answers to requests of administrators as bytes: encoding without I/O."""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from . import codes
from .answers import NO_OFFSET, Done, Settings
from .wire import Writer

_MESSAGE_MAX: Final = 1_000


class Trimmed(NamedTuple):
    """The outcome for a partition; `begin` is its first offset."""

    topic: str
    partition: int
    error: int = codes.NONE
    begin: int = NO_OFFSET


class Forgotten(NamedTuple):
    """The outcome for a committed offset that was to be removed."""

    topic: str
    partition: int
    error: int = codes.NONE


def alter_configs(rows: Sequence[Settings]) -> bytes:
    """Return the answer to a request to change settings."""
    writer = Writer()
    writer.int32(0)  # throttle_time_ms

    def resource(row: Settings) -> None:
        writer.int16(row.error)
        writer.text(None if row.message is None else row.message[:_MESSAGE_MAX])
        writer.int8(row.kind)
        writer.text(row.name)

    writer.array(rows, resource)
    return writer.done()


def create_partitions(rows: Sequence[Done]) -> bytes:
    """Return the answer to a request for more partitions."""
    writer = Writer()
    writer.int32(0)  # throttle_time_ms

    def topic(row: Done) -> None:
        writer.text(row.topic)
        writer.int16(row.error)
        writer.text(None if row.message is None else row.message[:_MESSAGE_MAX])

    writer.array(rows, topic)
    return writer.done()


def delete_records(rows: Sequence[Trimmed]) -> bytes:
    """Return the answer to a request to remove records. The rows of a topic are neighbours."""
    writer = Writer()
    writer.int32(0)  # throttle_time_ms

    def partition(row: Trimmed) -> None:
        writer.int32(row.partition)
        writer.int64(row.begin)
        writer.int16(row.error)

    def topic(told: tuple[str, Sequence[Trimmed]]) -> None:
        writer.text(told[0])
        writer.array(told[1], partition)

    writer.array([(name, list(own)) for name, own in groupby(rows, attrgetter("topic"))], topic)
    return writer.done()


def delete_groups(rows: Sequence[tuple[str, int]]) -> bytes:
    """Return the answer to a request to remove groups: names, each with its error."""
    writer = Writer()
    writer.int32(0)  # throttle_time_ms

    def group(row: tuple[str, int]) -> None:
        writer.text(row[0])
        writer.int16(row[1])

    writer.array(rows, group)
    return writer.done()


def offset_delete(error: int, rows: Sequence[Forgotten]) -> bytes:
    """Return the answer to a request to remove committed offsets. The rows of a topic are
    neighbours."""
    writer = Writer()
    writer.int16(error)
    writer.int32(0)  # throttle_time_ms

    def partition(row: Forgotten) -> None:
        writer.int32(row.partition)
        writer.int16(row.error)

    def topic(told: tuple[str, Sequence[Forgotten]]) -> None:
        writer.text(told[0])
        writer.array(told[1], partition)

    writer.array([(name, list(own)) for name, own in groupby(rows, attrgetter("topic"))], topic)
    return writer.done()
