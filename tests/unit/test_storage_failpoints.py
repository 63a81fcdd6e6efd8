"""Recovery after kill -9 at every step of WAL, segment and meta writing (issue 2, item 5)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        pytest.param(("sampled",), 60, id="sampled"),
        pytest.param((), 140, id="all", marks=pytest.mark.by_hand),
    ],
)
def test_S1_S2_x1_x3_x8_x10_x15_x16_x2_10_killed_at_every_step_of_storage(
    tmp_path: Path, arguments: tuple[str, ...], least: int
) -> None:
    """Prints the list of failpoints. A process of its own, since each one is a fork of it."""
    done = subprocess.run(
        [sys.executable, SUPPORT / "storage_failpoints.py", tmp_path, *arguments],
        capture_output=True, text=True, timeout=900,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    lines = [line for line in done.stdout.splitlines() if "not reached" not in line]
    for step in (
        "create wal/spare", "pwritev wal/", "fdatasync wal/spare", "fdatasync wal/wal", "fsync wal",
        "rename wal/wal-0000000001 to wal/spare", "rename wal/spare-0000000001 to wal/wal",
        "unlink wal/spare",
        "lmdb commit tmp/build", "fsync tmp/build", "replace tmp/build", "fsync files",
        "lmdb commit meta.mdb", "unlink files/",
        "lmdb commit tmp/merge", "fsync tmp/merge", "replace tmp/merge",
    ):  # fmt: skip
        assert any(step in line for line in lines), step
    assert len(lines) > least
