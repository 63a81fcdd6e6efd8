"""Who may speak as which node: registered, not removed, with the incarnation that is registered."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol import Sender, table
from lognode.client.protocol.errors import InvalidArgument, Unauthorized, Unavailable
from lognode.client.protocol.peers import COMMAND, HEARTBEAT, IMAGE_PAGE
from lognode.client.protocol.wire import Hello
from lognode.node.joining.membership import _is_for_good
from lognode.node.links.known_peers import KnownPeers
from lognode.node.metrics import Metrics
from lognode.node.replicas.clocks import Clocks
from lognode.node.serving.server import Server
from lognode.partitions.model import NodeRecord

NONCE = bytes(16)
NODES = {
    2: NodeRecord(2, "h:1", "", "", 7, 1, "ACTIVE"),
    3: NodeRecord(3, "h:1", "", "", 8, 1, "REMOVED"),
    4: NodeRecord(4, "h:1", "", "", 9, 1, "DEAD"),
}
OPERATIONS = [op for op in table.OPERATIONS.values() if op.sender is Sender.PEER]


def hello(node: int | None, incarnation: int = 0) -> Hello:
    return Hello(role="node", nonce=NONCE, cluster="c", node=node, incarnation=incarnation)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def known(metrics: Metrics) -> KnownPeers:
    return KnownPeers(lambda: NODES, metrics)


def refused(metrics: Metrics, reason: str) -> float:
    value: float = metrics.refused_peers.labels(reason)._value.get()
    return value


def test_a_registered_node_is_served(known: KnownPeers) -> None:
    for op in OPERATIONS:
        assert known.asker(hello(2, 7), op) == 2
        assert known.asker(hello(4, 9), op) == 4, "it is back"
    assert known.speaker(hello(2, 7)) == 2


@pytest.mark.parametrize(
    "told", [None, Hello(role="client", nonce=NONCE), hello(None), hello(None, 7)]
)
def test_a_peer_that_does_not_claim_to_be_a_node_is_not_a_node(
    told: Hello | None, known: KnownPeers
) -> None:
    for op in OPERATIONS:
        with pytest.raises(Unauthorized, match="for nodes of the cluster"):
            known.asker(told, op)
    with pytest.raises(Unauthorized):
        known.speaker(told)


def test_a_node_with_another_directory_is_not_that_node(
    known: KnownPeers, metrics: Metrics
) -> None:
    for op in OPERATIONS:
        with pytest.raises(Unauthorized, match="registered with another data directory"):
            known.asker(hello(2, 8), op)
    with pytest.raises(Unauthorized):
        known.speaker(hello(2))
    assert refused(metrics, "incarnation") == len(OPERATIONS) + 1


def test_X4_a_hello_with_another_directory_is_refused_at_once(
    known: KnownPeers, metrics: Metrics
) -> None:
    """Such connections took the places of the node's own, which were closed for them."""
    for told in (hello(2, 8), hello(3, 7), hello(2)):
        with pytest.raises(Unauthorized, match="registered with another data directory"):
            known.check(told)
    assert refused(metrics, "incarnation") == 3
    for told in (hello(2, 7), hello(3, 8), hello(99, 5), hello(None, 5)):
        known.check(told)


def test_a_node_that_is_not_registered_yet_asks_again_later(
    known: KnownPeers, metrics: Metrics
) -> None:
    for op in OPERATIONS:
        with pytest.raises(Unavailable) as caught:
            known.asker(hello(99, 1), op)
        assert caught.value.retryable
    assert refused(metrics, "unregistered") == len(OPERATIONS)


def test_X4_a_node_that_has_not_joined_may_ask_to_join_and_for_nothing_else(
    known: KnownPeers, metrics: Metrics
) -> None:
    """The holder of a certificate could push a controller of its own making."""
    unused: Any = None
    data: Any = SimpleNamespace(handlers={}, reads={})
    server = Server(
        who=lambda: ("c", 1), peer_address="h:2", raft_in=unused, data=data, handlers={},
        paid_handlers={}, join=unused, accesses=unused, proves_nodes=True, visible=unused,
        peer_handlers={}, known_peers=known, gate=unused, audit=unused, reserved=unused,
        metrics=metrics, turn_ends=unused, on_stranger=unused, on_broken=unused,
    )  # fmt: skip

    def allowed(who: Hello) -> set[str]:
        found = set()
        for op in table.OPERATIONS.values():
            connection: Any = SimpleNamespace(hello=who)
            with contextlib.suppress(Unauthorized, Unavailable):
                found.add(server.operation(connection, op.number).name)
        return found

    assert allowed(hello(None, 1)) == {"join", "bootstrap"}
    # A message of Raft changes nothing but in a group that has the sender as a member.
    assert allowed(hello(99, 1)) == {"join", "bootstrap", "raft"}
    assert allowed(hello(2, 7)) == {op.name for op in table.OPERATIONS.values()}


def test_a_removed_node_gets_to_know_that_and_nothing_else(known: KnownPeers) -> None:
    for op in OPERATIONS:
        if op in (HEARTBEAT, IMAGE_PAGE, COMMAND):
            assert known.asker(hello(3, 8), op) == 3
            continue
        with pytest.raises(Unauthorized, match="node 3 was removed from the cluster"):
            known.asker(hello(3, 8), op)


@pytest.mark.parametrize(
    ("error", "for_good"),
    [
        (InvalidArgument("a copy", what="incarnation"), True),
        (InvalidArgument("removed", what="node"), True),
        (InvalidArgument("a typing error of an operator", what="address"), False),
        (InvalidArgument("too long", what="zone"), False),
        (InvalidArgument("a jump", what="boot"), False),
        (Unavailable("later"), False),
    ],
)
def test_a_correctable_mistake_excludes_no_directory_for_ever(
    error: Exception, for_good: bool
) -> None:
    """The refusal of a registration was stored, and the node refused at each later start."""
    assert _is_for_good(error) == for_good  # type: ignore[arg-type]


def test_x11_a_malformed_clock_says_nothing() -> None:
    """Two made-up nodes with clocks of 2^64 - 1: the next append could not be packed, and its
    leader ended."""
    now = 1_700_000_000_000
    clocks = Clocks(wall_ms=lambda: now, monotonic=lambda: 50.0)
    clocks.heard(2, now)
    for clock in ((1 << 64) - 1, 1 << 63, 253_402_300_800_000, -1):
        for peer in (2, 3, 4):
            clocks.heard(peer, clock)
        assert clocks.correction_ms() == 0
        assert clocks.stamp_ms() == now
    ahead = Clocks(wall_ms=lambda: (1 << 64) - 1, monotonic=lambda: 50.0)
    assert ahead.stamp_ms() == 253_402_300_799_999
