"""Frames of Raft messages: whose count, and whose clocks, pings and boots are believed."""

from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client import limits
from lognode.client.errors import InvalidArgument
from lognode.client.protocol.peers import RAFT
from lognode.node.metrics import Metrics
from lognode.node.raft_in import Boot, RaftIn, frame, item
from lognode.raft.types import GroupId

GID = GroupId(7, 2)
MESSAGE = [2, 1, 1, 5]
REGISTERED: dict[int, Boot] = {2: (5, 50)}


class Parts:
    """A node that knows node 2, in boot 5, and has a replica of a group."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.clocks: dict[int, int] = {}
        self.pings: dict[int, int] = {}
        self.metrics = Metrics()
        replica = SimpleNamespace(
            fingerprint=b"f", receive=lambda sender, message: self.taken.append(sender)
        )
        parts: dict[str, Any] = {
            "replica": {GID: replica}.get,
            "confirmations": None,
            "pings": SimpleNamespace(heard=lambda node, boot, _: self.pings.update({node: boot})),
            "registered": REGISTERED.get,
            "clocks": SimpleNamespace(heard=lambda node, ms: self.clocks.update({node: ms})),
            "metrics": self.metrics,
        }
        self.raft_in = RaftIn(**parts)

    def take(self, sender: int, boot: Boot, clock_ms: int = 1) -> None:
        items = {"messages": [item(GID, b"f", MESSAGE)]}
        body = frame(items, boot=boot, clock_ms=clock_ms, ping=[0, 0, []])
        self.raft_in.take(sender, RAFT.request.check(body))

    def dropped(self, reason: str) -> float:
        value: float = self.metrics.raft_dropped.labels(reason)._value.get()
        return value


def test_a_later_boot_is_believed_before_it_is_registered() -> None:
    parts = Parts()
    parts.take(2, (5, 50))
    parts.take(2, (6, 60))
    parts.take(2, (5, 50))
    parts.take(2, (6, 61))
    assert parts.taken == [2, 2]
    assert parts.pings == {2: 6}
    assert parts.dropped("old_boot") == 2.0


@pytest.mark.parametrize("jump", [1, 1 << 30, 1 << 62])
def test_x2_24_an_impossible_boot_shuts_the_true_node_not_out(jump: int) -> None:
    """One frame in the name of a node with boot 2^62 made this node deaf to it until its end; sent
    to all, the controller elected nobody any more."""
    parts = Parts()
    last = 5 + limits.boot_jump_max
    parts.take(2, (last + jump, 60))
    assert (parts.taken, parts.clocks, parts.pings) == ([], {}, {})
    assert parts.dropped("boot_jump") == 1.0
    parts.take(2, (5, 50))
    assert parts.taken == [2]
    parts.take(2, (last, 60))
    assert parts.taken == [2, 2]


@pytest.mark.parametrize("boot", [-1, 1 << 63, (1 << 64) - 1, "5", None])
def test_what_is_no_boot(boot: Any) -> None:
    parts = Parts()
    for numbers in ((boot, 1), (1, boot)):
        with pytest.raises(InvalidArgument):
            parts.take(2, numbers)
    assert parts.taken == []


def test_x11_of_who_is_not_registered_only_messages_to_its_groups_count() -> None:
    """Any number of made-up ids could move the median of the clocks, and the table of boots grew
    with each."""
    parts = Parts()
    for sender in range(100, 200):
        parts.take(sender, (1, 1), clock_ms=limits.timestamp_max_ms)
    assert (parts.clocks, parts.pings) == ({}, {})
    assert parts.raft_in._boots == {}
    assert parts.dropped("unregistered") == 100.0
    assert len(parts.taken) == 100, "a replica takes them from its own members only"
    parts.take(2, (5, 50), clock_ms=7)
    assert parts.clocks == {2: 7}
