"""The track record: each row a scenario against real nodes, or tests that are named.

Live scenarios run one at a time, each with a cluster of its own, by the command line that users
have: three clusters at once beside other tests had too few operations on a slow machine.
`LOGNODE_CHAOS_S` is how long each is under faults, 40 s by default.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from track_record import TRACK_RECORD, Row

ROOT = Path(__file__).parents[2]
LIVE = [
    pytest.param(row, id=row.name, marks=[pytest.mark.by_hand] if row.by_hand else [])
    for row in TRACK_RECORD
    if row.live
]
_AT_ONCE = 1
_SECONDS = os.environ.get("LOGNODE_CHAOS_S", "40")
_RATE = "50"


def _run(row: Row, store: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable, "-m", "lognode.chaos.main", "test", "--rate", _RATE, "--time-limit",
            _SECONDS, "--store", str(store), *row.live.split(),
        ],
        capture_output=True, text=True, timeout=600, env=environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, module_path: Path
) -> Iterator[dict[str, "Future[subprocess.CompletedProcess[str]]"]]:
    """All live scenarios that were selected, under way."""
    live = "test_S1_to_S11_L1_L2_hold_live["
    selected = {
        item.name.removeprefix(live).rstrip("]")
        for item in request.session.items
        if item.name.startswith(live)
    }
    store = module_path
    # A copy: pytest sets a variable for each test, and a process that is started in another thread
    # at that moment, with the environment that all share, is refused with EFAULT.
    environment = dict(os.environ)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = {
            row.name: pool.submit(_run, row, store, environment)
            for row in TRACK_RECORD
            if row.live and row.name in selected
        }
        yield found
        for run in found.values():
            run.cancel()


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("row", LIVE)
def test_S1_to_S11_L1_L2_hold_live(
    row: Row, runs: dict[str, "Future[subprocess.CompletedProcess[str]]"]
) -> None:
    done = runs[row.name].result()
    print(done.stdout, done.stderr)
    lacking = done.returncode == 2 and "cannot run on this machine" in done.stdout
    if lacking and os.environ.get("CI") != "true":
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0


@pytest.mark.parametrize("row", TRACK_RECORD, ids=lambda row: row.name)
def test_every_row_is_held_by_something_that_exists(row: Row) -> None:
    assert row.live or row.tests
    for name in row.tests:
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        assert function in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}, name
