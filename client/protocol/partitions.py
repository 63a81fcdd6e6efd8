"""Reads and trims of the Kafka partitions of a range (`key_partitions`)."""

from typing import Final

from . import limits
from .common import BOUND, GROUP, KEY, READ, READ_ANSWER, SEQ, SMALL_BYTES
from .kinds import Array, Integer, Row
from .operation import Operation, Permission, Retry, Sender, Subject
from .record import Optional, Record

_NUMBERS_END: Final = 1 << 16
_ROW_BYTES: Final = 24

TAILS: Final = Operation(
    "tails", 122,
    "Return where the entries of the Kafka partitions of a span of keys begin and end, of "
    "partitions with new entries alone. With `wait_ms` the member waits for a new entry.",
    Sender.CLIENT, Permission.READ, Retry.SAFE,
    Record({
        **READ,
        "start_key": Optional(BOUND, b""),
        "end_key": Optional(KEY),
        "above": Optional(SEQ, 0),
        "wait_ms": Optional(Integer(0, limits.kafka_wait_ms_max), 0),
    }),
    Record({
        "rows": Array(
            Row(partition=Integer(0, _NUMBERS_END - 1), begin=SEQ, end=SEQ),
            limits.kafka_partitions_max,
        ),
        "next": SEQ,
        **READ_ANSWER,
    }, loose=True),
    SMALL_BYTES + limits.kafka_partitions_max * _ROW_BYTES,
    subject=Subject.KEYS,
)  # fmt: skip
TRIM_PARTITION: Final = Operation(
    "trim_partition", 123,
    "Remove the entries of a Kafka partition, whose span of keys the request names, below the seq "
    "`before`, which is the end at most, and return where the partition begins then.",
    Sender.CLIENT, Permission.TRIM, Retry.IDEMPOTENT,
    Record({
        **GROUP, "start_key": KEY, "end_key": KEY, "before": SEQ, "node": Optional(Integer()),
    }),
    Record({"begin": SEQ}, loose=True), SMALL_BYTES,
    subject=Subject.KEYS,
)  # fmt: skip
PARTITIONS: Final = (TAILS, TRIM_PARTITION)
