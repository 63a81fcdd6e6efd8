"""Programs that were not written here against the port for Kafka clients: see scripts/judge."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.cluster

JUDGE: Final = Path(__file__).resolve().parents[2] / "scripts" / "judge"


def verdict(name: str, work: Path, *needed: str) -> str:
    """The last line of a run that needs programs of other packages."""
    missing = [each for each in needed if shutil.which(each) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"{missing} is missing; .ci/run installs the packages")
    if missing:
        pytest.skip(f"{missing} is not installed")
    command = [sys.executable, str(JUDGE), name, "--work", str(work)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def test_a_program_with_kafkajs(tmp_path: Path) -> None:
    assert " 6 passed, 0 failed," in verdict("kafkajs", tmp_path, "node", "npm")
