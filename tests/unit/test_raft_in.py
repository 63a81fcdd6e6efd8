"""Frames of Raft messages: whose count, and whose clocks, pings and boots are believed."""

import random
import time
from types import SimpleNamespace
from typing import Any

import pytest
from call_counts import Counting, Events
from raft_wal import GID as LOGGED
from raft_wal import open_wal

from lognode.chaos.sim.disk import SimDisk
from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument, LimitExceeded, RemoteProtocolError
from lognode.client.protocol.kinds import Row
from lognode.client.protocol.peers import RAFT
from lognode.node.links import peers
from lognode.node.links.raft_in import Boot, RaftIn, frame, item
from lognode.node.metrics import Metrics
from lognode.raft import journal
from lognode.raft.group import Group
from lognode.raft.types import GroupId, RaftOptions

GID = GroupId(7, 2)
MESSAGE = [2, 1, 1, 5]
CALLS_AN_ENTRY = 22
LINES_AN_ENTRY = 46
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
def test_a_malformed_boot_is_refused(boot: Any) -> None:
    parts = Parts()
    for numbers in ((boot, 1), (1, boot)):
        with pytest.raises(InvalidArgument):
            parts.take(2, numbers)
    assert parts.taken == []


def test_x11_an_unregistered_node_may_only_send_messages_to_its_groups() -> None:
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


# How much one frame may bring.


def body_of(messages: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    """A checked frame of node 2."""
    items = {"messages": [item(GID, b"f", each) for each in messages or []], **more}
    return RAFT.request.check(frame(items, boot=(5, 50), clock_ms=1, ping=[0, 0, []]))


def append(count: int) -> list[Any]:
    """The first entries of a group."""
    return [1, 1, 1, 1, 0, 1, [[1, b"\0"]] * count]


MOST = limits.raft_parts_max
QUESTIONS = [1, 1, [[7, 2, b"f", 1]] * 2_000]
TOO_MUCH: dict[str, dict[str, Any]] = {
    "two appends": {"messages": [append(MOST), append(1)]},
    "many appends": {"messages": [append(100)] * 50},
    "questions and answers": {"reads": [QUESTIONS] * 2, "answers": [[1, 1, [None] * 97]]},
    "a little of each": {
        "messages": [append(1_400)], "reads": [QUESTIONS], "answers": [[1, 1, [0] * 1_400]],
    },
}  # fmt: skip


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_frame_that_would_take_a_long_turn_is_refused_whole(what: str) -> None:
    parts = Parts()
    with pytest.raises(RemoteProtocolError, match="4,096 are allowed"):
        parts.raft_in.take(2, body_of(**TOO_MUCH[what]))
    assert (parts.taken, parts.clocks, parts.pings) == ([], {}, {})


@pytest.mark.parametrize(
    ("field", "row"), [("reads", QUESTIONS), ("answers", [1, 1, [None] * 2_000])]
)
def test_rounds_with_too_many_parts_are_refused_before_the_parts_are_checked(
    field: str, row: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Row, "check_all", lambda *_: pytest.fail("a row was checked"))
    with pytest.raises(LimitExceeded, match="elements in all; allowed are 0 to 4,096"):
        body_of(**{field: [row] * 20})


def test_the_largest_frame_of_a_node_is_accepted() -> None:
    longest = max(journal._SLICE_ENTRIES_MAX, limits.raft_round_reads_max)
    assert peers._FRAME_COST + longest < MOST, "the last message is one that fills the frame"
    parts = Parts()
    parts.raft_in.take(2, body_of([append(MOST)]))
    assert parts.taken == [2]
    for strange in ([], [1], [1, 5], [1, []], [1, {"a": 1}], [[], []]):
        parts.raft_in.take(2, body_of([strange]))


def events_of_append(count: int) -> Events:
    """The Python-level events in which a member takes an append of `count` small entries."""
    log = open_wal(SimDisk(random.Random(1)), file_bytes=1 << 20).create_group(LOGGED)
    group = Group(
        log=log, node_id=1, members=(1, 2, 3), applied_index=0, clock=time.monotonic,
        rng=random.Random(1), options=RaftOptions(),
    )  # fmt: skip
    group.start()
    group.connected(2, 1)
    parts = Parts()
    replica = SimpleNamespace(fingerprint=b"f", receive=group.receive)
    parts.raft_in._replica = {GID: replica}.get  # type: ignore[assignment]
    entries = [[1, b"\0entry %d" % n] for n in range(count)]
    body = body_of([[*append(0)[:-1], entries]])
    with Counting().counted() as found:
        parts.raft_in.take(2, body)
    assert group.last_index == 1 + count
    return Events(
        sum(events.calls for events in found.values()),
        sum(events.lines for events in found.values()),
    )


def test_an_entry_of_an_append_takes_few_lines_of_python() -> None:
    """30,000 small entries in one message took 99 ms; the limit is MOST, 9 to 12 ms. This test does
    not measure time, which doubles on a busy machine."""
    few, many = events_of_append(MOST // 4), events_of_append(MOST)
    entries = MOST - MOST // 4
    calls, lines = (many.calls - few.calls) / entries, (many.lines - few.lines) / entries
    assert calls < CALLS_AN_ENTRY, (calls, lines)
    assert lines < LINES_AN_ENTRY, (calls, lines)
