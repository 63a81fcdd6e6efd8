"""Where Spark looks for the data source `lognode`: it imports every module named `pyspark_*`."""

from lognode.client.spark.source import LognodeSource as DefaultSource

__all__ = ["DefaultSource"]
