"""Requests of administrators as values: decoding without I/O. Every function raises Malformed.

Settings, partitions, records and groups that are changed or removed; `requests` has those that
create and delete topics.
"""

from typing import Final, NamedTuple

from .wire import Reader

_TOPIC_BYTES: Final = 6
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


class Change(NamedTuple):
    """A change of a setting: what is done, such as `SET`, and the value. A client may give another
    number. `APPEND` and `SUBTRACT` change a list by the elements of the value."""

    name: str
    action: int
    value: str | None


class Altered(NamedTuple):
    """A resource whose settings change. `is_whole`: settings that are not named become the
    defaults."""

    kind: int
    name: str
    changes: list[Change]
    is_whole: bool


class Alter(NamedTuple):
    """A request to change settings."""

    resources: list[Altered]
    validate_only: bool


class Trim(NamedTuple):
    """A partition whose records below an offset are removed; -1: all of them."""

    topic: str
    partition: int
    offset: int


class Forget(NamedTuple):
    """A request to remove committed offsets of a group."""

    group: str
    partitions: list[tuple[str, int]]


def alter_configs(reader: Reader, _: int) -> Alter:
    """Return a request that gives all settings of resources."""

    def config() -> Change:
        return Change(reader.text(), SET, reader.nullable_text())

    def resource() -> Altered:
        kind, name = reader.int8(), reader.text()
        return Altered(kind, name, reader.array(config, 4), is_whole=True)

    return Alter(reader.array(resource, 7), reader.flag())


def incremental_alter_configs(reader: Reader, _: int) -> Alter:
    """Return a request that changes some settings of resources."""

    def config() -> Change:
        return Change(reader.text(), reader.int8(), reader.nullable_text())

    def resource() -> Altered:
        kind, name = reader.int8(), reader.text()
        return Altered(kind, name, reader.array(config, 5), is_whole=False)

    return Alter(reader.array(resource, 7), reader.flag())


def create_partitions(reader: Reader, _: int) -> list[tuple[str, int]]:
    """Return the topics that are to have more partitions, and how many."""

    def assignment() -> None:
        reader.array(reader.int32, 4)

    def topic() -> tuple[str, int]:
        name, count = reader.text(), reader.int32()
        reader.array(assignment, 4)
        return name, count

    found = reader.array(topic, 10)
    reader.int32()  # timeout_ms
    reader.flag()  # validate_only: the request is refused in any case
    return found


def delete_records(reader: Reader, _: int) -> list[Trim]:
    """Return the partitions whose first records are to be removed."""
    found: list[Trim] = []

    def topic() -> None:
        name = reader.text()

        def partition() -> None:
            found.append(Trim(name, reader.int32(), reader.int64()))

        reader.array(partition, 12)

    reader.array(topic, _TOPIC_BYTES)
    reader.int32()  # timeout_ms
    return found


def delete_groups(reader: Reader, _: int) -> list[str]:
    """Return the groups that are to be removed."""
    return reader.array(reader.text, 2)


def offset_delete(reader: Reader, _: int) -> Forget:
    """Return a request to remove committed offsets."""
    group = reader.text()
    found: list[tuple[str, int]] = []

    def topic() -> None:
        name = reader.text()

        def partition() -> None:
            found.append((name, reader.int32()))

        reader.array(partition, 4)

    reader.array(topic, _TOPIC_BYTES)
    return Forget(group, found)
