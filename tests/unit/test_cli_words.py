"""The words of a command line, and hints for those that are nearly right."""

import pytest

from lognode.client.cli.parser import Parser, add_common
from lognode.client.cli.words import SWITCHES, VALUE_FLAGS, asked, hint, verb_first
from lognode.node import main as node_main


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["log", "list"], ["log", "list"]),
        (["--server", "h:1", "log", "list"], ["log", "list", "--server", "h:1"]),
        (["--timeout=1s", "--yes", "log", "delete", "x"],
         ["log", "delete", "x", "--timeout=1s", "--yes"]),
        (["--server", "h:1", "append", "l", "--", "-k", "v"],
         ["append", "l", "--server", "h:1", "--", "-k", "v"]),
        (["--server", "h:1"], ["--server", "h:1"]),
        (["--server"], ["--server"]),
        (["--tls-key", "k", "--join", "h:1"], ["--tls-key", "k", "--join", "h:1"]),
        (["--data", "d", "--join", "h:1"], ["--data", "d", "--join", "h:1"]),
        ([], []),
    ],
)  # fmt: skip
def test_flags_of_all_verbs_may_stand_before_the_verb(
    given: list[str], expected: list[str]
) -> None:
    assert verb_first(given) == expected


def test_the_flags_are_those_of_all_verbs() -> None:
    parser = Parser(add_help=False)
    add_common(parser)
    for flag in VALUE_FLAGS:
        parser.parse([flag, "json" if flag == "--format" else "1s"])
    parser.parse(list(SWITCHES))
    usage = parser.format_usage().replace("]", " ").replace("[", " ").split()
    assert {word for word in usage if word.startswith("--")} == {*VALUE_FLAGS, *SWITCHES}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["apend", "l", "k", "v"], "there is no verb 'apend'; did you mean `append`?"),
        (["log", "lst"], "or delete; did you mean `list`?"),
        (["lgo", "list"], "there is no verb 'lgo'; did you mean `log list`"),
        (["frobnicate"], "there is no verb 'frobnicate'; see `lognode --help`"),
        (["verfy", "d"], "there is no verb 'verfy'; did you mean `verify`?"),
        (["ca", "nod"], "`lognode ca` needs another word: init or node or client"),
        (["config", "shwo"], "`lognode config` needs a second word: show; did you mean `show`?"),
        (["tokn", "recover"], "did you mean `token recover`"),
        (["put", "l", "k"], "there is no verb 'put'; did you mean `append`?"),
        (["rm", "l"], "did you mean `delete-key` or `log delete`?"),
        (["start"], "a node starts without a verb: `lognode --data DIR`"),
    ],
)
def test_a_word_that_is_nearly_a_verb_gets_a_hint(
    given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node_main.main(given) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["help"], ["--help"]),
        (["help", "log", "create"], ["log", "create", "--help"]),
        (["version"], ["--version"]),
        (["append", "help", "version", "v"], ["append", "help", "version", "v"]),
    ],
)
def test_help_and_version_may_be_words(given: list[str], expected: list[str]) -> None:
    assert asked(given) == expected


@pytest.mark.parametrize("asking", [["help", "token"], ["token", "--help"], ["token", "-h"]])
def test_the_first_of_two_words_has_help(
    asking: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert node_main.main(asking) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert {line.split()[2] for line in lines} == {"create", "list", "revoke", "recover"}


def test_no_hint_without_a_likeness() -> None:
    assert hint("xyz", ["append", "scan"]) == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["log", "list", "--sever", "h:1"], "--sever h:1; did you mean `--server`?"),
        (["log", "list", "--formt=json"], "--formt=json; did you mean `--format`?"),
        (["--sever", "h:1", "log", "list"], "did you mean `--server`?"),
        (["--server", "h:1"], "arguments: --server h:1 without a verb; see `lognode --help`"),
        (["--datta", "d"], "did you mean `--data`?"),
        (["scan", "l", "--json"], "arguments: --json; did you mean `--format json`?"),
        (["append", "l", "k", "two", "words"], "arguments: words; put text with spaces in quotes"),
        (["append", "l", "k", "-v"], "arguments: -v; an argument after `--` is not a flag"),
        (["log", "list", "--frobnicate"], "arguments: --frobnicate; see `lognode log list --help`"),
    ],
)
def test_a_flag_that_is_nearly_right_gets_a_hint(
    given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node_main.main(given) == 2
    assert message in capsys.readouterr().err
