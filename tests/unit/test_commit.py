"""The commit of the program, in `lognode --version` and in the metrics."""

import json
import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lognode.client.protocol.native import native, packing
from lognode.node import main as node_main
from lognode.node.metrics import Metrics
from lognode.node.runtime import commit, compiled
from lognode.statemachine.compiled import memtables


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@example.org",
         *arguments],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.strip()


def test_a_checkout_has_its_commit_and_says_that_files_were_changed(tmp_path: Path) -> None:
    assert commit.of_checkout(tmp_path) == ""
    git(tmp_path, "init", "--quiet")
    assert commit.of_checkout(tmp_path) == "", "nothing is committed"
    file = tmp_path / "file"
    file.write_text("a")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "-m", "First")
    first = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert commit.of_checkout(tmp_path) == first
    file.write_text("b")
    assert commit.of_checkout(tmp_path) == f"{first}+"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps({"url": "u", "vcs_info": {"vcs": "git", "commit_id": "0123456789abcdef"}}),
         "0123456789ab"),
        (json.dumps({"url": "file:///x", "dir_info": {"editable": True}}), ""),
        ("", ""),
        ("[]", ""),
    ],
)  # fmt: skip
def test_an_installation_from_a_repository_has_its_commit(text: str, expected: str) -> None:
    assert commit.of_direct_url(text) == expected


def test_the_version_and_the_metrics_name_the_commit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for known, shown in (("0123456789ab", " (0123456789ab)"), ("", "0.1.0")):
        monkeypatch.setattr(commit, "commit", lambda known=known: known)
        monkeypatch.setattr("lognode.node.metrics.commit", lambda known=known: known)
        assert node_main.main(["--version"]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert first.endswith(shown)
        assert platform.python_version() in second
        metrics = Metrics()
        metrics.watch_process()
        assert f'commit="{known}"' in metrics.exposition().decode()


def test_a_build_leaves_its_commit_in_a_file(tmp_path: Path) -> None:
    assert commit.of_file(tmp_path) == ""
    (tmp_path / commit.FILE).write_text("0123456789ab\n")
    assert commit.of_file(tmp_path) == "0123456789ab"


def test_the_version_looks_at_each_module_in_c() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    built = [each["name"] for each in project["tool"]["setuptools"]["ext-modules"]]
    assert sorted(compiled.MODULES) == sorted(name.rpartition(".")[2] for name in built)


def test_the_version_says_that_modules_in_c_are_missing() -> None:
    hidden = "from lognode.statemachine import compiled; compiled.building = None"
    for code, pure, told in (
        ("", "1", "without modules in C, as LOGNODE_PURE says: slower"),
        (hidden, "", "without the modules in C _building: slower. Install a C compiler"),
    ):
        if hidden == code and None in (native, packing, memtables):
            continue  # more is missing here
        done = subprocess.run(
            [sys.executable, "-c",
             f"{code}\nfrom lognode.node.main import main\nmain(['--version'])"],
            capture_output=True, text=True, timeout=60, check=True,
            env={**os.environ, "LOGNODE_PURE": pure},
        )  # fmt: skip
        assert told in done.stdout
