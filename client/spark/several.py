"""The stream reader of several logs: a stream of each, with common limits and one offset.

The offset has the offset of each log, by name. A log that is created later under `logPrefix` joins
with a micro-batch of its own offset alone: the checkpoint then has its start, so the next
micro-batch has the same entries whenever it runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ..protocol.errors import InvalidArgument, LogNotFound, NotFound
from ..vector import Vector
from . import offsets
from .backlog import Backlog
from .cursors import StreamCursor
from .logs import logs_of
from .offsets import Area, Offset, Unread
from .options import ReadOptions
from .pace import Pace
from .planning import Task
from .session import Session
from .stream import StreamReader

_VERSION = 1


class SeveralReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one run of a query. Each call opens its own connection, and closes it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pace = Pace(options)
        self._initial: Offset | None = None
        self._available: dict[str, StreamReader] | None = None
        """The logs of a run that reads only what is available now, each with its end."""
        self._cursors: dict[str, StreamCursor] = {}
        """The cursors of the logs, if the query has a cursor."""
        self._backlog = Backlog()
        self._seen: tuple[Offset, dict[str, list[Unread]]] | None = None
        """The latest offset, and what is unread behind the last planned micro-batch."""

    # On the driver.

    def initialOffset(self) -> Offset:
        """Return the start of the first micro-batch, the same at every call."""
        if self._initial is None:
            with self._session() as session:
                names = self._names(session)
                self._initial = _offset({name: self._begin(session, name) for name in names})
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the present logs and their ends as the end of this run."""
        with self._session() as session:
            self._available = {name: self._of(name) for name in logs_of(session, self._options)}
            for name, reader in self._available.items():
                reader.prepare(session.of_log(name))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the bound that the options set for a micro-batch of all logs together."""
        return self._pace.limit

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the end of a micro-batch from `start` on: `start` itself when there is nothing
        new."""
        start = start or self.initialOffset()
        begins = _logs(start)
        with self._session() as session:
            names = self._names(session)
            going = self._going(session, begins, names)
            most = self._pace.most(limit, lambda: _stored(session, going))
            found = {
                name: self._of(name).areas(session.of_log(name), begin, most)
                for name, begin in going.items()
            }
            ends = {
                name: self._begin(session, name) if name not in going else begins[name]
                for name in names
            }  # fmt: skip
        every = [area for areas in found.values() for area in areas]
        waits = self._available is None and self._pace.waits(offsets.unread(every), limit)
        shares = iter([0] * len(every) if waits else offsets.shares(every, most))
        of_log = {name: list(islice(shares, len(areas))) for name, areas in found.items()}
        latest = {name: offsets.latest(going[name], areas) for name, areas in found.items()}
        left = {name: offsets.left(areas, of_log[name]) for name, areas in found.items()}
        self._seen = _offset({**ends, **latest}), left
        moved = [] if waits else self._advance(ends, found, of_log)
        if moved:
            self._pace.began()
            self._cut(going, ends, moved)
        return start if ends == begins else _offset(ends)

    def reportLatestOffset(self) -> Offset | None:
        """Return the latest offset for the progress of the query, with the backlog of all logs
        behind the micro-batch that was planned last."""
        if self._seen is None:
            return None
        offset, unread = self._seen
        return {**offset, "backlog": self._backlog.of(self._session, unread)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch, log by log; see `StreamReader.partitions`."""
        begins = {name: offsets.vector(begin) for name, begin in _logs(start).items()}
        tasks: list[Task] = []
        with self._session() as session:
            for name, given in _logs(end).items():
                begin, until = begins.get(name), offsets.vector(given)
                if begin is not None and begin.log_id == until.log_id:
                    between = offsets.cuts(given)
                    tasks += self._of(name).tasks(session.of_log(name), begin, until, between)
        return [InputPartition(task) for task in tasks]

    def commit(self, end: Offset) -> None:
        """Keep in the cursor of each log that is still there what is done; see
        `StreamReader.commit`."""
        if self._options.cursor is None:
            return
        with self._session() as session:
            for name, given in _logs(end).items():
                done = offsets.vector(given)
                if _is_there(session, name, done):
                    self._of(name).keep(session.of_log(name), done)

    # In tasks.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        task: Task = partition.value
        with self._session() as session:
            yield from self._of(task.log).rows(session.of_log(task.log), task)

    # Internal.

    def _session(self) -> Session:
        return Session(self._options.servers, "", timeout=self._options.timeout_s)

    def _names(self, session: Session) -> list[str]:
        available = self._available
        return logs_of(session, self._options) if available is None else list(available)

    def _of(self, name: str) -> StreamReader:
        available = None if self._available is None else self._available.get(name)
        if available is not None:
            return available
        options = self._options.of_log(name)
        if options.cursor is not None and name not in self._cursors:
            self._cursors[name] = StreamCursor(options)
        return StreamReader(options, self._schema, self._cursors.get(name))

    def _begin(self, session: Session, name: str) -> Offset:
        self._cursors.pop(name, None)  # that of a deleted log with this name
        return self._of(name).begin(session.of_log(name))

    def _going(
        self, session: Session, begins: Mapping[str, Offset], names: Sequence[str]
    ) -> dict[str, Vector]:
        """Return where the stream is in the logs that are still there. Raises NotFound for the
        others, unless loss is accepted."""
        going: dict[str, Vector] = {}
        for name, given in begins.items():
            begin = offsets.vector(given)
            if name in names and _is_there(session, name, begin):
                going[name] = begin
            elif self._options.fail_on_data_loss:
                raise NotFound(
                    f"log {name!r}, which this stream has read, was deleted; its unread entries "
                    "are gone. Give failOnDataLoss=false to continue without them"
                )
        return going

    def _cut(
        self, going: Mapping[str, Vector], ends: dict[str, Offset], moved: Sequence[str]
    ) -> None:
        """Give the ends of the logs that moved cuts, for enough tasks of all logs together."""
        tasks_min = -(-self._options.partitions_min // len(moved))
        with self._session() as session:
            for name in moved:
                own = session.of_log(name)
                ends[name] = self._of(name).cut(own, going[name], ends[name], tasks_min)

    @staticmethod
    def _advance(
        ends: dict[str, Offset], found: Mapping[str, Sequence[Area]],
        shares: Mapping[str, Sequence[int]],
    ) -> list[str]:  # fmt: skip
        """Move the ends of the logs on by the shares of their areas. Return the logs that
        moved."""
        moved = []
        for name, areas in found.items():
            end = offsets.advanced(areas, shares[name])
            if end is not None:
                ends[name] = offsets.offset(offsets.vector(ends[name]), end)
                moved.append(name)
        return moved


def _is_there(session: Session, name: str, of: Vector) -> bool:
    """Whether the log of an offset exists, and was not created anew."""
    try:
        return session.of_log(name).log().log_id == of.log_id
    except LogNotFound:
        return False


def _stored(session: Session, names: Mapping[str, Any]) -> tuple[int, int]:
    sizes = [session.of_log(name).stored() for name in names]
    return sum(size for size, _ in sizes), sum(seqs for _, seqs in sizes)


def _offset(of_logs: Mapping[str, Offset]) -> Offset:
    return {"v": _VERSION, "logs": dict(of_logs)}


def _logs(offset: Offset) -> dict[str, Offset]:
    """Undo `_offset`. Raises InvalidArgument for the offset of a stream of one log."""
    found = offset.get("logs")
    if not isinstance(found, dict):
        raise InvalidArgument(
            "the checkpoint is of a query with the option log, but this query has logs or "
            "logPrefix. Give each query a checkpoint of its own",
            what="checkpointLocation",
        )
    return found
