"""The data source that Spark knows as `lognode`: what it reads from and writes to."""

from collections.abc import Mapping, MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from .options import ReadOptions, read_options
from .schema import check_libraries, check_source_schema, source_schema


class LognodeSource(DataSource):
    """`spark.read.format("lognode")`. Nothing is asked of a cluster before a query is planned.

    Spark imports this to find out its name, also where nobody uses it: what needs pyarrow is
    imported when it is used.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        check_libraries()
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        """By which Spark finds it."""
        return "lognode"

    def schema(self) -> StructType:
        """Raises InvalidArgument for options that no reader has."""
        return source_schema(read_options(self.options, streaming=None).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch. Raises InvalidArgument."""
        from .reader import BatchReader

        return BatchReader(_checked(self.options, schema, streaming=False), schema)


def _checked(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> ReadOptions:
    found = read_options(options, streaming=streaming)
    check_source_schema(schema, found.columns)
    return found
