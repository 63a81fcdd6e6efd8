"""Where the tasks of a Spark read spend their time: lognode's own reader, with clocks around it.

A task has one thread that Spark runs, and one of the client's own, which receives. The first thread
waits for pages, makes columns of them, and hands batches over to the JVM, in turn. Clocks are read
at each change between these, a few times a page of some thousand entries. Each task writes its
times to a file.
"""

import json
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lognode.client.protocol.types import Consistency
from lognode.client.span_pages import Span, SpanPage
from lognode.client.spark import reader
from lognode.client.spark.arrow import Rows
from lognode.client.spark.session import Session
from lognode.client.spark.source import LognodeSource
from lognode.client.vector import Vector


@dataclass
class Times:
    """Seconds of one task; `cpu_` is processor time, by default of the thread that Spark runs."""

    whole: float = 0.0
    nodes: float = 0.0
    """Waiting for pages, which the client's thread received and decoded meanwhile."""
    columns: float = 0.0
    jvm: float = 0.0
    """From when a batch was given to Spark until Spark wanted the next batch."""
    cpu_columns: float = 0.0
    cpu_jvm: float = 0.0
    """Arrow's writing; the rest of `jvm` is waiting for the JVM."""
    cpu_client: float = 0.0
    """Processor time of all other threads of the process."""
    pages: int = 0
    batches: int = 0


class MeasuredSource(LognodeSource):
    """`lognode`, and an option `times`: the directory for the tasks' times."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = dict(options)
        self._times = given.pop("times", "")
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        """Return a name that differs from the measured source's name."""
        return "lognode-measured"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return lognode's reader, with clocks."""
        return _MeasuredReader(super().reader(schema), self._times)


class _MeasuredReader(DataSourceReader):
    def __init__(self, inner: DataSourceReader, times: str) -> None:
        self._inner = inner
        self._times = times

    def partitions(self) -> Sequence[InputPartition]:
        return self._inner.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        times = Times()
        began = time.perf_counter(), time.thread_time(), time.process_time()
        with (
            mock.patch.object(reader, "Session", _session(times)),
            mock.patch.object(reader, "Rows", _rows(times)),
        ):
            for batch in self._inner.read(partition):
                given = time.perf_counter(), time.thread_time()
                yield batch
                times.jvm += time.perf_counter() - given[0]
                times.cpu_jvm += time.thread_time() - given[1]
                times.batches += 1
        times.whole = time.perf_counter() - began[0]
        own = time.thread_time() - began[1]
        times.cpu_client = time.process_time() - began[2] - own
        (Path(self._times) / f"{uuid.uuid4().hex}.json").write_text(json.dumps(asdict(times)))


def _session(times: Times) -> type[Session]:
    class Measured(Session):
        def pages(
            self, span: Span, consistency: Consistency, of: Vector
        ) -> Generator[SpanPage, None, None]:
            began = time.perf_counter()
            for page in super().pages(span, consistency, of):
                times.nodes += time.perf_counter() - began
                times.pages += 1
                yield page
                began = time.perf_counter()
            times.nodes += time.perf_counter() - began

    return Measured


def _rows(times: Times) -> type[Rows]:
    class Measured(Rows):
        def feed(self, page: SpanPage) -> Iterator[pa.RecordBatch]:
            began = time.perf_counter(), time.thread_time()
            for batch in super().feed(page):
                _passed(times, began)
                yield batch
                began = time.perf_counter(), time.thread_time()
            _passed(times, began)

    return Measured


def _passed(times: Times, began: tuple[float, float]) -> None:
    times.columns += time.perf_counter() - began[0]
    times.cpu_columns += time.thread_time() - began[1]


def total(directory: Path) -> dict[str, Any]:
    """Return the number of all tasks, their times added up, and the shares of the whole."""
    found = [json.loads(file.read_text()) for file in directory.glob("*.json")]
    sums = {name: sum(row[name] for row in found) for name in asdict(Times())}
    named = ("nodes", "columns", "jvm")
    shares = {f"{name} %": _percent(sums[name], sums["whole"]) for name in named}
    shares["rest %"] = round(100 - sum(shares.values()), 1)
    cpu = {f"{name} s": round(sums[name], 2) for name in _cpu(sums)}
    return {"tasks": len(found), **shares, **cpu, "sums": sums}


def _cpu(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith("cpu_")]


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 1) if whole else 0.0
