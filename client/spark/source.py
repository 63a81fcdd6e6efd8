"""The data source that Spark knows as `lognode`: its readers and writers."""

from collections.abc import Mapping, MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ..protocol.errors import InvalidArgument
from .options import ReadOptions, WriteOptions, read_options, write_options
from .schema import check_libraries, check_sink_schema, check_source_schema, source_schema
from .session import Session


class LognodeSource(DataSource):
    """`spark.read.format("lognode")`. The cluster is not contacted before a query is planned.

    Spark imports this module to find its name, even when nobody uses it, so modules that need
    pyarrow are imported at their first use.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        check_libraries()
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        """The name by which Spark finds the source."""
        return "lognode"

    def schema(self) -> StructType:
        """Return the columns. Raises InvalidArgument for options that no reader has."""
        return source_schema(read_options(self.options, streaming=None).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch. Raises InvalidArgument."""
        from .reader import BatchReader

        return BatchReader(_checked(self.options, schema, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. Raises InvalidArgument."""
        from .several import SeveralReader
        from .stream import StreamReader

        options = _checked(self.options, schema, streaming=True)
        return (StreamReader if options.log else SeveralReader)(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch. Raises InvalidArgument, LogNotFound, Unavailable."""
        from .sink import BatchWriter

        return BatchWriter(_writable(self.options, schema, overwrite, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream. Raises InvalidArgument, LogNotFound, Unavailable."""
        from .sink import StreamWriter

        return StreamWriter(_writable(self.options, schema, overwrite, streaming=True))


def _checked(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> ReadOptions:
    found = read_options(options, streaming=streaming)
    check_source_schema(schema, found.columns)
    return found


def _writable(
    options: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool
) -> WriteOptions:
    if overwrite:
        raise InvalidArgument(
            "the write mode would overwrite entries; a log only grows. Write with "
            "mode('append'), a stream with outputMode('append') or 'update'",
            what="mode",
        )
    found = write_options(options, streaming=streaming)
    check_sink_schema(schema, found.log)
    with Session(found.servers, found.log or "", timeout=found.timeout_s) as session:
        if found.log is None:
            session.reach()
        else:
            session.log()
    return found
