"""CI's 2,000 seeds of 20 simulated seconds.

They run at a low priority, since tests of real nodes, which run beside them, have time limits.
LOGNODE_SIM_SEEDS=A..B runs others; a failing seed is replayed with
`lognode-chaos sim --seed N --trace`. docs/testing.md tells what was run by hand.
"""

import os
import re
import subprocess
import sys

import pytest

SEEDS = os.environ.get("LOGNODE_SIM_SEEDS", "0..2000")
JOINS_PER_SEED_MIN = 0.1


@pytest.mark.slow
def test_S1_to_S9_S11_and_L2_hold_in_simulation() -> None:
    done = subprocess.run(
        ["nice", "-n", "5", sys.executable, "-m", "lognode.chaos.main", "sim", "--seeds", SEEDS],
        capture_output=True, text=True, timeout=1_800, check=False,
    )  # fmt: skip
    bad = [line for line in done.stdout.splitlines() if not re.match(r"seed=\d+ ok", line)]
    assert done.returncode == 0, "\n".join(bad[:200]) + done.stderr[-2_000:]
    print(bad[-1])
    drawn = {name: float(count) for name, count in re.findall(r"(\w+)=([\d.]+)", bad[-1])}
    # 3 of 300 seeds had one before ranges changed all the time in some.
    assert drawn["joins"] >= JOINS_PER_SEED_MIN * drawn["seeds"]
