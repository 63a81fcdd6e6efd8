"""A job of Spark for `spark`: write, copy as a stream, or read with the source and the sink for
Kafka."""

import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, countDistinct

RECORDS = 1_000


def main() -> None:
    """Do what the last argument says."""
    addresses, jars, checkpoint, what = sys.argv[1:]
    built = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    spark = built.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    to = {"kafka.bootstrap.servers": addresses}
    come = {**to, "startingOffsets": "earliest"}
    if what == "write":
        rows = spark.range(RECORDS).selectExpr(
            "cast(id % 20 as string) key", "cast(id as string) value"
        )
        rows.write.format("kafka").options(topic="written", **to).save()
    elif what == "read":
        rows = spark.read.format("kafka").options(subscribe="copied", **come).load()
        values = rows.select(col("value").cast("string").alias("value"))
        row = values.agg(count("value"), countDistinct("value")).first()
        assert row is not None
        print("READ", row[0], row[1])
    else:
        options = {**come, "subscribe": "written", "maxOffsetsPerTrigger": "50"}
        rows = spark.readStream.format("kafka").options(**options).load().select("key", "value")
        out = rows.writeStream.format("kafka").options(topic="copied", **to)
        query = out.option("checkpointLocation", checkpoint).start()
        while query.isActive:
            progress = query.lastProgress
            if progress:
                print("BATCH", progress["batchId"], flush=True)
                if not progress["numInputRows"]:
                    print("DONE", flush=True)
            time.sleep(0.2)
        raise SystemExit(str(query.exception()))


if __name__ == "__main__":
    main()
