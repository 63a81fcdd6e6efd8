"""Documents that say what is: generated pages are current, links lead somewhere."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lognode
from lognode import testing

ROOT = Path(__file__).resolve().parents[2]
PROMISES = {*(f"S{n}" for n in range(1, 13)), *(f"L{n}" for n in range(1, 5)),
            *(f"G{n}" for n in range(1, 8))}  # fmt: skip
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_reference_is_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "reference"), "--check"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_reference_names_types_that_programs_can_import() -> None:
    page = (ROOT / "docs" / "reference-sdk.md").read_text("utf-8")
    part = page.split("\n## Types of parameters\n")[1].split("\n## ")[0]
    named = set(re.findall(r"^- `(\w+)`:", part, re.MULTILINE))
    assert {"Record", "GivenHeaders", "Start", "FollowStart"} <= named <= set(lognode.__all__)
    shown = page.split("\n## lognode.testing\n")[1]
    assert all(f"`{name}(" in shown or f"`class {name}`" in shown for name in testing.__all__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_the_readme_commands_exist() -> None:
    commands = re.findall(r"^scripts/\w+", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert commands == ["scripts/demo", "scripts/test"]
    for command in commands:
        assert (ROOT / command).stat().st_mode & 0o100


def test_every_promise_has_a_test_that_names_it() -> None:
    named: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"def test_(\w+)|class Test(\w+)", path.read_text("utf-8")):
            named.update(re.findall(r"(?<![a-zA-Z0-9])[SLGslg]\d+(?=_|$)", "".join(name)))
    assert not PROMISES - {name.upper() for name in named}


def often(path: Path) -> list[str]:
    """The names of the tests of a file that are not run by hand."""
    body = ast.parse(path.read_text("utf-8")).body
    whole = [node for node in body if isinstance(node, ast.Assign)]
    if any("pytest.mark.by_hand" in ast.unparse(node) for node in whole
           if ast.unparse(node.targets[0]) == "pytestmark"):  # fmt: skip
        return []
    tests = [node for node in body if isinstance(node, ast.FunctionDef)]
    by_hand = ast.parse("pytest.mark.by_hand", mode="eval").body
    return [
        test.name
        for test in tests
        if test.name.startswith("test_")
        and ast.dump(by_hand) not in map(ast.dump, test.decorator_list)
    ]


def test_every_promise_keeps_a_test_of_real_nodes_that_is_not_run_by_hand() -> None:
    """A name with a span of promises, as random faults have it, counts for its ends alone."""
    named: set[str] = set()
    for folder in ("cluster", "chaos"):
        for path in (ROOT / "tests" / folder).glob("test_*.py"):
            for name in often(path):
                named.update(re.findall(r"(?<![a-zA-Z0-9])[SLG]\d+(?=_|$)", name))
    assert not PROMISES - named


def test_every_file_with_tests_by_hand_is_in_their_list() -> None:
    page = (ROOT / "docs" / "testing.md").read_text("utf-8").split("\n## Tests by hand\n")[1]
    marked = {
        path.name
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.name != Path(__file__).name and "mark.by_hand" in path.read_text("utf-8")
    }
    assert marked == set(re.findall(r"^\| `(test_\w+\.py)`", page, re.MULTILINE))
