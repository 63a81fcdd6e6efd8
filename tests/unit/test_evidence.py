"""docs/evidence.md: a row for each promise and target, and each thing that it names exists. So do
the tests that docs/spark.md names beside Kafka's connector."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from benchmarks.main import main as bench

from lognode.chaos.main import main as chaos

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "evidence.md").read_text("utf-8")
PROMISES = {
    *(f"S{n}" for n in range(1, 13)), *(f"L{n}" for n in range(1, 5)),
    *(f"X{n}" for n in range(1, 9)), *(f"G{n}" for n in range(1, 8)),
}  # fmt: skip
TARGETS = {*(f"P{n}" for n in range(1, 13)), "memory", "reads", "start"}
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if re.match(r"\| (?:[SLXGPC]\d+|memory|reads|start)\b", line)
]
BESIDE_KAFKA = (ROOT / "docs" / "spark.md").read_text("utf-8").split("## Beside Kafka")[1]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE + BESIDE_KAFKA)))


@cache
def held_by(path: Path) -> dict[str, bool]:
    """The tests of a file by name, and whether each is by hand."""
    body = ast.parse(path.read_text("utf-8")).body
    whole = any(
        isinstance(node, ast.Assign) and "by_hand" in ast.unparse(node)
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    )
    return {
        node.name: whole
        or any(ast.unparse(each).endswith(".by_hand") for each in node.decorator_list)
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_each_promise_and_target_has_one_row() -> None:
    ids = [row[0].split()[0] for row in ROWS]
    assert sorted(ids) == sorted({*ids}), "a row stands there twice"
    assert {each for each in ids if not re.match(r"C\d", each)} == PROMISES | TARGETS


@pytest.mark.parametrize("row", [row for row in ROWS if row[0].split()[0] in PROMISES],
                         ids=lambda row: row[0].split()[0])  # fmt: skip
def test_each_promise_has_tests_that_carry_its_name_or_files_that_security_names(
    row: list[str],
) -> None:
    promise = row[0].split()[0]
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row[1])
    assert named
    if promise.startswith("X"):
        page = (ROOT / "docs" / "security.md").read_text("utf-8")
        (told,) = re.findall(rf'^\| <a id="{promise}"></a>.*', page, re.MULTILINE)
        listed = any(f"`{Path(path).stem}`" in told for path, _ in named)
        assert listed or any(promise in test for _, test in named)
    else:
        assert all(carries(test, promise) for _, test in named), named


def carries(test: str, promise: str) -> bool:
    """Whether the name of a test has the promise, alone or within a span: `S1_to_S9`."""
    letter, number = promise[0], int(promise[1:])
    spans = re.findall(rf"{letter}(\d+)_to_{letter}(\d+)", test)
    alone = re.search(rf"_{promise}(?:_|$)", test) is not None
    return alone or any(int(first) <= number <= int(last) for first, last in spans)


@pytest.mark.parametrize("name", NAMED)
def test_each_named_test_exists_and_runs_in_ci(name: str) -> None:
    path, _, test = name.partition("::")
    assert (ROOT / path).is_file()
    found = held_by(ROOT / path)
    assert found, "a file without tests"
    if test:
        assert test in found
        assert not found[test], "the row says CI, and the test runs by hand"
    else:
        assert not all(found.values()), "the row says CI, and all tests of the file run by hand"


def test_each_row_beside_kafka_names_a_test() -> None:
    rows = [line for line in BESIDE_KAFKA.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    assert not [row for row in rows if "`tests/" not in row]


def test_each_named_mutant_exists() -> None:
    names = re.findall(r"`([a-z-]+)`", " ".join(re.findall(r"mutants? (`.*?`)(?= \|)", PAGE)))
    assert len(names) >= 8
    files = {path.stem for path in (ROOT / "tests" / "mutants").rglob("*") if path.is_file()}
    assert not set(names) - files


def test_each_link_leads_to_a_heading() -> None:
    for page, anchor in re.findall(r"\]\(([\w/.-]+\.md)#([\w-]+)\)", PAGE):
        text = (ROOT / "docs" / page).read_text("utf-8")
        headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
        assert anchor in slugs, f"{page}#{anchor}"


def test_each_campaign_that_a_row_names_has_a_row() -> None:
    known = {row[0] for row in ROWS if row[0].startswith("C")}
    named = {
        each
        for row in ROWS
        if row[0].split()[0] in PROMISES
        for each in re.findall(r"\bC\d+\b", row[3] if len(row) > 3 else "")
    }
    assert named <= known
    for row in ROWS:
        for first, last in re.findall(r"\bC(\d+) to C(\d+)\b", " ".join(row)):
            assert {f"C{n}" for n in range(int(first), int(last) + 1)} <= known


COMMANDS = [
    command
    for row in ROWS
    for command in re.findall(
        r"`((?:lognode-chaos|scripts/bench|scripts/fuzz) [^`]+)`", " ".join(row)
    )
]


def is_shown(flag: str, text: str) -> bool:
    """Whether the help of a command has the flag as a whole word."""
    return re.search(rf"(?<![\w-]){flag}(?![\w-])", text) is not None


@pytest.mark.parametrize("command", [each for each in COMMANDS if "lognode-chaos" in each])
def test_each_campaign_is_a_command_that_parses(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        chaos([*shlex.split(command)[1:], "--help"])
    assert ended.value.code == 0
    flags = set(re.findall(r"(?<= )--?[a-z][a-z-]*", command))
    shown = capsys.readouterr().out
    assert not [flag for flag in flags if not is_shown(flag, shown)]


def test_each_benchmark_exists_and_knows_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    shown: dict[str, str] = {}
    for command in [each for each in COMMANDS if each.startswith("scripts/bench")]:
        name = command.split()[1]
        if name not in shown:
            with pytest.raises(SystemExit) as ended:
                bench([name, "--help"])
            assert ended.value.code == 0
            shown[name] = capsys.readouterr().out
        flags = re.findall(r" (--[a-z-]+)", command)
        assert not [flag for flag in flags if not is_shown(flag, shown[name])]
