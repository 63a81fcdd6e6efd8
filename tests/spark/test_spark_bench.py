"""`scripts/bench spark`, in short: what Spark reads is checked, and the tasks' times add up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.by_hand]
BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


@pytest.mark.usefixtures("java")
def test_P10_the_benchmark_of_spark_is_quick_and_checks_what_it_reads(tmp_path: Path) -> None:
    json_path = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, str(BENCH), "spark", "--quick", "--data", str(tmp_path),
         "--json", str(json_path)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(json_path.read_text())["results"]
    assert row["verified"] == 20_000
    assert row["tasks"] == 4
    assert row["sums"]["pages"] >= 4
    assert row["sums"]["batches"] >= 4
    shares = [row[f"{part} %"] for part in ("nodes", "columns", "jvm", "rest")]
    assert sum(shares) == pytest.approx(100)
    assert all(share >= 0 for share in shares)
    assert row["cpu_columns s"] > 0
