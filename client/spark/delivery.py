"""The appends of one task: a producer in each log that its rows name, on one connection."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from ..producer import AsyncProducer
from ..protocol.errors import (
    InvalidArgument,
    LimitExceeded,
    LognodeError,
    PartialFailure,
    SequenceMismatch,
    common_outcome,
)
from ..protocol.types import Expect
from ..window import Delivery
from .connection import Connection

Record = tuple[bytes, bytes | None, dict[bytes, bytes] | None, bool, Expect, str]
"""Key, value, headers, whether the record is a logical snapshot of its key, the condition, and the
log."""
logs_of_task_max: Final = 256
"""The logs of one task: each has a producer, with unacknowledged records in memory."""
_LINGER_MS: Final = 5
_UNACKED_BYTES: Final = 16 << 20
_UNACKED_BYTES_OF_MORE: Final = 2 << 20
"""Unacknowledged bytes in the first log of a task, and in each further log."""


class Appender(Connection):
    """The producers of a task, all with one name.

    In each log the name is taken over from older holders when the first record of the log comes.
    """

    def __init__(self, servers: str, name: str, *, timeout: float) -> None:
        super().__init__(servers)
        self._name = name
        self._timeout = timeout
        self._producers: dict[str, AsyncProducer] = {}

    def deliver(self, batches: Iterable[Sequence[Record]], first_number: int) -> int:
        """Append the records with consecutive numbers from `first_number` on, and return their
        count once all are acknowledged.

        Raises SequenceMismatch for a condition that does not hold, PartialFailure unless all are
        acknowledged, Fenced when a newer holder took the name, LogNotFound, InvalidArgument,
        Unavailable, Timeout.
        """
        count = 0
        try:
            for records in batches:
                self._loop.call(self._submit(records, first_number + count, count))
                count += len(records)
        except BaseException:
            self._loop.call(self._close(0.0))
            raise
        closed = self._loop.call(self._close(self._timeout))
        for log, producer in self._producers.items():
            if isinstance(producer.last_error, SequenceMismatch):
                raise _refused(log, producer.last_error)
        undelivered = sum(delivery.undelivered for delivery in closed)
        if undelivered:
            errors = [p.last_error for p in self._producers.values() if p.last_error is not None]
            why = f"; the last error: {errors[-1]}" if errors else ""
            raise PartialFailure(
                f"{undelivered} of {count} records were not acknowledged within "
                f"{self._timeout:g} s{why}",
                outcome=common_outcome(delivery.outcome for delivery in closed),
            )
        return count

    async def _submit(self, records: Sequence[Record], number: int, row: int) -> None:
        producers = self._producers
        for at, (key, value, headers, snapshot, expect, log) in enumerate(records):
            producer = producers.get(log) or await self._opened(log)
            try:
                await producer.submit(
                    key, value, headers=headers, number=number + at, expect=expect,
                    snapshot=snapshot,
                )  # fmt: skip
            except SequenceMismatch as error:
                raise _refused(log, error) from None
            except InvalidArgument as error:
                raise InvalidArgument(
                    f"row {row + at} of the task: {error.message}", what="row"
                ) from None

    async def _opened(self, log: str) -> AsyncProducer:
        if len(self._producers) >= logs_of_task_max:
            raise LimitExceeded(
                f"the rows of a task name {log!r} and {logs_of_task_max} more logs; the limit is "
                f"{logs_of_task_max}. Repartition the rows by the column log",
                limit="logs_of_task_max", value=logs_of_task_max + 1, allowed=logs_of_task_max,
            )  # fmt: skip
        producer = AsyncProducer(
            self._cluster, self._cluster.log(log), name=self._name, linger_ms=_LINGER_MS,
            unacked_bytes_max=_UNACKED_BYTES_OF_MORE if self._producers else _UNACKED_BYTES,
            timeout=self._timeout,
        )  # fmt: skip
        await producer.open()
        self._producers[log] = producer
        return producer

    async def _close(self, timeout: float) -> list[Delivery]:
        """Close all producers; return the outcome of the records of each."""
        return await asyncio.gather(*(p.close(timeout) for p in self._producers.values()))


def _refused(log: str, error: LognodeError) -> SequenceMismatch:
    key, expected, actual = (error.fields.get(name) for name in ("key", "expected", "actual"))
    return SequenceMismatch(
        f"column expect: a row of key {key!r} expects the last seq {expected}, and the last seq of "
        f"the key in log {log!r} is {actual}. The row was not appended; read the key again",
        key=key, expected=expected, actual=actual,
    )  # fmt: skip
