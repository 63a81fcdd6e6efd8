"""The command line that the jobs share: options, the start and end of Spark, errors in one line."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lognode.client.protocol.errors import InvalidArgument, LognodeError
from lognode.client.spark.cause import cause
from lognode.client.spark.java import check_java
from lognode.client.spark.jobs import remote
from lognode.client.spark.options import read_options
from lognode.client.spark.schema import check_libraries
from lognode.client.spark.session import Session

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has started Java itself."""
_OWN: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",  # the rows of a task must not depend on sizes
    # Spark's own default, INT96, has no statistics: a query of some hours would read all files.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
Job = Callable[[SparkSession, argparse.Namespace], None]


def parser(name: str, about: str, examples: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with the options of all jobs."""
    prog = f"python -m lognode.client.spark.jobs {name}"
    shown = "\n".join(f"  {prog} {example}" for example in examples)
    made = argparse.ArgumentParser(
        prog=prog, description=about, epilog=f"examples:\n{shown}", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("log", metavar="LOG", help="name of the log")
    made.add_argument(
        "--server", required=True, metavar="HOST:PORT[,...]", help="nodes of the cluster"
    )
    made.add_argument("--master", help="master of Spark: local[2], spark://host:7077 (local[*])")
    made.add_argument("--remote", metavar="sc://HOST:PORT",
                      help="server of Spark Connect that runs the job, instead of a master "
                           "(the environment variable SPARK_REMOTE)")  # fmt: skip
    made.add_argument(
        "--timeout", default="30s", metavar="AGE", help="time limit of each call (30s)"
    )
    made.add_argument("--lease", default="1h", metavar="AGE",
                      help="first time of the lease of the job's snapshot, which is renewed by "
                           "an hour while the job runs (1h)")  # fmt: skip
    return made


def run(
    options: argparse.Namespace, job: Job,
    check: Callable[[argparse.Namespace], None] | None = None,
) -> int:  # fmt: skip
    """Check the options, start Spark, and run the job; return the exit code: 0 done, 1 failed, 2
    usage error."""
    try:
        check_libraries()
        checked = read_options(source_options(options), streaming=None)
        if check is not None:
            check(options)
        server = remote.address(options.remote, options.master)
        if server is not None:
            remote.check(server, checked.timeout_s)
        elif _SUBMITTED not in os.environ:
            check_java()
        with Session(checked.servers, checked.log, timeout=checked.timeout_s) as session:
            session.log()
        with _spark(options, server) as spark:
            job(spark, options)
    except InvalidArgument as error:
        note(error.message)
        return 2
    except LognodeError as error:
        note(error.message)
        return 1
    except PySparkException as error:
        note(cause(error))
        return 1
    return 0


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the options of the source that follow from the command line."""
    return {
        "servers": options.server, "log": options.log, "timeout": options.timeout,
        "snapshotLease": options.lease,
    }  # fmt: skip


def load(spark: SparkSession, options: argparse.Namespace, more: Mapping[str, str]) -> Any:
    """Return the frame of a log, whose snapshot is held for as long as the driver lives."""
    renewed = source_options(options)
    del renewed["snapshotLease"]  # would fix the time
    return spark.read.format("lognode").options(**renewed, **more).load()


def note(text: str) -> None:
    """Print one line for the user, on stderr."""
    sys.stderr.write(f"lognode: {text}\n")


@contextmanager
def _spark(options: argparse.Namespace, server: str | None) -> Iterator[SparkSession]:
    """Return a new session: of the server of Spark Connect, of the running Spark, or of one that is
    started."""
    from lognode.client.spark.source import LognodeSource

    running = None if server is not None else SparkSession.getActiveSession()
    if server is not None:
        started = remote.session(server)
    elif running is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder: Any = SparkSession.builder
        builder = builder.appName(f"lognode {options.log}")
        if options.master or _SUBMITTED not in os.environ:
            builder = builder.master(options.master or "local[*]")
        bar = str(sys.stderr.isatty()).lower()
        started = builder.config("spark.ui.showConsoleProgress", bar).getOrCreate()
        started.sparkContext.setLogLevel("ERROR")
    spark = started if running is None else running.newSession()
    try:
        for name, value in _OWN.items():
            spark.conf.set(name, value)
        spark.dataSource.register(LognodeSource)
        yield spark
    finally:
        if running is None:
            spark.stop()
