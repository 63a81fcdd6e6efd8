"""S12, x28: a segment file that rotted after it was hashed is damage, never wrong data, a hang or
the end of the process. LOGNODE_FUZZ_SEEDS says how many seeds (default 150)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
SEEDS = os.environ.get("LOGNODE_FUZZ_SEEDS", "150")


@pytest.mark.slow
def test_S12_x28_any_other_bytes_below_the_hash_are_damage_or_what_was_written(
    tmp_path: Path,
) -> None:
    """A process of its own, since each seed is a fork of it."""
    done = subprocess.run(
        [sys.executable, SUPPORT / "segment_fuzz.py", tmp_path, "0", SEEDS],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "found" in done.stdout
    assert "sound" in done.stdout
