"""The whole mode: real daemons and SDK clients in one process; a seed determines a run.

`test_sim_seeds.py` runs CI's seeds. Seeds run at a low priority, since tests of real nodes, which
run beside them, have time limits.
"""

import gc
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from types import CoroutineType

import pytest

from lognode.chaos.nemeses import Package
from lognode.chaos.plan import SIMULATED
from lognode.chaos.whole import faults, runner
from lognode.chaos.whole.additions import Additions
from lognode.chaos.whole.cut_off import cut_off_follow
from lognode.chaos.whole.options import FAULTS, Choice
from lognode.chaos.whole.run import run_seed
from lognode.chaos.workloads.groups import GroupWorkload
from lognode.chaos.workloads.parts import DEAD
from lognode.client.protocol.records import decode_batch, encode_batch
from lognode.node.access.access import Accesses
from lognode.node.audit.own_appends import OwnAppends
from lognode.node.serving import view_service
from lognode.node.upkeep.segment_repair import SegmentRepair
from lognode.partitions.model import Descriptor
from lognode.statemachine import acked_appends

JOBS = str(os.cpu_count() or 1)
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _no_remains() -> Iterator[None]:
    """Close the coroutines of the nodes that runs have ended.

    Each coroutine complains that its event loop is gone. Collected later, these complaints would
    fail other tests of this process. The first collection ends what the second one frees.
    """
    yield
    gc.collect()
    gc.collect()


def sim(*arguments: str, hash_seed: str = "0") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["nice", "-n", "5", sys.executable, "-m", "lognode.chaos.main", "sim", "--whole",
         *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True, text=True, timeout=1_800, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.by_hand) for seed in (39, 56)]
)
def test_a_seed_replays_exactly_here_and_in_processes_with_other_hash_seeds(seed: int) -> None:
    # With TLS, HTTP and lost nodes; with tokens, TLS and `lognode verify`.
    plan = Choice().plan(seed)
    first, again = run_seed(plan), run_seed(plan)
    assert (first.trace, first.turns, first.ok) == (again.trace, again.turns, again.ok)
    assert first.verdict == "valid", first.why
    assert first.turns > 1_000
    for hash_seed in ("1", "4242"):
        done = sim("--seed", str(seed), hash_seed=hash_seed)
        assert re.findall(r"trace=(\w+)", done.stdout) == [first.trace], done.stderr


@pytest.mark.slow
def test_garbage_of_the_process_does_not_change_the_run() -> None:
    """A node collected garbage in its first second, after ten collections by the process."""
    plan = Choice().plan(6)
    first = run_seed(plan)
    for _ in range(20):
        gc.collect(1)  # 20 collections count for the oldest objects
    assert gc.get_count()[2] >= 20
    assert run_seed(plan).trace == first.trace


@pytest.mark.slow
def test_a_run_leaves_nothing_of_its_nodes_in_memory() -> None:
    """The library kept a clock, and the clock kept all nodes."""
    run_seed(Choice("append", ()).plan(0))
    gc.collect()
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, CoroutineType)]
    assert [each.__qualname__ for each in found if each.__qualname__ == "_Link._keep"] == []


@pytest.mark.slow
def test_printing_the_trace_does_not_change_the_run() -> None:
    lines: list[str] = []
    plan = Choice("append", ("kill",)).plan(3)
    silent, printed = run_seed(plan), run_seed(plan, lines.append)
    assert silent.trace == printed.trace
    assert len(lines) > 50
    assert all(re.match(r"\d+\.\d{6} \S+ ", line) for line in lines)


@pytest.mark.slow
def test_L1_a_follow_leaves_a_leader_that_is_cut_off_from_its_peers() -> None:
    # Without the rule none of the entries come (tests/mutants/follow-without-leader.patch).
    for seed in range(3):
        assert cut_off_follow(seed) is None, f"seed {seed}"


@pytest.mark.slow
def test_X5_a_node_that_keeps_the_connections_of_ended_tokens_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Accesses, "look", lambda _: None)
    plan = replace(Choice("append", ("slow",)).plan(3), nodes=3, rate=10.0, time_limit_s=9.0)
    outcome = run_seed(plan, additions=Additions(tokens=True))
    assert outcome.verdict == "invalid"
    assert "ended-token" in outcome.why


@pytest.mark.slow
@pytest.mark.parametrize("name", ["seen_by_group", "seen_by_cursor"])
def test_G7_a_node_that_says_seen_of_everything_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(view_service, name, lambda *_: True)
    plan = replace(Choice("view", ("slow",)).plan(3), nodes=3, rate=40.0, time_limit_s=6.0)
    outcome = run_seed(plan, additions=Additions())
    assert outcome.verdict == "invalid"
    assert "seen-too-soon" in outcome.why


def whys_of_groups(on_dead: str) -> Iterator[str]:
    """Run calm groups that do this with entries that failed too often; yield what is wrong."""
    plans = (
        Choice("group", ("slow",)).plan(seed)
        for seed in range(99)
        if GroupWorkload(random.Random(f"{seed}/workload")).on_dead == on_dead
    )
    for plan in islice(plans, 5):
        calm = replace(plan, nodes=3, rate=60.0, time_limit_s=6.0)
        outcome = run_seed(calm, additions=Additions())
        if outcome.verdict == "invalid":
            yield outcome.why


@pytest.mark.slow
def test_S8_a_node_that_appends_without_the_acknowledgements_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acked_appends, "acknowledge", lambda *_: None)
    assert any("again" in why or "acked-twice" in why for why in whys_of_groups("park"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("copy", "found"), [("lost", ("out-of-order", "passed", "undelivered")), ("twice", ("twice",))]
)
def test_G2_S8_a_node_that_copies_dead_letters_never_or_twice_is_found(
    monkeypatch: pytest.MonkeyPatch, copy: str, found: tuple[str, ...]
) -> None:
    send = OwnAppends.send

    async def wrong(self: OwnAppends, range_: Descriptor, batch: bytes) -> None:
        if copy == "twice":
            letters = decode_batch(batch)
            again = encode_batch(
                letters.keys, letters.values(), producer=0, epoch=0, low=1, numbers=1,
                headers=letters.headers(),
            )  # fmt: skip
            await send(self, range_, batch)
            await send(self, range_, again)

    monkeypatch.setattr(OwnAppends, "send", wrong)
    whys = whys_of_groups(f"dead_letter:{DEAD}")
    assert any(name in why for why in whys for name in found)


@pytest.mark.slow
def test_S12_a_node_that_does_not_repair_the_damage_that_its_start_finds_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SegmentRepair, "begin", lambda _: None)
    plan = replace(Choice("append", ("slow",)).plan(3), nodes=3, rate=10.0, time_limit_s=4.0)
    outcome = run_seed(plan, additions=Additions(removal=True, rot=True))
    assert outcome.verdict == "invalid"
    assert " rot" in outcome.why


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, pytest.param(14, marks=pytest.mark.by_hand)])
def test_no_workload_depends_on_the_order_of_hashes(count: int) -> None:
    """14 seeds have all workloads, 3 seeds have two."""
    seeds = f"0..{count}"
    runs = [sim("--seeds", seeds, "--jobs", JOBS, hash_seed=seed).stdout for seed in "12"]
    found = [dict(re.findall(r"^seed=(\d+) .* trace=(\w+) ", run, re.MULTILINE)) for run in runs]
    assert len(found[0]) == count
    assert found[0] == found[1]
    if count == 14:
        assert {Choice().plan(seed).workload for seed in range(count)} == set(SIMULATED)


def test_all_listed_faults_exist() -> None:
    assert set(faults.PACKAGES) == set(FAULTS)
    made: list[Package] = [make() for make in faults.PACKAGES.values()]
    assert [package.name for package in made] == list(faults.PACKAGES)


def test_runs_in_which_nothing_happened_prove_nothing() -> None:
    sums = runner.Sums(2)
    assert sums.verdict()[0] == "unknown"
    quiet = run_seed(Choice("append", ()).plan(0))
    sums.add(quiet)
    sums.add(quiet)
    assert sums.verdict() == ("unknown", "unknown: only 0 faults took place")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--seed", "1", "--shrink"], "--shrink is an option of the fast mode"),
        (["--seed", "1", "--nodes", "5"], "--nodes is an option of the fast mode"),
        (["--seed", "1", "--faults", "torn"], "unknown fault: torn"),
    ],
)
def test_options_of_the_fast_mode_are_refused(given: list[str], told: str) -> None:
    done = sim(*given)
    assert done.returncode == 2
    assert told in done.stderr
