"""Settings: flag over environment over file over default, and one line for what is wrong."""

from pathlib import Path
from typing import Any

import pytest

from lognode.client.protocol.errors import InvalidArgument
from lognode.node import config
from lognode.node.joining.joining import registration

VALUES: dict[str, tuple[str, str, str, Any]] = {
    # flag, environment, file: three values each, and what the flag's comes to
    "data": ("a", "b", "c", Path("a")),
    "listen": ("h:1", "h:2", "h:3", "h:1"),
    "advertise": ("h:1", "h:2", "h:3", "h:1"),
    "http": ("h:1", "h:2", "h:3", "h:1"),
    "peer_listen": ("h:1", "h:2", "h:3", "h:1"),
    "peer_advertise": ("h:1", "h:2", "h:3", "h:1"),
    "idle_timeout": ("0", "1.5", "2", 0.0),
    "join": ("h:1, g:1", "h:2", "h:3", ("h:1", "g:1")),
    "join_timeout": ("1.5", "2", "3", 1.5),
    "found_level": ("1", "2", "3", 1),
    "zone": ("a", "b", "c", "a"),
    "secret_file": ("a", "b", "c", Path("a")),
    "tls_cert": ("a", "b", "c", Path("a")),
    "tls_key": ("a", "b", "c", Path("a")),
    "tls_ca": ("a", "b", "c", Path("a")),
    "tls_client_auth": ("none", "optional", "required", "none"),
    "auth": ("on", "off", "on", "on"),
    "auth_lease": ("0", "5.5", "60", 0.0),
    "insecure": ("on", "off", "on", "on"),
    "http_host": ("a,b", "c", "d", ("a", "b")),
    "http_streams": ("0", "5", "1024", 0),
    "kafka": ("h:1", "h:2", "h:3", "h:1"),
    "kafka_advertise": ("h:1", "h:2", "h:3", "h:1"),
    "kafka_auto_create": ("0", "4", "4096", 0),
    "kafka_token_file": ("a", "b", "c", Path("a")),
    "dial_map": ("a", "b", "c", Path("a")),
    "invitation": ("a", "b", "c", Path("a")),
    "log_level": ("debug", "info", "error", "DEBUG"),
    "traces": ("on", "off", "on", "on"),
    "log_format": ("logfmt", "json", "text", "logfmt"),
    "wal_file_bytes": (str(1 << 20), str(2 << 20), str(4 << 20), 1 << 20),
    "transfer_bytes_per_s": ("0", "1", "2", 0),
    "scrub_bytes_per_s": ("0", "1", "2", 0),
    "tier": ("s3://a/b", "s3://c", "s3://d", "s3://a/b"),
    "tier_endpoint": ("http://a", "http://b", "http://c", "http://a"),
    "tier_region": ("a", "b", "c", "a"),
    "tier_bytes_per_s": ("0", "1", "2", 0),
    "tier_grace": ("0", "1.5", "2", 0.0),
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


@pytest.mark.parametrize(
    ("flags", "listened", "advertised"),
    [
        ({}, "127.0.0.1:4601", "127.0.0.1:4601"),
        ({"listen": "[::1]:7000"}, "[::1]:7001", "[::1]:7001"),
        ({"listen": "0.0.0.0:4600", "advertise": "n1:9000"}, "0.0.0.0:4601", "n1:4601"),
        ({"peer_listen": "10.0.0.1:5000"}, "10.0.0.1:5000", "127.0.0.1:5000"),
        ({"peer_listen": "10.0.0.1:5000", "peer_advertise": "p1:6000"}, "10.0.0.1:5000", "p1:6000"),
    ],
)
def test_peers_get_the_next_port_unless_told_otherwise(
    flags: dict[str, str], listened: str, advertised: str
) -> None:
    found = config.load(flags, {})
    assert (found.peer_listened, found.peer_advertised) == (listened, advertised)


def test_there_is_no_port_after_the_last_one() -> None:
    found = config.load({"listen": "h:65535"}, {})
    with pytest.raises(InvalidArgument, match="give an address with --peer-listen"):
        assert found.peer_listened
    assert config.load({"listen": "h:65535", "peer_listen": "h:1"}, {}).peer_listened == "h:1"


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
        ({"peer_listen": "next"}, "peer_listen 'next' is not HOST:PORT"),
        ({"auth_lease": "1"}, "bad value '1' of flag --auth-lease: give 5 s or more, or 0"),
        ({"idle_timeout": "-1"}, "bad value '-1' of flag --idle-timeout: give seconds, 0 or more"),
        ({"balance": "maybe"}, "bad value 'maybe' of flag --balance: give on or off"),
        ({"tls_client_auth": "yes"}, "--tls-client-auth: give none, optional or required"),
        ({"bootstrap_expect": "-1"}, "bad value '-1' of flag --bootstrap-expect: give a number of"),
        ({"join_timeout": "nan"}, "bad value 'nan' of flag --join-timeout"),
        ({"log_level": "loud"}, "DEBUG, INFO, WARNING or ERROR"),
        ({"log_format": "xml"}, "of flag --log-format: give auto, json, logfmt or text"),
        ({"wal_file_bytes": "many"}, "bad value 'many' of flag --wal-file-bytes"),
        ({"wal_file_bytes": "1"}, "bad value '1' of flag --wal-file-bytes: give"),
        ({"transfer_bytes_per_s": "-1"}, "bad value '-1' of flag --transfer-bytes-per-s: give"),
        ({"scrub_bytes_per_s": "-1"}, "bad value '-1' of flag --scrub-bytes-per-s: give"),
        ({"disk_reserve_bytes": "-1"}, "bad value '-1' of flag --disk-reserve-bytes: give 0"),
        (
            {"disk_reserve_bytes": str(1 << 51)},
            "--disk-reserve-bytes: give 0, for two WAL files",
        ),
        ({"transfer_bytes_per_s": "1e6"}, "bad value '1e6' of flag --transfer-bytes-per-s"),
        ({"data": ""}, "bad value '' of flag --data"),
        ({"advertise": "a..b:4600"}, "advertise 'a..b:4600' is not HOST:PORT"),
        ({"join": f"h:1,{'x' * 64}:1"}, "has 64 characters; a label of a DNS name has at most 63"),
        ({"http": "h:\u0663"}, "is not HOST:PORT"),
        ({"zone": "z" * 129}, "text of 0 to 128 bytes of UTF-8"),
        ({"zone": "a\nb"}, "without control characters"),
        ({"zone": "\udcff"}, "`zone` is '\\udcff'"),
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
        ("lisen = 'h:1'\n", "the file {file} has unknown settings: lisen; known are data, listen"),
        ("listen = \n", "{file} is not TOML"),
        ("listen = 5\n", "listen '5' is not HOST:PORT"),
        ("join = 7\n", "bad value 7 of file {file}"),
        ("join = [7]\n", "bad value [7] of file {file}"),
        ("[node]\nlisten = 'h:1'\n", "the file {file} has unknown settings: node"),
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


EVERY_INTERFACE = [
    "0.0.0.0", "0x0", "[::]", "[0:0:0:0:0:0:0:0]", "[::%lo]",
    "[::ffff:0.0.0.0]",
]  # fmt: skip


@pytest.mark.parametrize("host", EVERY_INTERFACE)
def test_an_address_that_no_other_machine_can_dial_is_not_advertised(host: str) -> None:
    address = f"{host}:4600"
    with pytest.raises(InvalidArgument) as caught:
        config.load({"listen": address}, {})
    assert f"listen is {address} (flag --listen) and no address is adver" in caught.value.message
    assert "a host name or the address of one interface" in caught.value.message
    assert "Give such an address with --advertise HOST:PORT" in caught.value.message
    with pytest.raises(InvalidArgument) as caught:
        config.load({}, {"LOGNODE_ADVERTISE": address})
    assert f"advertise is {address} (environment LOGNODE_ADVERTISE)" in caught.value.message
    assert "no address is advertised" not in caught.value.message
    with pytest.raises(InvalidArgument, match="advertise is"):
        config.load({"listen": "10.0.0.7:4600", "advertise": address}, {})


@pytest.mark.parametrize("host", EVERY_INTERFACE)
def test_a_node_may_listen_on_every_interface_and_advertise_one(host: str) -> None:
    found = config.load({"listen": f"{host}:4600", "advertise": "n1.example:4600"}, {})
    assert (found.listen, found.advertised) == (f"{host}:4600", "n1.example:4600")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "10.0.0.0", "n1.example", "0.example"])
def test_an_address_of_one_interface_needs_no_advertised_one(host: str) -> None:
    assert config.load({"listen": f"{host}:4600"}, {}).advertised == f"{host}:4600"


@pytest.mark.parametrize(
    ("http", "advertise", "shown"),
    [
        ("10.0.0.7:4680", "n1.example:4600", "10.0.0.7:4680"),
        ("0.0.0.0:4680", "n1.example:4600", "n1.example:4680"),
        ("[::]:4680", "[2001:db8::7]:4600", "[2001:db8::7]:4680"),
        ("0.0.0.0:4680", "", "127.0.0.1:4680"),
    ],
)
def test_status_shows_an_http_address_that_others_can_dial(
    http: str, advertise: str, shown: str
) -> None:
    flags = {"http": http, **({"advertise": advertise} if advertise else {})}
    found = config.load(flags, {})
    assert found.http == http, "the node listens where it was told"
    assert found.advertised_http == shown
    assert registration(found, 1, 1, 1)["http"] == shown
