"""The port for peers: who is refused, and how many connections a node gets."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.fair_turns import OWN_TURNS, STRANGER_TURNS, Turns
from lognode.client.protocol import limits
from lognode.client.protocol.errors import LognodeError, Unauthorized, Unavailable
from lognode.client.protocol.peers import RAFT
from lognode.client.protocol.wire import Hello, Role, Welcome
from lognode.node.listeners.peer_server import PeerServer
from lognode.node.serving.server import Server

NONCE = bytes(32)
KNOWN = (1, 2, 3)


class Link:
    """A connection of a node, last heard of at `last_in_s`."""

    def __init__(self, node: int, last_in_s: float = 0.0) -> None:
        self.hello = Hello(role="node", nonce=NONCE, cluster="c", node=node)
        self.last_in_s = last_in_s
        self.address = f"h:{node}"
        self.refused: list[LognodeError] = []
        self.turns: Turns = OWN_TURNS
        self.on_lost: Callable[[Link], None] = lambda _: None

    def refuse(self, error: LognodeError) -> None:
        """As a connection does: it is lost at once."""
        self.refused.append(error)
        self.on_lost(self)

    def take_turns(self, turns: Turns) -> None:
        self.turns = turns


class Rig:
    """A port for peers, and how many connections it told its server of."""

    def __init__(self) -> None:
        self.open = 0
        self.told: list[str] = []

        def count(by: int) -> None:
            self.open += by

        behind: Any = SimpleNamespace(
            welcome=lambda hello, nonce: Welcome(nonce=nonce, cluster="c", node=9),
            opened=lambda _: count(1), closed=lambda *_: count(-1), message=lambda *_: None,
            request=lambda _: None,
        )  # fmt: skip
        self.server = PeerServer(
            cast(Server, behind), is_known=KNOWN.__contains__, address="h:4600",
            on_closed=lambda reason, _: self.told.append(reason),
        )  # fmt: skip

    def connect(self, node: int, last_in_s: float = 0.0) -> Link:
        link = Link(node, last_in_s)
        link.on_lost = self.end
        self.server.opened(cast(ServerConnection, link))
        return link

    def end(self, link: Link) -> None:
        self.server.closed(cast(ServerConnection, link), Unavailable("it has gone"))


@pytest.mark.parametrize(
    ("role", "node", "said"),
    [
        ("client", None, "port is only for nodes of the cluster; clients dial h:4600"),
        ("client", 1, "port is only for nodes of the cluster; clients dial h:4600"),
        ("node", None, "to join, dial h:4600 with --join"),
    ],
)
def test_only_nodes_of_the_cluster_are_welcome(role: Role, node: int | None, said: str) -> None:
    rig = Rig()
    with pytest.raises(Unauthorized, match=said):
        rig.server.welcome(Hello(role=role, nonce=NONCE, node=node), NONCE)
    assert rig.server.welcome(Link(2).hello, NONCE).node == 9


def test_a_node_gets_its_connections_and_loses_the_one_that_was_silent_for_longest() -> None:
    rig = Rig()
    links = [rig.connect(2, last_in_s) for last_in_s in (5.0, 1.0, 3.0, 4.0)]
    others = [rig.connect(3) for _ in range(4)]
    new = rig.connect(2, 9.0)
    assert [bool(link.refused) for link in links] == [False, True, False, False]
    assert "node 2 has more connections than allowed; the limit is 4" in links[1].refused[0].message
    assert not any(link.refused for link in (*others, new))
    assert rig.told == ["peer_crowd"]
    assert rig.open == 8
    for link in (*links, *others, new):
        if not link.refused:
            rig.end(link)
    assert rig.open == 0
    assert rig.server._crowds == {}


def test_strangers_take_nothing_from_a_known_node_however_many_ids_they_claim() -> None:
    rig = Rig()
    link = rig.connect(2)
    strangers = [rig.connect(100 + n, float(n)) for n in range(200)]
    kept = [stranger for stranger in strangers if not stranger.refused]
    assert kept == strangers[-limits.stranger_connections_max :]
    assert not link.refused
    another = rig.connect(3)
    assert not another.refused


def test_a_link_whose_node_is_known_meanwhile_ends_as_it_began() -> None:
    rig = Rig()
    link = rig.connect(50)
    rig.server._is_known = lambda _: True
    rig.end(link)
    assert rig.server._crowds == {}


@pytest.mark.parametrize("asks", [False, True], ids=["a message", "a request"])
def test_a_stranger_has_short_turns_until_its_node_is_known(asks: bool) -> None:
    """64 connections of made-up nodes kept the loop for 2 ms each in every turn."""
    rig = Rig()

    def speak(link: Link) -> None:
        connection: Any = link
        if asks:
            rig.server.request(cast(Any, SimpleNamespace(connection=connection)))
        else:
            rig.server.message(connection, RAFT, {})

    known, stranger = rig.connect(2), rig.connect(50)
    for link in (known, stranger):
        speak(link)
    assert (known.turns, stranger.turns) == (OWN_TURNS, STRANGER_TURNS)
    rig.server._is_known = lambda _: True
    assert stranger.turns is STRANGER_TURNS, "it says nothing"
    speak(stranger)
    assert stranger.turns is OWN_TURNS
    # It has a place among those of its node, and takes none of the strangers.
    rig.server._is_known = (*KNOWN, 50).__contains__
    strangers = [rig.connect(100 + n) for n in range(2 * limits.stranger_connections_max)]
    assert not stranger.refused
    assert sum(not link.refused for link in strangers) == limits.stranger_connections_max
    rig.end(stranger)
    assert 50 not in rig.server._crowds
