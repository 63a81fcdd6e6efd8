"""Verdicts over many seeds, and the command line of the simulator."""

import json

import pytest

from lognode.chaos import main as command
from lognode.chaos.sim.command import plan_of
from lognode.chaos.sim.options import FAULTS, HAVING, Options, swarm
from lognode.chaos.sim.runner import INVALID, UNKNOWN, VALID, Plan, Summary
from lognode.chaos.sim.world import Outcome


def _summary(planned: int, *outcomes: Outcome) -> Summary:
    summary = Summary(planned)
    for outcome in outcomes:
        summary.add(outcome)
    return summary


def _outcome(acked: int = 50, elections: int = 2, violation: str | None = None) -> Outcome:
    return Outcome(1, "", acked=acked, elections=elections, violation=violation)


def test_the_verdict_needs_all_seeds_and_something_that_happened() -> None:
    assert _summary(2, _outcome(), _outcome()).verdict()[0] == VALID
    assert _summary(2, _outcome()).verdict()[0] == UNKNOWN
    assert _summary(0).verdict()[0] == UNKNOWN
    assert _summary(2, _outcome(acked=39), _outcome(acked=0)).verdict()[0] == INVALID
    assert _summary(2, _outcome(elections=1), _outcome(elections=0)).verdict()[0] == INVALID
    assert _summary(2, _outcome(), _outcome(violation="S1: gone")).verdict()[0] == INVALID


def test_swarm_draws_a_subset_from_the_seed_alone() -> None:
    drawn = [swarm(seed, Options(), pick_faults=True, pick_nodes=True) for seed in range(200)]
    assert drawn == [swarm(s, Options(), pick_faults=True, pick_nodes=True) for s in range(200)]
    assert {options.nodes for options in drawn} == {3, 5}
    for fault in FAULTS:
        share = sum(fault in options.faults for options in drawn) / len(drawn)
        assert 0.2 < share < 0.6, fault
    fixed = swarm(1, Options(nodes=5, faults=("kill",)), pick_faults=False, pick_nodes=False)
    assert (fixed.nodes, fixed.faults) == (5, ("kill",))


def test_a_plan_survives_its_own_command_line() -> None:
    for base, picks in ((Options(), True), (Options(nodes=5, faults=("kill", "power")), False)):
        having = "consumers" if picks else None
        plan = Plan(3, 9, base, pick_faults=picks, pick_nodes=picks, having=having)
        parsed = command.build_parser().parse_args(["sim", *plan.to_args()])
        assert plan_of(parsed) == plan


@pytest.mark.parametrize("having", HAVING)
def test_a_plan_runs_only_the_seeds_that_draw_what_it_wants(having: str) -> None:
    plan = Plan(0, 100, Options(), having=having)
    assert 0 < len(plan.seeds) < 100
    for seed in range(100):
        assert bool(getattr(plan.options(seed), having)) == (seed in plan.seeds)


def test_one_seed_prints_its_options_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    code = command.main(["sim", "--seed", "4", "--seconds", "8", "--jobs", "1"])
    out = capsys.readouterr().out
    assert code in (VALID, INVALID)
    assert out.startswith("seed=4 ok ")
    assert "nodes=" in out
    assert "faults=" in out


def test_a_worker_writes_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["sim", "--seeds", "0..4", "--seconds", "6", "--worker", "1/2"]) == VALID
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [1, 3]


@pytest.mark.parametrize(
    "arguments",
    [["--seeds", "5"], ["--seeds", "7..7"], ["--seeds", "-1..3"], ["--seeds", "a..b"], [],
     ["--seed", "1", "--seeds", "0..2"], ["--seed", "1", "--faults", "flood"],
     ["--seed", "1", "--nodes", "4"], ["--seed", "1", "--open-holes", "x"]],
)  # fmt: skip
def test_bad_arguments_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(["sim", *arguments])
    assert refused.value.code == 2
    assert "error:" in capsys.readouterr().err
