"""Writing to a log, so that a task or a micro-batch that runs again adds nothing twice.

Each partition of a query is a named producer, and each row has a number: in a stream that of its
micro-batch and its place in the task. A range applies a number of a producer once, for 24 hours; a
task that runs again takes the name over, so that its predecessor cannot append any more. That holds
as long as the task has the same rows in the same order, as those of a lognode source do.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ..protocol.errors import LocalProtocolError
from .arrow import records
from .options import WriteOptions
from .session import Record, Session

numbers_of_batch: Final = 1 << 32
"""A task has fewer rows."""
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class Delivered(WriterCommitMessage):
    """What a task has appended, or had before."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    """Of one `save`. Its tasks may run again; the same `save` once more adds the rows once more."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._query = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
        """Append the rows of a task. Raises PartialFailure, Fenced, InvalidArgument."""
        name = producer_name(self._query, _context().partitionId())
        return deliver(self._options, name, first_number(0), iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Of one query, which keeps its id for as long as its checkpoint."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
        """Append the rows of a task of a micro-batch. Raises as that of `BatchWriter`."""
        context = _context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise LocalProtocolError("Spark does not say which query and micro-batch this is")
        name = producer_name(query, context.partitionId())
        return deliver(self._options, name, first_number(int(batch)), iterator)


def producer_name(query: str, partition: int) -> str:
    """The producer of a partition of a query."""
    return f"spark/{query}/{partition}"


def first_number(batch: int) -> int:
    """The number of the first row of a task of a micro-batch."""
    return batch * numbers_of_batch + 1


def deliver(
    options: WriteOptions, name: str, number: int, iterator: Iterator[pa.RecordBatch]
) -> Delivered:
    """Append the rows as that producer, numbered from `number` on."""
    with Session(options.servers, options.log, timeout=options.timeout_s) as session:
        return Delivered(session.deliver(name, _records(iterator), number))


def _records(iterator: Iterator[pa.RecordBatch]) -> Iterator[Sequence[Record]]:
    count = 0
    for batch in iterator:
        if batch.num_rows:
            yield records(batch, count)
            count += batch.num_rows


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise LocalProtocolError("a writer of Spark writes in its tasks only")
    return context
