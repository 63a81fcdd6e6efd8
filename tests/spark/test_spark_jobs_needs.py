"""What a job needs and is not there is named in one line, before Spark starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


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
        ({"PATH": "/nowhere"}, "PATH contains no java; Spark needs Java 17 or newer"),
        (
            {"JAVA_HOME": "/nowhere"},
            "but /nowhere/bin/java does not exist; Spark needs Java 17 or newer",
        ),
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
    assert "is Java 11; Spark needs Java 17 or newer" in done.stderr


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
