"""Which cluster a verb talks to: flags, the user's file of clusters, and the environment."""

import argparse
from pathlib import Path

import pytest

from lognode.client import tokens
from lognode.client.cli.clusters import Where, where
from lognode.client.cli.parser import Parser, UsageError, add_common
from lognode.client.protocol.errors import InvalidArgument
from lognode.client.protocol.private_files import write_private
from lognode.client.protocol.tls import Tls


def options(*arguments: str) -> argparse.Namespace:
    parser = Parser(prog="lognode verb")
    add_common(parser)
    return parser.parse(arguments)


def found(folder: Path, *arguments: str, **environment: str) -> Where:
    return where(options(*arguments), {"XDG_CONFIG_HOME": str(folder), **environment})


def write(folder: Path, text: str) -> None:
    (folder / "lognode.toml").write_text(text)


@pytest.fixture
def two(tmp_path: Path) -> dict[str, str]:
    """A file with two clusters; return the tokens of both."""
    drawn = {name: tokens.draw() for name in ("prod", "environment")}
    for name, token in drawn.items():
        write_private(tmp_path / f"{name}.token", token.encode())
    write(
        tmp_path,
        """[clusters.prod]
server = ["p1:4600", "p2:4600"]
tls_ca = "ca.pem"
token_file = "prod.token"

[clusters."home lab"]
server = "h1:4600"
""",
    )
    return drawn


def test_a_named_cluster_has_its_addresses_files_and_token(
    tmp_path: Path, two: dict[str, str]
) -> None:
    for got in (found(tmp_path, "--cluster", "prod"), found(tmp_path, LOGNODE_CLUSTER="prod")):
        assert got.server == "p1:4600,p2:4600"
        assert got.tls == Tls(ca=str(tmp_path / "ca.pem"))
        assert got.token == two["prod"]
    assert found(tmp_path, "--cluster", "home lab") == Where("h1:4600", None, None)
    over = found(tmp_path, "--cluster", "prod", "--tls-ca", "other.pem")
    assert (over.server, over.tls) == ("p1:4600,p2:4600", Tls(ca="other.pem"))


def test_the_token_of_one_cluster_does_not_reach_another(
    tmp_path: Path, two: dict[str, str]
) -> None:
    environment = {
        "LOGNODE_TOKEN": two["environment"],
        "LOGNODE_TOKEN_FILE": str(tmp_path / "environment.token"),
        "LOGNODE_TLS_CA": "environment.pem",
        "LOGNODE_SERVER": "e1:4600",
    }
    assert found(tmp_path, "--cluster", "home lab", **environment) == Where("h1:4600", None, None)
    del environment["LOGNODE_SERVER"]
    assert found(tmp_path, LOGNODE_CLUSTER="home lab", **environment) == Where(
        "h1:4600", None, None
    )
    only = found(tmp_path, "--server", "s1:4600", LOGNODE_CLUSTER="prod")
    assert only == Where("s1:4600", None, None)


def test_without_a_name_the_environment_and_the_default_hold(
    tmp_path: Path, two: dict[str, str]
) -> None:
    assert found(tmp_path / "none") == Where("127.0.0.1:4600", None, None)
    got = found(tmp_path, LOGNODE_SERVER="e1:4600", LOGNODE_TLS_CA="e.pem",
                LOGNODE_TOKEN=two["environment"])  # fmt: skip
    assert got == Where("e1:4600", Tls(ca="e.pem"), two["environment"])
    assert found(tmp_path, LOGNODE_TOKEN_FILE=str(tmp_path / "prod.token"),
                 LOGNODE_TOKEN="x").token == two["prod"]  # fmt: skip
    assert two["environment"] not in repr(got)


def test_two_answers_are_refused(tmp_path: Path, two: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--server and --cluster are both given"):
        found(tmp_path, "--cluster", "prod", "--server", "s1:4600")
    with pytest.raises(UsageError, match="LOGNODE_SERVER and LOGNODE_CLUSTER are both set"):
        found(tmp_path, LOGNODE_CLUSTER="prod", LOGNODE_SERVER="s1:4600")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[clusters.prod]\nserver = \n", "lognode.toml is not TOML: .*line 2"),
        ("[clusters.prod]\nserver = 'p1'\ntoken = 'x'\n",
         "lognode.toml, line 3: 'token' is unknown; known are server, .*did you mean `token_file`"),
        ("[clusters.a]\nserver = 1\n[clusters.prod]\n\nserver = 4600\n",
         "line 5: server is 4600; write a text in quotes"),
        ("[clusters.prod]\ntls_ca = 'x'\n", "line 1: cluster 'prod' has no `server`"),
        ("# mine\nserver = 'p1'\n[clusters.prod]\nserver = 'p1'\n",
         "line 2: 'server' is unknown; write \\[clusters.NAME\\]"),
        ("[cluster.prod]\nserver = 'p1'\n", "'cluster' is unknown; write \\[clusters.NAME\\]"),
        ("clusters = 3\n", "line 1: write \\[clusters.NAME\\]"),
        ("[clusters.prd]\nserver = 'p1'\n",
         "has no cluster 'prod'; known: prd; did you mean `prd`?"),
        ("", "has no cluster 'prod'; known: none"),
    ],
)  # fmt: skip
def test_a_faulty_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, text)
    with pytest.raises(InvalidArgument, match=message):
        found(tmp_path, "--cluster", "prod")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot read .*lognode\.toml.*No such file"):
        found(tmp_path, "--cluster", "prod")
