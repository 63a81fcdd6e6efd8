"""Why the source takes no filters of a query (trap 6): Spark mixes them up. With real Spark.

When this fails, Spark has mended its fault, and the source can take filters.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
SWITCH = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    """The rows 1 to 9 of a source that takes all filters, and keeps the number of an `n = ...`."""

    # Within the fixture: Spark copies the classes to its workers, which do not find this module.
    class Reader(DataSourceReader):
        def __init__(self) -> None:
            self.numbers = tuple(range(1, 10))

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
            for each in filters:
                if type(each).__name__ == "EqualTo":
                    self.numbers = (each.value,)  # type: ignore[attr-defined]
            return ()

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            return ((number,) for number in self.numbers)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "filters"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Source)
    spark.conf.set(SWITCH, "true")
    yield spark.read.format("filters").load()
    spark.conf.unset(SWITCH)


def numbers(of: DataFrame) -> list[int]:
    """The rows of a query of its own: Spark plans a DataFrame once."""
    return sorted(row.n for row in of.select("n").collect())


def test_trap_6_spark_gives_the_filters_of_one_query_to_others(frame: DataFrame) -> None:
    assert numbers(frame) == list(range(1, 10))
    assert numbers(frame.where("n = 3")) == [3]
    assert numbers(frame) == [3], "all nine rows were asked for"
    both = frame.where("n = 3").union(frame.where("n = 4"))
    assert numbers(both) in ([3, 3], [4, 4]), "a row of each was asked for"
