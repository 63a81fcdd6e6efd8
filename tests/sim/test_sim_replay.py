"""A seed and its options determine a run, byte for byte, in this process and in any other."""

import os
import re
import subprocess
import sys

import pytest

from lognode.chaos.sim.options import Options
from lognode.chaos.sim.runner import Plan
from lognode.chaos.sim.world import run_seed

PLAN = Plan(0, 1000, Options())


def test_a_seed_replays_exactly() -> None:
    for seed in (3, 57):
        first, again = (run_seed(seed, PLAN.options(seed)) for _ in range(2))
        assert first == again, f"seed {seed}"
        assert first.events > 500


def test_seeds_differ() -> None:
    traces = {run_seed(seed, PLAN.options(seed)).trace for seed in range(4)}
    assert len(traces) == 4


def test_printing_the_trace_does_not_change_the_run() -> None:
    lines: list[str] = []
    silent = run_seed(5, PLAN.options(5))
    printed = run_seed(5, PLAN.options(5), lines.append)
    assert silent == printed
    assert len(lines) > 500
    assert all(re.match(r"\d+\.\d{6} \S+ \S+ ", line) for line in lines)


@pytest.mark.slow
def test_other_processes_and_other_hash_seeds_give_the_same_trace() -> None:
    expected = {seed: run_seed(seed, PLAN.options(seed)).trace for seed in (7, 8)}
    for hash_seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-m", "lognode.chaos.main", "sim", "--seeds", "7..9", "--jobs", "1"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        found = dict(re.findall(r"^seed=(\d+) .* trace=(\w+) ", done.stdout, re.MULTILINE))
        assert {int(seed): trace for seed, trace in found.items()} == expected
