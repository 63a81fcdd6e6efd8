"""The sink: a task or a micro-batch that runs again adds nothing twice.

Each partition of a query is a named producer, and each row has a number: in a stream it combines
the micro-batch and the row's place in the task. A range applies a number of a producer once, for 24
hours. A task that runs again takes the name over, so its predecessor can no longer append. This
requires that the task has the same rows in the same order, as the tasks of a lognode source have.
The numbers of a task run over all logs of its rows: in each log, the task is a producer with this
name and some of the numbers.
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
from .delivery import Appender, Record
from .options import WriteOptions

numbers_of_batch: Final = 1 << 32
"""Numbers per micro-batch. A task has fewer rows."""
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class Delivered(WriterCommitMessage):
    """The records that a task has appended, now or in an earlier attempt."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    """The writer of one `save`. Its tasks may run again. A second `save` adds the rows again,
    unless both have the same id."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._query = uuid.uuid4().hex
        if options.write_id is not None:
            self._query = f"id/{options.write_id}"  # differs from the ids of other queries

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
        """Append the rows of a task. Raises PartialFailure, Fenced, InvalidArgument."""
        name = producer_name(self._query, _context().partitionId())
        return deliver(self._options, name, first_number(0), iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of one query, which keeps its id for as long as its checkpoint."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
        """Append the rows of a task of a micro-batch. Raises the errors of `BatchWriter.write`."""
        context = _context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise LocalProtocolError(
                "Spark does not report the query and the micro-batch of this write"
            )
        name = producer_name(query, context.partitionId())
        return deliver(self._options, name, first_number(int(batch)), iterator)


def producer_name(query: str, partition: int) -> str:
    """Return the producer name of a query's partition."""
    return f"spark/{query}/{partition}"


def first_number(batch: int) -> int:
    """Return the number of the first row of a task in a micro-batch."""
    return batch * numbers_of_batch + 1


def deliver(
    options: WriteOptions, name: str, number: int, iterator: Iterator[pa.RecordBatch]
) -> Delivered:
    """Append the rows as that producer, numbered from `number` on."""
    with Appender(options.servers, name, timeout=options.timeout_s) as appender:
        return Delivered(appender.deliver(_records(iterator, options.log), number))


def _records(iterator: Iterator[pa.RecordBatch], log: str | None) -> Iterator[Sequence[Record]]:
    count = 0
    for batch in iterator:
        if batch.num_rows:
            yield records(batch, count, log)
            count += batch.num_rows


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise LocalProtocolError("the writer of lognode writes in Spark tasks only")
    return context
