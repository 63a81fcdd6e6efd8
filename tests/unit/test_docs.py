"""Documents that say what is: generated pages are current, links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_reference_is_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "reference"), "--check"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


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
    promises = [f"S{n}" for n in range(1, 13)] + [f"L{n}" for n in range(1, 5)]
    named: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"def test_(\w+)|class Test(\w+)", path.read_text("utf-8")):
            named.update(re.findall(r"(?<![a-zA-Z0-9])[SLsl]\d+(?=_|$)", "".join(name)))
    assert not set(promises) - {name.upper() for name in named}
