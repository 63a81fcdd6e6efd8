"""Kafka partitions of a log: two bytes in front of each key.

A log may be created with a fixed number of Kafka partitions. Each of its entries belongs to one
partition, and the stored key is the number of the partition, in two bytes, followed by the key that
users see. So the entries of a partition are a span of stored keys. Ranges of such a log begin only
at bounds of partitions: a partition is always inside one range, and the seqs of its entries rise
strictly, through splits, merges and moves (S6). Offsets of Kafka are these seqs.

The hash is that of Kafka's default partitioner (murmur2, as Java's clients compute it), so a key
that a user of the SDK appends comes into the partition that Kafka's clients choose. A partitioner
of a Kafka client may choose another partition; users of the SDK do not find such an entry by its
key.

The empty key stands for Kafka's null key, which each partition may have.
"""

from collections.abc import Sequence
from typing import Final

from . import limits
from .errors import InvalidArgument, LimitExceeded, Unsupported

PREFIX_BYTES: Final = 2
KEY_BYTES_MAX: Final = limits.key_bytes_max - PREFIX_BYTES
"""The longest key that users see in a log with Kafka partitions."""
_MASK: Final = 0xFFFF_FFFF
_SEED: Final = 0x9747_B28C
_FACTOR: Final = 0x5BD1_E995


def murmur2(data: bytes) -> int:
    """Return the hash of Kafka's default partitioner, as an unsigned number of 32 bits."""
    count = len(data)
    whole = count & ~3
    found = (_SEED ^ count) & _MASK
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        found = found * _FACTOR & _MASK ^ word
    if count > whole:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    found = (found ^ found >> 13) * _FACTOR & _MASK
    return found ^ found >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's default partitioner chooses for a key."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def prefix(partition: int) -> bytes:
    """Return the bytes in front of the keys of a partition."""
    return partition.to_bytes(PREFIX_BYTES, "big")


def span(partition: int) -> tuple[bytes, bytes]:
    """Return the span of the stored keys of a partition."""
    return prefix(partition), prefix(partition + 1)


def first_of(key: bytes) -> int:
    """Return the first partition whose stored keys are all `key` or greater."""
    begin = int.from_bytes(key[:PREFIX_BYTES].ljust(PREFIX_BYTES, b"\0"), "big")
    return begin + (len(key) > PREFIX_BYTES)


def end_of(key: bytes | None, partitions: int) -> int:
    """Return the first partition that lies beyond the end `key` of a span; None: the log's end."""
    return partitions if key is None else min(partitions, first_of(key))


def stored(key: bytes, partitions: int) -> bytes:
    """Return the stored key of a key. Raises LimitExceeded."""
    if len(key) > KEY_BYTES_MAX:
        raise LimitExceeded(
            f"key has {len(key)} bytes; a log with Kafka partitions allows {KEY_BYTES_MAX}. "
            "Shorten the key or hash it",
            limit="key_bytes_max", value=len(key), allowed=KEY_BYTES_MAX,
        )  # fmt: skip
    return prefix(partition_of(key, partitions)) + key


def is_bound(key: bytes, partitions: int) -> bool:
    """Return whether a range of a log with so many partitions may begin at the key."""
    return len(key) == PREFIX_BYTES and 0 < int.from_bytes(key, "big") < partitions


def bound_near(at: bytes, start: bytes, end: bytes | None, partitions: int) -> bytes | None:
    """Return the bound of a partition near the key `at` at which [start, end) can be split.

    None: the span has only one partition.
    """
    low, high = first_of(start) + 1, end_of(end, partitions) - 1
    if low > high:
        return None
    return prefix(min(max(int.from_bytes(at[:PREFIX_BYTES].ljust(2, b"\0"), "big"), low), high))


def even_bounds(partitions: int, ranges: int) -> Sequence[bytes]:
    """Return the keys at which `ranges` ranges of a new log begin, without the first range."""
    count = min(partitions, ranges)
    return [prefix(at * partitions // count) for at in range(1, count)]


def unsupported(what: str) -> Unsupported:
    """Return the error for a use of a log with Kafka partitions that does not exist yet."""
    return Unsupported(
        f"the log has Kafka partitions; {what} are not available for such logs yet. Read single "
        "keys or the whole log, or use a Kafka client"
    )


def without(what: str) -> InvalidArgument:
    """Return the error for a question about the partitions of a log that has none."""
    return InvalidArgument(
        f"{what} is of a log without Kafka partitions; ask for a log that was created with "
        "kafka_partitions",
        what="range",
    )
