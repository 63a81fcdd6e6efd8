"""CI's seeds: 40 of 20 simulated seconds, and 8 of whole nodes and clients.

They run at a low priority: tests of real nodes, which run beside them, have time limits, and leave
up to a third of the cores idle while they wait. Both tests are in this file so that one worker runs
them, one after the other, and the other workers have time for tests of real nodes.

LOGNODE_SIM_SEEDS=A..B and LOGNODE_WHOLE_SEEDS=A..B run other seeds; a failing seed is replayed with
`lognode-chaos sim [--whole] --seed N --trace`. docs/testing.md tells what was run by hand.
"""

import os
import re
import subprocess
import sys

import pytest

SEEDS = os.environ.get("LOGNODE_SIM_SEEDS", "0..40")
WHOLE_SEEDS = os.environ.get("LOGNODE_WHOLE_SEEDS", "56..64")  # 60 draws `local`, as few do
JOINS_PER_SEED_MIN = 0.1
LONGEST_S = 2_400
pytestmark = [pytest.mark.slow, pytest.mark.timeout(LONGEST_S + 10)]


def sums_of(*arguments: str) -> dict[str, float]:
    """Run the simulator, which must find nothing; return the sums that it prints at the end."""
    done = subprocess.run(
        ["nice", "-n", "10", sys.executable, "-m", "lognode.chaos.main", "sim", *arguments],
        capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip
    bad = [line for line in done.stdout.splitlines() if not re.match(r"seed=\d+ (ok|valid)", line)]
    assert done.returncode == 0, "\n".join(bad[:200]) + done.stderr[-2_000:]
    print(bad[-1])
    return {name: float(count) for name, count in re.findall(r"(\w+)=([\d.]+)", bad[-1])}


def test_S1_to_S9_S11_and_L2_hold_in_simulation() -> None:
    drawn = sums_of("--seeds", SEEDS)
    # 3 of 300 seeds had one before ranges changed all the time in some.
    assert drawn["joins"] >= JOINS_PER_SEED_MIN * drawn["seeds"]


def test_S1_to_S11_and_L2_hold_for_whole_nodes_and_clients() -> None:
    drawn = sums_of("--whole", "--seeds", WHOLE_SEEDS, "--jobs", str(os.cpu_count() or 1))
    assert drawn["elections"] >= drawn["seeds"]
    assert drawn["changes"] >= 0.3 * drawn["seeds"]
    assert drawn["thin"] <= 0.3 * drawn["seeds"]
