"""The ranges of a new log are made ahead in steps; apply comes to the same state without that."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol import limits
from lognode.node.replicas import controller_replica
from lognode.node.replicas.controller_replica import ControllerReplica
from lognode.partitions import commands, placement
from lognode.partitions.metadata import Metadata

MANY = [b"%x" % n + bytes(100) for n in range(limits.ranges_per_log_max - 1)]
BUSY = [*MANY[:100]]


class Cluster:
    """Seven nodes in seven zones, on which each choice of members takes longest."""

    def __init__(self) -> None:
        self.metadata = Metadata()
        self._index = 1
        self.apply({"op": commands.FOUND, "cluster": "c", "node": 1})
        for node in range(1, 8):
            self.apply({
                "op": commands.REGISTER, "incarnation": node, "boot": 1, "zone": f"z{node % 7}",
                "node": 1 if node == 1 else None, "address": f"h{node}:1", "http": "",
            })  # fmt: skip
        self.apply({"op": commands.CREATE_LOG, "name": "first", "split_at": BUSY, "replicas": 5})

    def apply(self, command: dict[str, Any]) -> dict[str, Any]:
        self._index += 1
        return self.metadata.apply(self._index, 1, command)

    def prepare(self, command: dict[str, Any]) -> int:
        return sum(1 for _ in self.metadata.prepare(command))


def create(**more: Any) -> dict[str, Any]:
    return {"op": commands.CREATE_LOG, "name": "large", "replicas": 7, "split_at": MANY, **more}


@pytest.mark.parametrize("how", ["at once", "ahead", "ahead and too early"])
def test_x2_22_a_log_has_the_same_ranges_however_they_are_made(how: str) -> None:
    expected, found, command = Cluster(), Cluster(), create()
    if how == "ahead":
        assert found.prepare(command) > len(MANY), "a step for each range"
    elif how == "ahead and too early":
        found.prepare(command)
    for each in (expected, found) if how == "ahead and too early" else ():
        # Both take ids and places that the prepared ranges have.
        each.apply({"op": commands.CREATE_LOG, "name": "between", "split_at": BUSY, "replicas": 3})
    assert found.apply(command) == expected.apply(create())
    assert found.metadata.image() == expected.metadata.image()
    assert len(found.metadata.logs) == 2 + (how == "ahead and too early")


def test_apply_takes_the_ranges_that_were_made_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, command = Cluster(), create()
    cluster.prepare(command)

    def choose(*_: Any) -> Any:
        raise AssertionError("apply chooses members again")

    monkeypatch.setattr(placement.Homes, "take", choose)
    assert "ok" in cluster.apply(command)


@pytest.mark.parametrize(
    "command",
    [
        create(split_at=[b"a", b"a"]), create(split_at=[b""]), create(split_at=5),
        create(split_at=[5]), create(split_at=None, ranges=0.5), create(name=["x"]),
        create(split_at=None, ranges=limits.ranges_per_log_max + 1), create(name="first"),
        create(name="first", exist_ok=True), create(replicas=99), {"op": commands.CREATE_LOG},
        {"op": ["unknown"]}, {"op": commands.DELETE_LOG, "name": "first"},
    ],
)  # fmt: skip
def test_a_command_that_was_prepared_ends_as_it_would_without(command: dict[str, Any]) -> None:
    expected, found = Cluster(), Cluster()
    found.prepare(command)
    if command["op"] == ["unknown"]:
        return
    assert found.apply(command) == expected.apply(command)
    assert found.metadata.image() == expected.metadata.image()


def test_a_replica_prepares_a_command_in_many_short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One turn took 95 ms of processor time."""
    now = [0.0]

    def perf_counter() -> float:
        now[0] += 0.0001  # a step takes as long
        return now[0]

    clock = SimpleNamespace(perf_counter=perf_counter, monotonic=time.monotonic)
    monkeypatch.setattr(controller_replica, "time", clock)
    cluster = Cluster()
    replica = ControllerReplica.__new__(ControllerReplica)
    replica.metadata, replica._next = cluster.metadata, None
    entry: Any = SimpleNamespace(index=9, term=1, command=commands.encode(create()))
    turns = 1
    while not replica.may_apply(entry):
        turns += 1
    assert turns > len(MANY) / 25
    replica.applied_term = 0
    assert replica.apply(entry) == ({"ok": {"log": 2, "created": True}},)
    assert replica._next is None
    empty: Any = SimpleNamespace(index=10, term=1, command=commands.NO_OP)
    assert replica.may_apply(empty)
    assert replica.apply(empty) == ()
