"""The project as it is installed: a wheel, in an environment that has nothing of the checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from spark_logs import entries, filled

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.by_hand]
ROOT = Path(__file__).resolve().parents[2]
_NOT_OF_IT = shutil.ignore_patterns(
    ".*", "tests", "scripts", "docs", "build", "*.egg-info", "__pycache__"
)
_READ = """
import json, sys
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.ui.showConsoleProgress", "false").getOrCreate())
frame = spark.read.format("lognode").option("servers", sys.argv[1]).option("log", "wheel").load()
found = frame.selectExpr("count(*)", "sum(seq)").first()
import lognode, pyspark_lognode
print(json.dumps([list(found), lognode.__file__, pyspark_lognode.__file__]))
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Where nothing says where the checkout is; what it printed."""
    python = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    around = {name: value for name, value in os.environ.items() if name not in python}
    around.update(SPARK_LOCAL_IP="127.0.0.1")
    if Path(command[0]).name == "python":
        around["PYSPARK_PYTHON"] = str(command[0])
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=around,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The Python of an environment with a wheel of this project, and the libraries of this one."""
    copied, environment = tmp_path / "copied", tmp_path / "environment"
    shutil.copytree(ROOT, copied, ignore=_NOT_OF_IT)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    offline = ("--no-deps", "--no-index")
    run(*pip, "wheel", *offline, "--no-build-isolation", "-w", tmp_path, copied, cwd=tmp_path)
    (wheel,) = tmp_path.glob("lognode-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    (libraries,) = environment.glob("lib/python*/site-packages")
    (libraries / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    run(*pip, "--python", python, "install", *offline, wheel, cwd=tmp_path)
    return python


@pytest.mark.usefixtures("java")
def test_a_wheel_is_all_that_spark_needs_to_find_the_source(
    installed: Path, cluster: testing.LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = filled(client, "wheel", 500)
    seqs = sum(seq for _, seq, _ in entries(log))
    read = tmp_path / "read.py"
    read.write_text(_READ)
    said = run(installed, read, cluster.servers, cwd=tmp_path)
    found, *places = json.loads(said.splitlines()[-1])
    assert found == [500, seqs]
    for place in places:
        assert Path(place).is_relative_to(installed.parents[1]), place
