"""Golden scripts of the raft group; `--rewrite` writes down what happens now."""

from pathlib import Path

import pytest
from raft_script import run_script

SCRIPTS = sorted((Path(__file__).parent / "raft").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool) -> None:
    expected = path.read_text()
    found = run_script(expected)
    if rewrite:
        path.write_text(found)
    else:
        assert found == expected


def test_there_are_scripts() -> None:
    assert SCRIPTS
