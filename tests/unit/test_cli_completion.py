"""Completion of the command line, by the shells themselves."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from lognode.client.cli.completion import SHELLS
from lognode.client.cli.main import VERBS
from lognode.node import main as node_main

FILES = "FILES"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("completion")


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    if shutil.which(shell) is None:
        assert os.environ.get("CI") != "true", f"{shell} is missing"
        pytest.skip(f"{shell} is not installed")
    assert node_main.main(["completion", shell]) == 0
    path = folder / f"lognode.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


def completed(shell: str, path: Path, *words: str) -> set[str]:
    """What the shell offers for the last word, `FILES` for a file or any other word."""
    given = " ".join(map(shlex.quote, ["lognode", *words]))
    if shell == "bash":
        code = (
            f"source {path}; COMP_WORDS=({given}); COMP_CWORD={len(words)}; _lognode; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        command = ["bash", "--norc", "-eu", "-c", code]
    elif shell == "zsh":
        code = (
            "compdef() { : }; compadd() { shift; print -l -- $@ }; _files() { print FILES }; "
            f"source {path}; words=({given}); CURRENT={len(words) + 1}; _lognode"
        )
        command = ["zsh", "-f", "-c", code]
    else:
        line = " ".join(["lognode", *words])
        command = ["fish", "--no-config", "-c", f"source {path}; complete -C {shlex.quote(line)}"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, cwd=path.parent,
        env={**os.environ, "HOME": str(path.parent)},
    )  # fmt: skip
    assert done.stderr == ""
    found = {line.split("\t")[0] for line in done.stdout.splitlines() if line}
    if shell == "bash" and not found:
        return {FILES}  # bash offers files where a function offers nothing
    if path.name in found:
        return {FILES}
    return {word for word in found if word == FILES or word.startswith(words[-1])}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_verbs_flags_and_words(
    shell: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(shell, folder, capsys)
    firsts = {verb.split()[0] for verb in VERBS}
    assert completed(shell, path, "") >= firsts | {"dev", "ca", "verify", "completion"}
    assert completed(shell, path, "ap") == {"append"}
    assert completed(shell, path, "log", "") == {
        verb.split()[1] for verb in VERBS if verb.startswith("log ")
    }
    assert completed(shell, path, "token", "re") == {"recover", "revoke"}
    assert completed(shell, path, "log", "create", "--rep") == {"--replicas"}
    assert completed(shell, path, "append", "l", "k", "--exp") == {"--expect"}
    assert completed(shell, path, "scan", "l", "k", "--format", "") == {"json", "jsonl", "table"}
    assert completed(shell, path, "scan", "l", "--pre") == {"--prefix"}
    assert completed(shell, path, "completion", "") == set(SHELLS)
    assert completed(shell, path, "import", "l", "") == {FILES}
    assert completed(shell, path, "scan", "l", "k", "--token-file", "") == {FILES}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_the_flags_of_verbs_without_a_cluster(
    shell: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """These verbs had no flags in the scripts."""
    path = script(shell, folder, capsys)
    for verb, parser in node_main.local_parsers().items():
        long = {flag for flag in parser._option_string_actions if flag.startswith("--")}
        assert completed(shell, path, *verb.split(), "--") == long, verb
    assert completed(shell, path, "init", "--zo") == {"--zone"}
    assert completed(shell, path, "verify", "d", "--format", "") == {"json", "jsonl", "table"}


@pytest.mark.parametrize("shell", SHELLS)
def test_flags_before_the_verb_are_passed_over(
    shell: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(shell, folder, capsys)
    assert completed(shell, path, "--server", "h", "log", "cr") == {"create"}
    assert completed(shell, path, "--yes", "ap") == {"append"}
    assert completed(shell, path, "--token-file", "") == {FILES}
    assert completed(shell, path, "--joi") == {"--join", "--join-timeout"}


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert node_main.main(["completion", "csh"]) == 2
    assert "choose from" in capsys.readouterr().err
