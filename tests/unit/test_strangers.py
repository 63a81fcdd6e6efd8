"""x24: what a side of another cluster says counts only where it holds the secret."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client import connection
from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.protocol.errors import LognodeError, Unauthorized
from lognode.client.protocol.principal import anonymous
from lognode.node.access.access import OpenAccess
from lognode.node.config import Config
from lognode.node.joining.strangers import Strangers
from lognode.node.metrics import Metrics
from lognode.node.serving.server import Server
from lognode.partitions.metadata import Metadata

SECRET = b"the secret of both clusters"


OPEN: Any = SimpleNamespace(
    is_on=False,
    of_client=lambda _: OpenAccess(anonymous("h")),
    opened=lambda _: None,
    closed=lambda _: None,
)
"""Authorisation is off."""


GATE: Any = SimpleNamespace(
    opened=lambda *_: None, closed=lambda _: None, check_room=lambda _: None
)


class Founder:
    """A node that has just founded cluster `c1`, as far as its listener goes."""

    def __init__(self, secret: bytes | None, *, fresh: bool = True) -> None:
        self.ended: list[LognodeError] = []
        self.opened: list[ServerConnection] = []
        self._secret = secret
        strangers = Strangers(
            cluster="c1", config=Config(data=Path("data"), advertise="h:1"), founding=fresh,
            metadata=Metadata, on_end=self.ended.append,
        )  # fmt: skip
        unused: Any = None
        data: Any = SimpleNamespace(handlers={}, reads={})
        self.metrics = Metrics()
        self.server = Server(
            who=lambda: ("c1", 1), peer_address="h:2", raft_in=unused, data=data, handlers={},
            paid_handlers={},
            join=unused, accesses=OPEN, proves_nodes=secret is not None, visible=unused,
            peer_handlers={}, known_peers=unused, gate=GATE, audit=unused, reserved=unused,
            metrics=self.metrics, turn_ends=unused,
            on_stranger=strangers.met, on_broken=unused,
        )  # fmt: skip

    def meet(self, **hello: Any) -> str:
        """Dial it; why it refuses, or nothing."""

        async def main() -> str:
            listener = await acceptor.serve(self.server, "127.0.0.1", 0, secret=self._secret)
            try:
                link = await connection.dial("127.0.0.1", listener.port, timeout_s=5.0, **hello)
                link.close()
            except Unauthorized as error:
                while listener.connections:  # noqa: ASYNC110  it has heard all that was said
                    await asyncio.sleep(0.001)
                return error.message
            finally:
                await listener.close()
            return ""

        return asyncio.run(asyncio.wait_for(main(), 20))


NODE = {"role": "node", "cluster": "c2", "node": 2, "incarnation": 7}


def test_a_node_that_proves_the_secret_ends_a_fresh_founder() -> None:
    founder = Founder(SECRET)
    assert "cluster c1, the other side is of cluster c2" in founder.meet(**NODE, secret=SECRET)
    (error,) = founder.ended
    assert "a node of cluster c2 has called h:1" in error.message
    assert "check the directory and its volume" in error.message


@pytest.mark.parametrize(
    ("secret", "hello"),
    [
        (None, NODE),  # nobody can prove anything
        (None, {"cluster": "c2"}),
        (SECRET, {"cluster": "c2"}),  # a client has no secret
        (SECRET, NODE),
        (SECRET, {**NODE, "secret": b"another secret, as long as that"}),
    ],
)
def test_a_hello_without_a_proof_is_refused_and_changes_nothing(
    secret: bytes | None, hello: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """One frame from anybody ended a founder in which nothing was yet."""
    founder = Founder(secret)
    caplog.set_level(logging.WARNING, "lognode.strangers")
    for _ in range(5):
        assert founder.meet(**hello)
    assert founder.ended == []
    lines = [record for record in caplog.records if record.name == "lognode.strangers"]
    assert len(lines) <= 1, "not a line for each"
    if "secret" not in hello and not (secret and "node" in hello):
        assert lines[0].levelname == "ERROR"
        assert "check the directory and its volume" in lines[0].fields["reason"]  # type: ignore[attr-defined]


def test_a_founder_that_others_use_only_tells_of_strangers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    founder = Founder(SECRET, fresh=False)
    assert founder.meet(**NODE, secret=SECRET)
    assert founder.ended == []
    assert "volume" not in caplog.text


def test_the_cluster_of_a_stranger_is_shown_in_short() -> None:
    founder = Founder(None)
    told = founder.meet(cluster="x" * 256)
    assert len(told) < 400


def test_a_node_of_the_cluster_is_greeted_as_ever() -> None:
    founder = Founder(SECRET)
    told = founder.meet(**{**NODE, "cluster": "c1"}, secret=SECRET)
    assert told == "this port is only for clients; nodes of the cluster dial h:2"
    assert founder.meet(cluster="c1") == ""
    assert founder.ended == []
