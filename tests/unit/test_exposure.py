"""The safe default: which settings let a node listen beyond loopback, and what it says then."""

import argparse
import asyncio
import itertools
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from lognode.client.protocol.errors import InvalidArgument, Unavailable
from lognode.node.access import exposure
from lognode.node.access.exposure import Exposure
from lognode.node.config import Config, add_flags, load
from lognode.node.metrics import Metrics
from lognode.node.serving.status import is_insecure
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import NodeRecord

LOOPBACK = "127.0.0.1:4600"
OPEN = "10.0.0.7:4600"
TLS = {"tls_cert": Path("c"), "tls_key": Path("k"), "tls_ca": Path("a")}


def exposed(tmp_path: Path, **settings: Any) -> Exposure:
    return Exposure.of(Config(data=tmp_path / "data", **settings), Metrics())


def starts(config: Config, *, authorised: bool) -> bool:
    """Whether a node gets past both checks; `authorised`: its metadata has tokens."""
    try:
        found = Exposure.of(config, Metrics())
        found.check(is_authorised=authorised or config.auth == "on")
    except InvalidArgument:
        return False
    return True


ADDRESSES = (("listen", OPEN), ("peer_listen", OPEN), ("http", OPEN), ("http", LOOPBACK))


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("insecure", ["off", "on"])
@pytest.mark.parametrize("auth", ["off", "on"])
@pytest.mark.parametrize("client_auth", ["none", "optional", "required"])
@pytest.mark.parametrize("tls", [False, True])
def test_every_combination(
    tls: bool, client_auth: str, auth: str, insecure: str, joins: bool, tmp_path: Path
) -> None:
    for (name, address), has_tokens in itertools.product(ADDRESSES, (False, True)):
        config = Config(
            data=tmp_path / "data", auth=auth, insecure=insecure, tls_client_auth=client_auth,
            join=("n1:4600",) if joins else (), **{name: address}, **(TLS if tls else {}),
        )  # fmt: skip
        knows_clients = client_auth == "required" or auth == "on" or (joins and has_tokens)
        knows_clients |= name == "peer_listen"  # whose port is for nodes with certificates alone
        safe = address == LOOPBACK or insecure == "on" or (tls and knows_clients)
        assert starts(config, authorised=has_tokens) is safe, (config, has_tokens)


@pytest.mark.parametrize(
    ("address", "is_open"),
    [
        ("127.0.0.1:1", False), ("127.9.8.7:1", False), ("[::1]:1", False), ("localhost:1", False),
        ("[::ffff:127.0.0.1]:1", False), ("0x7f.1:1", False),
        ("0.0.0.0:1", True), ("0x0:1", True), ("[::]:1", True),
        ("[::ffff:0.0.0.0]:1", True), ("10.0.0.1:1", True), ("169.254.0.1:1", True),
        ("[fd00::7]:1", True), ("[::ffff:10.0.0.1]:1", True),
    ],
)  # fmt: skip
def test_which_addresses_are_open(address: str, is_open: bool, tmp_path: Path) -> None:
    for name in ("listen", "peer_listen", "http"):
        assert bool(exposed(tmp_path, insecure="on", **{name: address}).open_listeners) is is_open


@pytest.mark.parametrize(
    ("addresses", "is_open"),
    [(["127.0.0.1", "::1"], False), (["127.0.0.1", "10.0.0.1"], True), (["10.0.0.1"], True)],
)
def test_a_host_name_is_loopback_where_all_its_addresses_are(
    addresses: list[str], is_open: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        assert (host, port) == ("db1", 4600) or host == "127.0.0.1"
        found = addresses if host == "db1" else [host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(exposure.socket, "getaddrinfo", resolve)
    if not is_open:
        assert exposed(tmp_path, listen="db1:4600").open_listeners == {}
        return
    with pytest.raises(InvalidArgument, match=r"^listen is db1:4600, which means 10\.0\.0\.1, "):
        exposed(tmp_path, listen="db1:4600")


def test_a_name_that_does_not_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(exposure.socket, "getaddrinfo", resolve)
    with pytest.raises(Unavailable, match=r"^cannot listen on db1:1: Name .*; give .* --listen$"):
        exposed(tmp_path, listen="db1:1")


def test_the_error_says_what_was_given_what_is_allowed_and_what_to_do(tmp_path: Path) -> None:
    flags = {"listen": OPEN, "http": "0.0.0.0:4680", "data": str(tmp_path / "data")}
    with pytest.raises(InvalidArgument) as caught:
        Exposure.of(load(flags, {}), Metrics())
    message = caught.value.message
    assert message.startswith(
        f"listen is {OPEN} (flag --listen) and http is 0.0.0.0:4680 (flag --http): other machines "
        "can reach this node, and the node has no TLS. "
    )
    for way in ("Listen on 127.0.0.1", "--tls-cert, --tls-key and --tls-ca", "--insecure"):
        assert way in message
    assert "\n" not in message
    with pytest.raises(InvalidArgument, match="--tls-client-auth is none, and authorisation is of"):
        exposed(tmp_path, listen=OPEN, tls_client_auth="none", **TLS)
    assert not (tmp_path / "data").exists(), "refused before the directory is touched"


def test_a_node_that_was_here_before_may_know_of_tokens(tmp_path: Path) -> None:
    settings = {"listen": OPEN, "tls_client_auth": "optional", **TLS}
    with pytest.raises(InvalidArgument):
        exposed(tmp_path, **settings)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.mdb").touch()
    found = exposed(tmp_path, **settings)
    found.check(is_authorised=True)
    with pytest.raises(InvalidArgument, match="authorisation is off"):
        found.check(is_authorised=False)
    with pytest.raises(InvalidArgument, match="no TLS"):
        exposed(tmp_path, listen=OPEN)


def test_the_bare_flag_turns_it_on() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    assert load(vars(parser.parse_args(["--insecure"])), {}).insecure == "on"
    assert load(vars(parser.parse_args(["--insecure", "off"])), {}).insecure == "off"
    assert load({}, {"LOGNODE_INSECURE": "on"}).insecure == "on"
    with pytest.raises(InvalidArgument, match="give on or off"):
        load({"insecure": "yes"}, {})


@pytest.mark.parametrize("insecure", ["off", "on"])
def test_the_node_warns_at_the_start_and_again_and_again(
    insecure: str, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    metrics = Metrics()
    listen = OPEN if insecure == "on" else LOOPBACK
    config = Config(data=tmp_path / "data", listen=listen, insecure=insecure)
    found = Exposure.of(config, metrics)
    turns = 0

    async def sleep(seconds: float) -> None:
        nonlocal turns
        assert seconds == 3_600.0
        turns += 1
        if turns == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(exposure.asyncio, "sleep", sleep)
    with caplog.at_level(logging.INFO, "lognode.exposure"), pytest.raises(asyncio.CancelledError):
        asyncio.run(found.run())
    is_on = insecure == "on"
    assert [record.levelname for record in caplog.records] == ["WARNING"] * (3 if is_on else 0)
    assert all("--insecure" in record.getMessage() for record in caplog.records)
    assert f"lognode_insecure {float(is_on)}".encode() in metrics.exposition()


def test_a_cluster_is_insecure_as_far_as_its_nodes_are_known() -> None:
    metadata = Metadata()
    metadata.nodes = {n: NodeRecord(n, "", "", "", n, 1, "ACTIVE") for n in (1, 2)}
    metadata.nodes[3] = NodeRecord(3, "", "", "", 3, 1, "REMOVED")
    assert is_insecure(metadata, {1: False, 2: False, 3: True}) is False
    assert is_insecure(metadata, {1: False}) is None
    assert is_insecure(metadata, {2: True}) is True
