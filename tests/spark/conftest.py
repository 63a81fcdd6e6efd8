"""A Spark session and a cluster of real processes, shared by the tests of this folder."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lognode
from lognode import testing

ROOT = Path(__file__).resolve().parents[2]
JAVA_MIN = 17


def java_version() -> int:
    """The major version of `java`, 0 without one."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return 0
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two tasks at once, each tried three times. Workers are plain Python processes, which find
    lognode by PYTHONPATH and the data source by the name of its module."""
    if java_version() < JAVA_MIN:
        why = f"Spark needs Java {JAVA_MIN} or newer (Debian: openjdk-17-jre-headless)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
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
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.LocalCluster]:
    """Three nodes for all tests of a file; each test takes logs of its own."""
    flags = ("--balance", "off")
    with testing.cluster(tmp_path_factory.mktemp("three"), 3, flags=flags) as made:
        testing.wait_healthy(made)
        yield made


@pytest.fixture
def client(cluster: testing.LocalCluster) -> Iterator[lognode.Client]:
    """Of that cluster."""
    with lognode.Client(cluster.servers, timeout=30) as made:
        yield made
