"""The verbs of live tests: what they refuse, and how `test-all` goes on where it was."""

import json
from pathlib import Path
from typing import Any

import pytest

from lognode.chaos import commands
from lognode.chaos.main import build_parser, main
from lognode.chaos.plan import STANDARD, WORKLOADS, Plan


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["test", "--nemesis", "kill,typhoon"],
            "unknown nemesis: typhoon; the allowed names are none, ",
        ),
        (["test", "--rate", "0"], "'0' is not a number above 0"),
        (["test", "--time-limit", "soon"], "'soon' is not a number above 0"),
        (["test", "--test-count", "0"], "'0' is not a whole number from 1 to 10,000"),
        (["test", "-w", "bank"], "invalid choice: 'bank'"),
        (["test", "--source", "/nowhere"], "contains no package lognode"),
        (["test", "--earlier", "/nowhere"], "contains no package lognode"),
        (["test", "--nemesis", "kill,upgrade"], "the nemesis upgrade and --earlier DIR need each"),
        (["test", "--tier", "--secure"], "either a tier or --secure; leave one of them out"),
        (["test", "--local-retention-bytes", "0"], "--local-retention-bytes is 0; give 1 or more"),
        (["analyze", "/nowhere"], "is not the folder of a test"),
    ],
)
def test_an_impossible_test_is_refused_with_the_reason(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: Any = main(arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "names"),
    [("none", ()), ("", ()), ("kill+pause", ("kill", "pause")), ("kill,kill", ("kill",))],
)
def test_packages_are_named_with_commas_or_plus(text: str, names: tuple[str, ...]) -> None:
    assert commands._nemesis(text) == names


@pytest.mark.parametrize("verb", ["test", "test-all"])
def test_both_verbs_take_secure(verb: str) -> None:
    arguments = build_parser().parse_args([verb, "--secure"])
    plan = commands._plan(arguments, "append", ("kill",), 3, seed=1)
    assert (plan.secure, plan.name) == (True, "append-kill-3-secure")
    assert Plan.from_described(plan.described()) == plan


@pytest.mark.parametrize("given", [["--tier"], ["--nemesis", "kill,tier"]])
def test_the_nemesis_of_the_store_implies_a_tier(given: list[str]) -> None:
    arguments = build_parser().parse_args(["test", *given])
    plan = commands._plan(arguments, "append", arguments.nemesis, 3, seed=1)
    assert plan.tier
    assert plan.name.endswith("-3-tier")
    assert Plan.from_described(plan.described()) == plan


def _done(store: Path, commit: str) -> dict[str, Any]:
    """A `test-all.json` in which everything was valid."""
    row = {"verdict": "valid", "why": "", "counts": {"ok": 1234, "faults": 5}}
    names = [
        Plan(workload, commands._nemesis(nemesis), nodes).name
        for workload in WORKLOADS
        for nemesis in STANDARD
        for nodes in (3, 5)
    ]
    done = {"commit": commit, "tests": dict.fromkeys(names, row)}
    (store / "test-all.json").write_text(json.dumps(done))
    return done


def test_finished_tests_are_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = Plan().described()["commit"]
    done = _done(tmp_path, commit)
    assert len(done["tests"]) == 108
    assert main(["test-all", "--store", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.count("1,234 ok") == 108
    assert f"valid: 108 tests of commit {commit}" in said


def test_one_that_was_invalid_makes_all_of_it_invalid(tmp_path: Path) -> None:
    done = _done(tmp_path, Plan().described()["commit"])
    done["tests"]["set-none-5"]["verdict"] = "unknown"
    done["tests"]["set-none-3"] = done["tests"]["set-none-3"] | {"verdict": "invalid"}
    (tmp_path / "test-all.json").write_text(json.dumps(done))
    assert main(["test-all", "--store", str(tmp_path)]) == 1


def test_tests_of_another_commit_are_not_mixed_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _done(tmp_path, "abc")
    assert main(["test-all", "--store", str(tmp_path)]) == 2
    assert "is of commit abc" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["--secure"], ["--tier"]])
def test_a_test_of_kafka_clients_refuses_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str]
) -> None:
    assert main(["test", "-w", "kafka", "--store", str(tmp_path), *given]) == 2
    assert "the workload kafka has no --secure, --earlier and --tier" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_files_that_leave_the_disks_need_a_tier() -> None:
    arguments = build_parser().parse_args(["test", "--local-retention-bytes", "9000"])
    plan = commands._plan(arguments, "append", (), 3, seed=1)
    assert (plan.tier, plan.local_retention_bytes) == (True, 9000)
    assert plan.name.endswith("-3-tier-only")
    assert Plan.from_described(plan.described()) == plan
