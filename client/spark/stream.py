"""The stream reader: micro-batches between offsets, exact across restarts from a checkpoint.

Spark's offset log keeps the ends of micro-batches, but each run of the query computes the start of
the first one again. So a start must not move by itself: `latest` is refused, except for a kept
cursor, which has the position from its first use on.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ..span_positions import Position, overlay
from ..vector import Vector
from . import offsets
from .backlog import Backlog
from .cursors import StreamCursor, everywhere, from_earliest
from .loss import check_loss, lost_entries
from .offsets import Area, Offset, Unread
from .options import ReadOptions
from .pace import Pace
from .planning import KeySpan, Task, hull, positions
from .reader import read_piece
from .session import Session
from .wanted import wanted


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one run of a query. Each call opens its own connection, and closes it."""

    def __init__(
        self, options: ReadOptions, schema: StructType, cursor: StreamCursor | None = None
    ) -> None:
        self._options = options
        self._schema = schema
        if cursor is None and options.cursor is not None:
            cursor = StreamCursor(options)
        self._cursor = cursor
        self._initial: Offset | None = None
        self._target: list[Position] | None = None
        """The end of a run that reads only what is available now."""
        self._pace = Pace(options)
        self._backlog = Backlog()
        self._seen: tuple[Offset, list[Unread]] | None = None
        """The latest offset, and what is unread behind the last planned micro-batch."""

    # On the driver.

    def initialOffset(self) -> Offset:
        """Return the start of the first micro-batch, the same at every call."""
        if self._initial is None:
            with self._session() as session:
                self._initial = self.begin(session)
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the present end of the log as the end of this run."""
        with self._session() as session:
            self.prepare(session)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the bound that the options set for a micro-batch."""
        return self._pace.limit

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the end of a micro-batch from `start` on: `start` itself when there is nothing
        new."""
        start = start or self.initialOffset()
        begin = offsets.vector(start)
        with self._session() as session:
            most = self._pace.most(limit, session.stored)
            found = self.areas(session, begin, most)
        waits = self._target is None and self._pace.waits(offsets.unread(found), limit)
        shares = [0] * len(found) if waits else offsets.shares(found, most)
        self._seen = offsets.latest(begin, found), offsets.left(found, shares)
        end = None if waits else offsets.advanced(found, shares)
        if end is None:
            return start
        self._pace.began()
        with self._session() as session:
            uncut = offsets.offset(begin, end)
            return self.cut(session, begin, uncut, self._options.partitions_min)

    def reportLatestOffset(self) -> Offset | None:
        """Return the latest offset for the progress of the query, with the backlog behind the
        micro-batch that was planned last."""
        if self._seen is None:
            return None
        offset, unread = self._seen
        unread_of = {self._options.log: unread}
        return {**offset, "backlog": self._backlog.of(self._session, unread_of)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch, by the offsets alone. Raises InvalidArgument when
        the end is before the start, and NotFound when retention has removed entries that the
        tasks read."""
        begin, until = offsets.vector(start), offsets.vector(end)
        with self._session() as session:
            tasks = self.tasks(session, begin, until, offsets.cuts(end))
        return [InputPartition(task) for task in tasks]

    def commit(self, end: Offset) -> None:
        """Keep in the cursor that everything up to `end` is done: Spark has stored this, and has
        begun the next micro-batch. Raises Fenced when another reader has opened the cursor."""
        if self._cursor is not None:
            with self._session() as session:
                self.keep(session, offsets.vector(end))

    # In tasks.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        task: Task = partition.value
        with self._session() as session:
            yield from self.rows(session, task)

    # Of one log, also for the reader of several logs.

    def begin(self, session: Session) -> Offset:
        """Return where a stream of the log begins."""
        return offsets.offset(session.log(), self._start(session))

    def prepare(self, session: Session) -> None:
        """Fix the present end of the log as the end of this run."""
        self._target = session.positions("latest")

    def areas(self, session: Session, begin: Vector, most: int | None) -> list[Area]:
        """Return what can be read after `begin`. Each area has at most one entry of each seq if
        `most` limits the entries."""
        session.check(begin)
        latest = self._target or session.positions("latest")
        edges: list[Position] = [(b"", None, 0)] if most is None else session.positions("earliest")
        return offsets.areas(begin, latest, wanted(session, self._options).spans, edges)

    def cut(self, session: Session, begin: Vector, end: Offset, tasks_min: int) -> Offset:
        """Return the end of a micro-batch with cuts, if the tasks would be fewer than
        `tasks_min`."""
        spans = wanted(session, self._options).spans
        if tasks_min == 1 or len(offsets.tasks(begin, offsets.vector(end), spans)) >= tasks_min:
            return end
        return offsets.with_cuts(end, begin, spans, session.layout(hull(spans)), tasks_min)

    def tasks(
        self, session: Session, begin: Vector, until: Vector, between: Sequence[KeySpan]
    ) -> list[Task]:
        """Return the tasks between two offsets, cut between these spans. Raises InvalidArgument and
        NotFound."""
        session.check(begin)
        tasks = offsets.tasks(begin, until, *wanted(session, self._options), between)
        if tasks:
            self._check_loss(session, tasks)
        return tasks

    def keep(self, session: Session, done: Vector) -> None:
        """Keep in the cursor that everything up to `done` is done."""
        session.check(done)
        if self._cursor is not None:
            self._cursor.commit(session, positions(done))

    def rows(self, session: Session, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        for piece in task.pieces:
            yield from read_piece(session, self._options, self._schema, task, piece)
        self._check_loss(session, [task])  # entries removed meanwhile may not have been read

    # Internal.

    def _session(self) -> Session:
        options = self._options
        return Session(options.servers, options.log, timeout=options.timeout_s)

    def _start(self, session: Session) -> list[Position]:
        """Return the start, not below the earliest remaining entry, so removed entries do not
        count as lost. A checkpoint has no start for the first micro-batch. When that runs again
        with the same tasks, a sink treats their rows as the same, so a split in between must not
        show."""
        earliest = session.positions("earliest")
        begins: list[Position] = [(b"", None, 1)]
        if self._cursor is not None:
            kept = self._cursor.begin(session)
            if self._options.fail_on_data_loss:
                self._check_kept(kept, earliest)
            begins = everywhere(kept)
        elif isinstance(self._options.starting, Vector):
            session.check(self._options.starting)
            begins = positions(self._options.starting)
        elif isinstance(self._options.starting, int):
            begins = [(b"", None, self._options.starting)]
        elif self._options.starting_ms is not None:
            begins = session.positions(["ts", self._options.starting_ms])
        return offsets.joined(
            (low, high, max(one, other)) for low, high, one, other in overlay(earliest, begins)
        )

    def _check_kept(self, kept: Sequence[Position], earliest: Sequence[Position]) -> None:
        """Raise NotFound when retention has removed entries behind the positions of the cursor."""
        found = from_earliest(kept, earliest)
        for start, _, next_, first in overlay(found, earliest):
            if first > next_:
                raise lost_entries(
                    self._options.log, start, next_, first,
                    f"cursor {self._options.cursor!r} is at seq {{first}}", "failOnDataLoss=false",
                )  # fmt: skip

    def _check_loss(self, session: Session, tasks: Sequence[Task]) -> None:
        if self._options.fail_on_data_loss:
            why = "this micro-batch begins with {first}"
            check_loss(session, tasks, self._options.log, why, "failOnDataLoss=false")
