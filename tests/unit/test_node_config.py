"""Settings: flag over environment over file over default, and one line for what is wrong."""

from pathlib import Path
from typing import Any

import pytest

from lognode.client.errors import InvalidArgument
from lognode.node import config

VALUES: dict[str, tuple[str, str, str, Any]] = {
    # flag, environment, file: three values each, and what the flag's comes to
    "data": ("a", "b", "c", Path("a")),
    "listen": ("h:1", "h:2", "h:3", "h:1"),
    "advertise": ("h:1", "h:2", "h:3", "h:1"),
    "http": ("h:1", "h:2", "h:3", "h:1"),
    "join": ("h:1, g:1", "h:2", "h:3", ("h:1", "g:1")),
    "join_timeout": ("1.5", "2", "3", 1.5),
    "zone": ("a", "b", "c", "a"),
    "secret_file": ("a", "b", "c", Path("a")),
    "dial_map": ("a", "b", "c", Path("a")),
    "log_level": ("debug", "info", "error", "DEBUG"),
    "wal_file_bytes": (str(1 << 20), str(2 << 20), str(4 << 20), 1 << 20),
    "transfer_bytes_per_s": ("0", "1", "2", 0),
    "scrub_bytes_per_s": ("0", "1", "2", 0),
    "disk_reserve_bytes": ("0", "1", "2", 0),
    "bootstrap_expect": ("3", "5", "1", 3),
    "repair_after": ("0", "1.5", "2", 0.0),
    "balance": ("off", "on", "off", "off"),
    "split_rest": ("0", "1.5", "2", 0.0),
    "merge_after": ("0", "1.5", "2", 0.0),
}


def test_every_setting_is_here() -> None:
    assert set(VALUES) == set(config._FLAGS)


@pytest.mark.parametrize("name", VALUES)
def test_a_flag_wins_over_the_environment_over_the_file(name: str, tmp_path: Path) -> None:
    flag, environment, in_file, expected = VALUES[name]
    file = tmp_path / "lognode.toml"
    file.write_text(f'{name.replace("_", "-")} = "{in_file}"\n')
    variable = {f"LOGNODE_{name.upper()}": environment, "LOGNODE_CONFIG": str(file)}

    def given(flags: dict[str, Any], variables: dict[str, str]) -> tuple[Any, str]:
        found = config.load(flags, variables)
        return getattr(found, name), found.sources[name]

    dashed = "--" + name.replace("_", "-")
    assert given({name: flag}, variable) == (expected, f"flag {dashed}")
    assert given({}, variable) == (
        given({name: environment}, {})[0], f"environment LOGNODE_{name.upper()}",
    )  # fmt: skip
    assert given({"config": str(file)}, {}) == (given({name: in_file}, {})[0], f"file {file}")
    assert given({}, {}) == (getattr(config.Config(), name), "default")


def test_lists_and_numbers_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "lognode.toml"
    file.write_text('join = ["h:1", "g:2"]\njoin_timeout = 5\n')
    found = config.load({"config": file}, {})
    assert found.join == ("h:1", "g:2")
    assert found.join_timeout == 5.0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"listen": "nowhere"}, "listen 'nowhere' is not HOST:PORT with a port of 1 to 65535"),
        ({"listen": "h:0"}, "h:0"),
        ({"http": "h:65536"}, "h:65536"),
        ({"advertise": ":4600"}, "advertise ':4600' is not HOST:PORT"),
        ({"join": "h:1,x"}, "join 'x' is not HOST:PORT"),
        ({"join_timeout": "soon"}, "bad value 'soon' of flag --join-timeout"),
        ({"join_timeout": "-1"}, "bad value '-1' of flag --join-timeout"),
        ({"repair_after": "-1"}, "bad value '-1' of flag --repair-after: give seconds, 0 or more"),
        ({"balance": "maybe"}, "bad value 'maybe' of flag --balance: give on or off"),
        ({"bootstrap_expect": "-1"}, "bad value '-1' of flag --bootstrap-expect: give a number of"),
        ({"join_timeout": "nan"}, "bad value 'nan' of flag --join-timeout"),
        ({"log_level": "loud"}, "DEBUG, INFO, WARNING or ERROR"),
        ({"wal_file_bytes": "many"}, "bad value 'many' of flag --wal-file-bytes"),
        ({"wal_file_bytes": "1"}, "bad value '1' of flag --wal-file-bytes: give"),
        ({"transfer_bytes_per_s": "-1"}, "bad value '-1' of flag --transfer-bytes-per-s: give"),
        ({"scrub_bytes_per_s": "-1"}, "bad value '-1' of flag --scrub-bytes-per-s: give"),
        ({"disk_reserve_bytes": "-1"}, "bad value '-1' of flag --disk-reserve-bytes: give 0"),
        (
            {"disk_reserve_bytes": str(1 << 51)},
            "--disk-reserve-bytes: give 0, for none",
        ),
        ({"transfer_bytes_per_s": "1e6"}, "bad value '1e6' of flag --transfer-bytes-per-s"),
        ({"data": ""}, "bad value '' of flag --data"),
        ({"advertise": "a..b:4600"}, "advertise 'a..b:4600' is not HOST:PORT"),
        ({"join": f"h:1,{'x' * 64}:1"}, "has 64 characters; a label of a DNS name has at most 63"),
        ({"http": "h:\u0663"}, "is not HOST:PORT"),
        ({"zone": "z" * 129}, "`zone` has 129 bytes; at most 128 are allowed: shorten it"),
        ({"zone": "a\nb"}, "with an unprintable character"),
        ({"zone": "\udcff"}, "is not valid Unicode"),
        ({"scrub_bytes_per_s": "9" * 400}, "--scrub-bytes-per-s: give bytes a second, up to"),
    ],
)
def test_a_bad_value_is_one_line_that_says_where_it_is_from(
    flags: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        config.load(flags, {})
    assert said in caught.value.message
    assert "flag --" in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lisen = 'h:1'\n", "unknown setting in {file}: lisen; known are data, listen"),
        ("listen = \n", "{file} is not TOML"),
        ("listen = 5\n", "listen '5' is not HOST:PORT"),
        ("join = 7\n", "bad value 7 of file {file}"),
        ("join = [7]\n", "bad value [7] of file {file}"),
        ("[node]\nlisten = 'h:1'\n", "unknown setting in {file}: node"),
        (b"\xff\xfe", "{file} is not TOML"),
    ],
)
def test_a_bad_file_is_one_line(text: str | bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "lognode.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidArgument) as caught:
        config.load({"config": str(file)}, {})
    assert said.format(file=file) in caught.value.message
    assert "\n" not in caught.value.message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(InvalidArgument, match=f"cannot read configuration {path}: {reason}"):
            config.load({"config": str(path)}, {})
