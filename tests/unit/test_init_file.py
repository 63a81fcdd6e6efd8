"""`lognode init`: a configuration file that explains each setting, and that a node reads."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lognode.client.protocol.errors import Conflict, InvalidArgument, Unavailable
from lognode.node import config
from lognode.node.local import init_file
from lognode.node.main import main

NAMES = list(config._FLAGS)


def written(tmp_path: Path, *arguments: str) -> Path:
    path = tmp_path / "lognode.toml"
    assert init_file.run([str(path), *arguments]) == 0
    return path


def values(settings: config.Config) -> dict[str, Any]:
    return {
        each.name: getattr(settings, each.name)
        for each in fields(settings)
        if each.name != "sources"
    }


def loaded(path: Path) -> dict[str, Any]:
    return values(config.load({"config": path}, {}))


def shown(text: str) -> list[str]:
    """The names of the settings in a file, in order, set or not."""
    return re.findall(r"^#?(\w+) = ", text, re.MULTILINE)


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(f"LOGNODE_{name.upper()}", raising=False)
    monkeypatch.delenv("LOGNODE_CONFIG", raising=False)


def test_the_file_explains_every_setting_and_sets_none(tmp_path: Path) -> None:
    path = written(tmp_path)
    text = path.read_text("utf-8")
    assert shown(text) == NAMES
    assert tomllib.loads(text) == {}
    assert loaded(path) == values(config.Config())
    plain = " ".join(re.sub(r"^# ", "", text, flags=re.MULTILINE).split())
    for name, told in config.described():
        first = told.split(" --")[0].split("; ")[0]
        assert first in plain, name
    assert max(map(len, text.splitlines())) <= 100
    assert not re.search(r"--(listen|tls-cert|advertise)\b", text), "a setting has no dashes here"


def test_the_commented_lines_have_the_defaults_and_forms_that_load(tmp_path: Path) -> None:
    path = written(tmp_path)
    text = path.read_text("utf-8")
    path.write_text(re.sub(r"^#(\w+ = )", r"\1", text, flags=re.MULTILINE))
    assert set(tomllib.loads(path.read_text())) == set(NAMES)
    found, defaults = loaded(path), values(config.Config())
    for name in NAMES:
        if defaults[name] not in (None, "", ()):
            assert found[name] == defaults[name], name
        else:
            assert found[name] not in (None, "", ()), name
            told = r"[\s#]+".join(["unset,", "for", "example:"])
            assert re.search(rf"{told}\n#{name} = ", text), name


def test_given_settings_are_set_and_read_back_as_they_were_given(tmp_path: Path) -> None:
    given = [
        "--data", 'a "b" \\c\t\x7fé', "--listen", "[::1]:7000", "--join", "h:1,g:2",
        "--auth", "--repair-after", "1.5", "--wal-file-bytes", "1048576", "--http-host", "a,b",
    ]  # fmt: skip
    path = written(tmp_path, *given)
    options = vars(init_file.parser().parse(given))
    expected = config.load({name: options[name] for name in NAMES if name in options}, {})
    assert loaded(path) == values(expected)
    assert set(tomllib.loads(path.read_text("utf-8"))) == {
        "data", "listen", "join", "auth", "repair_after", "wal_file_bytes", "http_host",
    }  # fmt: skip
    assert shown(path.read_text("utf-8")) == NAMES


def test_a_file_of_an_earlier_version_is_written_anew_with_its_settings(tmp_path: Path) -> None:
    old = tmp_path / "old.toml"
    old.write_text('zone = "b"\nbalance = "off"\n')
    path = written(tmp_path, "--config", str(old), "--zone", "c")
    assert tomllib.loads(path.read_text("utf-8")) == {"zone": "c", "balance": "off"}


def test_an_existing_file_stays_unless_it_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lognode.toml"
    path.write_text("mine")
    with pytest.raises(Conflict, match="--force"):
        init_file.run([str(path)])
    assert path.read_text() == "mine"
    assert init_file.run([str(path), "--force", "--zone", "a"]) == 0
    assert loaded(path)["zone"] == "a"
    assert [each.name for each in tmp_path.iterdir()] == ["lognode.toml"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["F", "--listen", "nowhere"], InvalidArgument),
        (["F", "--data", "\udcff"], InvalidArgument),
        (["no/such/folder/F"], Unavailable),
        (["lognode.toml/F"], Unavailable),
    ],
)
def test_a_bad_value_or_place_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], error: type[Exception]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lognode.toml").write_text("")
    with pytest.raises(error):
        init_file.run(arguments)
    assert [each.name for each in tmp_path.iterdir()] == ["lognode.toml"]


def test_the_file_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "-", "--zone", "a"]) == 0
    assert tomllib.loads(capsys.readouterr().out) == {"zone": "a"}
