"""Installed, and nothing else: the wheel in an empty environment; what is missing is named."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pyspark
import pytest
import wheels
from pyspark.sql import SparkSession
from spark_logs import filled

import lognode
from lognode import testing

ROOT = Path(__file__).resolve().parents[2]
READS = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("lognode").option("servers", sys.argv[1]).option("log", "wheel").load()
print("rows", frame.count())
import lognode
print("from", lognode.__file__)
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_the_wheel_alone_is_found_by_spark_without_being_registered(
    spark: SparkSession, cluster: testing.LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    filled(client, "wheel", 700)
    venv.create(tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    (site,) = (tmp_path / "env").glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheels.built(tmp_path)) as archive:
        archive.extractall(site)
    # The libraries that it depends on are those of this Python; its own packages come first.
    (site / "libraries.pth").write_text(f"{Path(pyspark.__file__).parents[1]}\n")
    (tmp_path / "reads.py").write_text(READS)
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    done = subprocess.run(
        [str(python), str(tmp_path / "reads.py"), cluster.servers], text=True, check=False,
        env={**kept, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}, cwd=tmp_path,
        timeout=180, capture_output=True,
    )  # fmt: skip
    assert "rows 700" in done.stdout, done.stdout + done.stderr
    assert f"from {site}/lognode/" in done.stdout


def export(environment: dict[str, str], tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    """Try to run a job; nothing answers at that port."""
    before = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    path = [environment.pop("first", ""), str(ROOT.parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "lognode.client.spark.jobs", "export", "flights", "--server",
         "127.0.0.1:1", "--timeout", "1s", "--out", str(tmp_path / "out")],
        env={**before, "PYTHONPATH": os.pathsep.join(filter(None, path)), **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PATH": "/nowhere"}, "there is no Java; Spark needs Java 17 or newer"),
        ({"JAVA_HOME": "/nowhere"}, "there is no Java in /nowhere; Spark needs Java 17 or newer"),
    ],
)
def test_without_java_one_line_says_so(
    tmp_path: Path, environment: dict[str, str], said: str
) -> None:
    done = export(dict(environment), tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert said in done.stderr


def test_an_old_java_is_named(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    done = export({"JAVA_HOME": str(tmp_path)}, tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "Java is 11; Spark needs Java 17 or newer" in done.stderr


@pytest.mark.parametrize(
    ("name", "version", "needs"),
    [
        ("pandas", "3.0.1", "pandas>=2,<3"),
        ("pyspark", "3.5.8", "pyspark>=4.2"),
        ("pyarrow", "17.0.0", "pyarrow>=18"),
    ],
)
def test_a_library_that_does_not_fit_is_named(
    tmp_path: Path, name: str, version: str, needs: str
) -> None:
    """By what it says of itself."""
    info = tmp_path / "first" / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    done = export({"first": str(tmp_path / "first")}, tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert f"{name} is {version}; lognode's data source needs {needs}" in done.stderr


def test_a_job_has_no_option_for_a_secret() -> None:
    from lognode.client.spark.jobs.cli import parser

    words = parser("export", "", []).format_help().lower()
    assert not [word for word in ("password", "secret", "token", "credential") if word in words]
