"""What users run first: the demo and the benchmark, in full and in short."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lognode import Unavailable, testing
from lognode.node.dev import check_free

pytestmark = pytest.mark.cluster
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def run(script: str, *arguments: str, port: int | None = None) -> str:
    environment = {**os.environ, "LOGNODE_DEMO_PORT": str(port or 4600)}
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        capture_output=True, text=True, timeout=300, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def free_port_block(count: int) -> int:
    """The first of `count` ports in a row that nobody has."""
    while True:
        first = testing.free_ports(1)[0]
        try:
            for port in range(first, first + count):
                check_free(f"127.0.0.1:{port}")
        except Unavailable:
            continue
        return first


def test_S1_S2_S4_S8_L1_the_demo_holds_what_it_says() -> None:
    out = run("demonstration.py", port=free_port_block(6))
    checked = out.split("Checked:")[1]
    assert checked.count("[ok]") == 6
    assert "all 4,044 histories equal the file's, in order" in checked
    assert "the same import under the same name adds nothing" in checked


def test_a_short_benchmark_prints_figures(tmp_path: Path) -> None:
    json_path = tmp_path / "figures.json"
    out = run(
        "bench", "all", "--seconds", "0.5", "--peers", "", "--data", str(tmp_path),
        "--keys", "1000", "--json", str(json_path),
    )  # fmt: skip
    figures = json.loads(json_path.read_text())
    workloads = [result["workload"] for result in figures["results"]]
    assert workloads == ["append_many(1000)", "append at 100/s", "poll one key (32)"]
    for result in figures["results"]:
        assert result["records"] > 0
        assert 0 < result["p50_ms"] <= result["p99_ms"]
        assert result["workload"] in out
    assert figures["environment"]["cores"] == os.cpu_count()
