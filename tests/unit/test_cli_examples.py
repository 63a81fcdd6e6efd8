"""The help of each verb ends with an example, and the example is one that the verb takes."""

import shlex
from pathlib import Path

import pytest

from lognode.client.cli.examples import EXAMPLES
from lognode.client.cli.main import VERBS
from lognode.node import main as node_main
from lognode.node.tier import tier_verbs

DOING = {"dev", "verify", "completion"}
"""Verbs without a cluster whose example would do something here."""


def test_every_verb_has_an_example_that_parses() -> None:
    local = {name for name, _ in node_main._LOCAL}
    every = {**VERBS, **tier_verbs.VERBS}
    assert EXAMPLES.keys() == {*every, *local}
    for name, verb in every.items():
        parser = verb.parser()
        parser.parse(shlex.split(EXAMPLES[name]))
        last = " ".join(parser.format_help().split()).rpartition("example: ")[2]
        assert last == f"lognode {name} {EXAMPLES[name]}".strip()


@pytest.mark.parametrize("name", [name for name, _ in node_main._LOCAL])
def test_the_help_of_a_local_verb_ends_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        node_main.main([*name.split(), "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.endswith(f"example: lognode {name} {EXAMPLES[name]}")


@pytest.mark.parametrize("name", [name for name, _ in node_main._LOCAL if name not in DOING])
def test_the_example_of_a_local_verb_is_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if name.startswith("ca ") and name != "ca init":
        node_main.main(["ca", "init", *shlex.split(EXAMPLES["ca init"])])
    node_main.main([*name.split(), *shlex.split(EXAMPLES[name])])
    assert "--help" not in capsys.readouterr().err, "a usage error"
