"""The batch reader: planned once on the driver, read in tasks, from a fixed vector."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..protocol.errors import NotFound
from ..span_positions import Position
from ..vector import Vector
from . import leases
from .arrow import LatestRows, Rows
from .cursors import from_earliest, kept
from .leases import Held
from .logs import logs_of
from .loss import check_loss, maybe_from
from .options import ReadOptions
from .planning import KeySpan, Piece, Task, hull, plan_batch, positions
from .session import Session
from .wanted import wanted


class BatchReader(DataSourceReader):
    """The reader of one DataFrame. Spark plans it once, so all its actions show the same rows."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each task, log by log. Raises LogNotFound, NotFound,
        InvalidArgument, Unavailable."""
        options, plans = self._options, []
        with (
            Session(options.servers, options.log, timeout=options.timeout_s) as session,
            contextlib.ExitStack() as undone,
        ):
            names = logs_of(session, options)
            for name in names:
                own = session.of_log(name)
                plans.append(plan(own, options.of_log(name, len(names))))
                undone.callback(leases.give_back, own, plans[-1].held)
            for made in plans:
                leases.keep(options.of_log(made.held.vector.log), made.held)
            undone.pop_all()
        return [InputPartition(task) for made in plans for task in made.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task."""
        if partition.value is None:  # Spark's own partition, when there is none
            return iter(())
        return read_task(self._options, self._schema, partition.value)


class Plan(NamedTuple):
    """The tasks of a log, and the snapshot that they read."""

    tasks: list[Task]
    held: Held


def plan(session: Session, options: ReadOptions) -> Plan:
    """Fix what is read, lease it, and share it between tasks.

    Raises NotFound when retention has removed the start of the read. One check is enough once the
    lease is taken: entries removed later still show in the lease's view, and tasks fail when the
    lease has ended. Without a lease, which requires failOnDataLoss=false, tasks read the remaining
    entries.
    """
    if isinstance(options.starting, Vector):
        session.check(options.starting)
    spans, patterns = wanted(session, options)
    held = _held(session, options)
    vector, around = held.vector, hull(spans)
    try:
        begins, ends = _begins(session, options, around), _ends(session, options, around)
        if options.fail_on_data_loss:
            _check_loss(session, options, spans, vector, begins, ends)
        tasks = plan_batch(
            vector, spans, begins=begins, ends=ends, weights=session.layout(around),
            partitions_min=options.partitions_min, lease=vector.lease or None, patterns=patterns,
        )  # fmt: skip
        return Plan(tasks, held)
    except BaseException:
        leases.give_back(session, held)
        raise


def _check_loss(
    session: Session, options: ReadOptions, spans: Sequence[KeySpan], vector: Vector,
    begins: Sequence[Position], ends: Sequence[Position] | None,
) -> None:  # fmt: skip
    if options.starting is None and options.starting_ms is None and options.cursor is None:
        return  # reads the remaining entries
    why = "this batch begins with {first}"
    if options.starting_ms is not None:
        begins = maybe_from(begins, session.positions("earliest", hull(spans)))
        why = "no entry before startingTimestamp is left"
    tasks = plan_batch(vector, spans, begins=begins, ends=ends, lease=None)
    check_loss(session, tasks, options.log, why, "failOnDataLoss=false")


def _begins(
    session: Session, options: ReadOptions, around: Sequence[KeySpan]
) -> Sequence[Position]:
    if options.cursor is not None:
        return from_earliest(kept(session, options), session.positions("earliest", around))
    if options.starting_ms is not None:
        return session.positions(["ts", options.starting_ms], around)
    if isinstance(options.starting, Vector):
        return positions(options.starting)
    assert options.starting != "latest", "only with a cursor"
    return [(b"", None, options.starting or 1)]


def _ends(
    session: Session, options: ReadOptions, around: Sequence[KeySpan]
) -> Sequence[Position] | None:
    if options.ending_seq is not None:
        return [(b"", None, options.ending_seq)]
    if options.ending_ms is not None:
        return session.positions(["ts", options.ending_ms], around)
    if isinstance(options.as_of, int):
        return session.positions(["ts", options.as_of + 1], around)
    return None


def _held(session: Session, options: ReadOptions) -> Held:
    """Return the snapshot to read; without a lease when the lease has ended and loss is
    accepted."""
    if not isinstance(options.as_of, Vector):
        return leases.taken(session, options)
    vector = options.as_of
    session.check(vector)
    try:
        if not vector.lease:
            raise NotFound("the vector has no lease")
        session.renew(vector, options.lease_s)
    except NotFound as error:
        if error.code != NotFound.code:
            raise
        if not options.fail_on_data_loss:
            return Held(vector._replace(lease=""), is_own=False)
        raise NotFound(
            "option asOf: the lease of the snapshot has ended, and its entries may be "
            "removed. Give another snapshot, or failOnDataLoss=false to read the entries "
            "that are left"
        ) from None
    return Held(vector, is_own=False)


def read_task(options: ReadOptions, schema: StructType, task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, on its own connection."""
    with Session(options.servers, task.log, timeout=options.timeout_s) as session:
        for piece in task.pieces:
            yield from read_piece(session, options, schema, task, piece)


def read_piece(
    session: Session, options: ReadOptions, schema: StructType, task: Task, piece: Piece
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece, in the order of key and seq."""
    make = LatestRows if options.mode == "snapshot" else Rows
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    rows = make(arrow_schema, log=task.log, range_start=piece.range_start)
    with contextlib.closing(session.pages(piece.span, options.consistency, task.of)) as pages:
        for page in pages:
            yield from rows.feed(page)
    yield from rows.finish()
