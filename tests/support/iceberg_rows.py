"""The rows of an Iceberg table, as three readers see them, as a count and a hash of all rows.

Each row is a text: key, value, seq, timestamp in microseconds, snapshot mark and headers. The hash
is the sum of the first 60 bits of the MD5 of each text, so that the order of rows does not matter,
while a row that is there twice does. Each reader computes the hash itself.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lognode

Hash = tuple[int, int]
"""The count of rows, and the sum of their hashes."""
DUCKDB = "1.5.5"
"""The newest DuckDB whose Iceberg extension PyPI has too."""
_HEX = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)
"""The two digits of each byte."""
_DUCKDB = """
import glob, importlib, sys, duckdb
connection = duckdb.connect()
for name in ("avro", "iceberg"):
    (place,) = importlib.import_module(f"duckdb_extension_{name}").__path__
    (file,) = glob.glob(f"{place}/extensions/*/{name}.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
connection.execute("SET threads = 2")
rows = '''
    SELECT hex(key) || '|' || coalesce(hex(value), '-') || '|' || seq || '|'
        || epoch_us("timestamp") || '|' || snapshot || '|' || coalesce(array_to_string(
            list_transform(headers, x -> hex(x.key) || ':' || hex(x.value)), ','), '') AS text
    FROM iceberg_scan(?)'''
print(*connection.execute(f'''
    SELECT count(*), coalesce(sum(('0x' || substr(md5(text), 1, 15))::BIGINT), 0)
    FROM ({rows})''', [sys.argv[1]]).fetchone())
"""
SPARK, RUNTIME = "4.1.*", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
"""The newest Spark that Iceberg has a runtime for. The runtime does not load in Spark 4.3."""
_SPARK = """
import sys
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[2]").config("spark.jars.packages", sys.argv[2])
         .config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
         .config("spark.driver.memory", "2g").config("spark.sql.session.timeZone", "UTC")
         .getOrCreate())
text = '''
    hex(key) || '|' || coalesce(hex(value), '-') || '|' || seq || '|' || unix_micros(`timestamp`)
    || '|' || snapshot || '|' || coalesce(array_join(
        transform(headers, x -> hex(x.key) || ':' || hex(x.value)), ','), '')'''
number = f"cast(conv(substr(md5({text}), 1, 15), 16, 10) as decimal(38, 0))"
frame = spark.read.format("iceberg").load(sys.argv[1])
print(*frame.selectExpr("count(*)", f"coalesce(sum({number}), 0)").first())
"""


def of_log(log: lognode.Log) -> Hash:
    """What the log shows."""
    return _summed(log.snapshot(lease_s=600).read_arrow())


def of_pyiceberg(table: Any) -> Hash:
    """What PyIceberg reads of a table."""
    return _summed(table.scan().to_arrow_batch_reader())


class Readers:
    """DuckDB with its Iceberg extension from PyPI, and Spark with Iceberg's own runtime from Maven,
    in an environment of their own."""

    def __init__(self, place: Path) -> None:
        self._python = place / "bin" / "python"
        run(sys.executable, "-m", "venv", place)
        run(self._python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
            f"pyspark=={SPARK}", f"duckdb=={DUCKDB}", f"duckdb-extension-iceberg=={DUCKDB}",
            f"duckdb-extension-avro=={DUCKDB}")  # fmt: skip

    def duckdb(self, table: Any) -> Hash:
        """What DuckDB reads of a table, from the table's present metadata."""
        return self._read(_DUCKDB, table.metadata_location)

    def spark(self, table: Any) -> Hash:
        """What Spark reads of a table, from the table's present metadata."""
        return self._read(_SPARK, table.metadata_location, RUNTIME)

    def _read(self, program: str, *arguments: str) -> Hash:
        count, total = run(self._python, "-c", program, *arguments).split()[-2:]
        return int(count), int(total)


def run(*command: object) -> str:
    """What a program printed, in an environment that names no Spark."""
    others = {name: text for name, text in os.environ.items() if "PYTHON" not in name}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=900, check=False,
        env={**others, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _summed(batches: Iterable[pa.RecordBatch]) -> Hash:
    count = total = 0
    for batch in batches:
        if batch.num_rows:
            rows = _texts(batch).cast(pa.binary()).to_pylist()
            digests = b"".join([hashlib.md5(row).digest() for row in rows])
            numbers = np.frombuffer(digests, ">u8")[::2] >> 4
            total += (int((numbers >> 30).sum()) << 30) + int((numbers & (1 << 30) - 1).sum())
        count += batch.num_rows
    return count, total


def _texts(batch: pa.RecordBatch) -> pa.Array:
    """The text of each row."""
    micros = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    numbers = batch.column("seq"), micros, batch.column("snapshot")
    return pc.binary_join_element_wise(
        _hex(batch.column("key")), _hex(batch.column("value")),
        *(column.cast(pa.string()) for column in numbers), _headers(batch.column("headers")), "|",
    )  # fmt: skip


def _hex(column: pa.Array) -> pa.Array:
    """The digits of each binary, and `-` for null."""
    binaries = column.cast(pa.binary())
    _, offsets, data = binaries.buffers()
    begins = np.frombuffer(offsets, np.int32)[binaries.offset :][: len(binaries) + 1]
    data = np.frombuffer(b"" if data is None else data, np.uint8)[begins[0] : begins[-1]]
    texts = pa.Array.from_buffers(
        pa.string(), len(binaries),
        [None, pa.py_buffer((begins - begins[0]) * 2), pa.py_buffer(_HEX[data])],
    )  # fmt: skip
    return pc.if_else(binaries.is_valid(), texts, "-")


def _headers(column: pa.Array) -> pa.Array:
    if not pc.any(pc.greater(pc.list_value_length(column), 0)).as_py():
        return pa.repeat("", len(column))
    return pa.array([
        ",".join(f"{each['key'].hex()}:{each['value'].hex()}" for each in row or ()).upper()
        for row in column.to_pylist()
    ], pa.string())  # fmt: skip
