"""A schedule replays a run by itself, and a failing one shrinks to the faults that matter."""

from pathlib import Path

import pytest

from lognode.chaos import main as command
from lognode.chaos.sim.faults import Fault
from lognode.chaos.sim.options import Options
from lognode.chaos.sim.runner import INVALID, VALID, Plan
from lognode.chaos.sim.shrink import Case, shrink
from lognode.chaos.sim.world import Outcome, run_seed


def _drawn(plan: Plan, seed: int) -> tuple[Outcome, Case]:
    outcome = run_seed(seed, plan.options(seed))
    schedule = tuple(Fault.from_json(fault) for fault in outcome.schedule)
    return outcome, Case(seed, plan.options(seed), schedule)


@pytest.mark.slow
def test_a_drawn_run_replays_exactly_from_its_schedule(tmp_path: Path) -> None:
    plan = Plan(0, 1000, Options())
    for seed in (3, 11, 57):
        outcome, case = _drawn(plan, seed)
        assert case.run().trace == outcome.trace, f"seed {seed}"
        case.save(tmp_path / "case.json")
        assert Case.load(tmp_path / "case.json") == case
    assert any(fault.nodes for fault in case.schedule)


@pytest.mark.slow
def test_a_failing_schedule_shrinks_to_a_few_faults_that_still_fail() -> None:
    # Hole 16: votes are counted per message. It takes an election while messages are doubled.
    base = Options(
        nodes=5, faults=("kill", "partition"), drop=0.4, duplicate=0.6, opened=frozenset({16})
    )
    plan = Plan(0, 1, base, pick_faults=False, pick_nodes=False)
    for seed in range(20, 80):  # 28 is the first such seed
        outcome, case = _drawn(plan, seed)
        if outcome.violation is not None and len(case.schedule) >= 6:
            break
    else:
        pytest.fail("no seed fails after six faults")
    smaller = shrink(case)
    assert smaller is not None
    assert len(smaller.schedule) <= len(case.schedule) // 2
    assert smaller.options.clients <= case.options.clients
    assert (smaller.run().violation or "").startswith(smaller.violation.partition(":")[0])
    # One-minimal: none of what is left can be left out.
    for left_out in range(len(smaller.schedule)):
        fewer = smaller.schedule[:left_out] + smaller.schedule[left_out + 1 :]
        again = Case(case.seed, smaller.options, fewer).run()
        assert again.violation is None or not again.violation.startswith("election")


def test_a_run_without_a_violation_does_not_shrink() -> None:
    assert shrink(_drawn(Plan(0, 9, Options()), 3)[1]) is None


def test_the_command_line_saves_replays_and_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.main(["sim", "--seed", "3", "--save", "drawn.json"]) in (VALID, INVALID)
    drawn = capsys.readouterr().out.split(" | ")[0]
    assert command.main(["sim", "--replay", "drawn.json"]) in (VALID, INVALID)
    assert capsys.readouterr().out.split(" | ")[0] == drawn
    assert command.main(["sim", "--seed", "3", "--open-holes", "5", "--shrink"]) == INVALID
    told = capsys.readouterr().out
    assert "--replay sim-3.json --trace" in told
    assert command.main(["sim", "--replay", "sim-3.json"]) == INVALID


def test_a_malformed_schedule_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in ("{", "[]", '{"seed": 1}', '{"seed": 1, "options": {}, "faults": 3}'):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(SystemExit) as refused:
            command.main(["sim", "--replay", str(tmp_path / "bad.json")])
        assert refused.value.code == 2
    assert "error:" in capsys.readouterr().err
