"""A streaming query in a process of its own, which can be killed; what its checkpoint says of it.

python tests/support/spark_query.py SERVERS LOG CHECKPOINT FORMAT WHERE LIMIT: what is available of
the log goes to a place of that format, in micro-batches of at most so many entries.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession


def started(
    servers: str, log: str, checkpoint: Path, to: str, where: object, limit: int
) -> subprocess.Popen[bytes]:
    """Such a process, of a process group of its own with its Java."""
    words = (servers, log, checkpoint, to, where, limit)
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), *map(str, words)], start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip


def newest(checkpoint: Path, what: str) -> int:
    """The number of the last micro-batch in `offsets` or `commits`; -1: there is none."""
    folder = checkpoint / what
    found = folder.iterdir() if folder.exists() else ()
    return max((int(file.name) for file in found if file.name.isdigit()), default=-1)


def killed_in_a_batch(
    running: subprocess.Popen[bytes],
    checkpoint: Path,
    has_begun: Callable[[], bool],
    limit_s: float = 120.0,
) -> int:
    """kill -9 to it and its Java in the middle of a micro-batch that it was the first to plan, once
    that has begun; the number of the micro-batch. Raises AssertionError where it ended before."""
    planned, deadline = newest(checkpoint, "offsets"), time.monotonic() + limit_s

    def in_a_batch() -> bool:
        return newest(checkpoint, "offsets") > max(planned, newest(checkpoint, "commits"))

    while running.poll() is None and time.monotonic() < deadline:
        if in_a_batch() and has_begun():
            # It may have ended the micro-batch by now; while it stands still that can be looked at.
            os.killpg(running.pid, signal.SIGSTOP)
            if in_a_batch() and has_begun():
                break
            os.killpg(running.pid, signal.SIGCONT)
        time.sleep(0.005)
    assert running.poll() is None, "it ended before it was killed"
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    return newest(checkpoint, "offsets")


def main(servers: str, log: str, checkpoint: str, to: str, where: str, limit: str) -> None:
    """Run the query until all is read that there is now."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    reader = spark.readStream.format("lognode").option("servers", servers).option("log", log)
    frame = reader.option("maxEntriesPerTrigger", limit).load()
    writer = frame.writeStream.option("checkpointLocation", checkpoint).format(to)
    if to == "lognode":
        writer = frame.select("key", "value").writeStream.format(to)
        writer = writer.option("checkpointLocation", checkpoint)
        writer = writer.option("servers", servers).option("log", where)
    else:
        writer = writer.option("path", where)
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
