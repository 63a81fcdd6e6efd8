"""A Spark session and a cluster of real processes, shared by the tests of this folder."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lognode
from lognode import testing
from lognode.client.protocol.errors import Unsupported
from lognode.client.spark.java import check_java

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def java() -> None:
    """A Java that Spark can run on, or the tests that need one are skipped."""
    try:
        check_java()
    except Unsupported as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two tasks at once, each tried three times. Workers are plain Python processes, which find
    lognode by PYTHONPATH and the data source by the name of its module."""
    place = tmp_path_factory.mktemp("spark")
    shutil.copy(ROOT / "pyspark_lognode.py", place)
    before = dict(os.environ)
    path = [str(ROOT.parent), str(place), os.environ.get("PYTHONPATH", "")]
    os.environ.update(
        PYSPARK_PYTHON=sys.executable, PYTHONPATH=os.pathsep.join(filter(None, path)),
        SPARK_LOCAL_IP="127.0.0.1",
    )  # fmt: skip
    session = (
        SparkSession.builder.master("local[2, 3]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        # What is compiled here hardly runs a second time: without the optimising compiler a session
        # with its first queries takes 13 s of processor time instead of 20 s.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.local.dir", str(place))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[testing.LocalCluster]:
    """Three nodes for all tests of a file; each test takes logs of its own."""
    flags = ("--balance", "off")
    with testing.cluster(module_path, 3, flags=flags) as made:
        testing.wait_healthy(made)
        yield made


@pytest.fixture
def client(cluster: testing.LocalCluster) -> Iterator[lognode.Client]:
    """Of that cluster."""
    # A split first brings into files what is in memory, by builders that give way to all else: with
    # Spark and a writer at full speed on two busy cores that took 30 s.
    with lognode.Client(cluster.servers, timeout=120) as made:
        yield made
