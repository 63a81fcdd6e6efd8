"""A node brings the level of the metadata to its directory and to the ranges that it leads."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.levels import LEVEL_MAX
from lognode.node.directory import meta_keys
from lognode.node.metrics import Metrics
from lognode.node.runtime.sync_thread import SyncThread
from lognode.node.upkeep import levels
from lognode.node.upkeep.levels import Levels
from lognode.partitions.levels import Program
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import NodeRecord
from lognode.raft.types import GroupId
from lognode.statemachine import commands
from lognode.statemachine.meta import LmdbMeta


class Replica:
    """A replica of a range, which keeps what is proposed to it."""

    def __init__(self, range_id: int, *, leads: bool = True) -> None:
        self.gid = GroupId(range_id, 1)
        self.state = SimpleNamespace(level=1)
        self.stopped = False
        self.leads = leads
        self.proposed: list[tuple[int, int]] = []

    def propose_in_passing(self, kind: int, payload: int) -> bool:
        if self.leads:
            self.proposed.append((kind, payload))
        return self.leads


class Upkeep:
    """The part under test, on a directory, with two ranges of which one is led here."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(levels.time, "monotonic", lambda: self.now)
        self.meta, self.sync, self.metadata = LmdbMeta(path), SyncThread("files"), Metadata()
        self.led, self.followed = Replica(1), Replica(2, leads=False)
        self.ranges = (self.led, self.followed)
        self.metadata.nodes[1] = NodeRecord(1, "", "", "", 1, 1, "ACTIVE")
        self.metadata.nodes[2] = NodeRecord(2, "", "", "", 2, 1, "ACTIVE")
        self.metadata.nodes[3] = NodeRecord(3, "", "", "", 3, 1, "REMOVED")
        self.programs = {node: Program(1, 0, 1, 2, "9.9", noted=2) for node in (1, 2)}
        self.ends: list[LognodeError] = []
        self.metrics = Metrics()
        self.part = self.again()

    def again(self) -> Levels:
        host: Any = SimpleNamespace(ranges=lambda: self.ranges)
        view: Any = SimpleNamespace(metadata=self.metadata, programs=self.programs)
        return Levels(
            host=host, view=view, meta=self.meta, sync=self.sync, on_end=self.ends.append,
            metrics=self.metrics,
        )  # fmt: skip

    def look(self) -> None:
        asyncio.run(self.part.look())


@pytest.fixture
def upkeep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Upkeep(tmp_path / "meta.mdb", monkeypatch)
    yield found
    found.sync.close()
    found.meta.close()


def test_nothing_is_written_at_the_first_level(upkeep: Upkeep) -> None:
    upkeep.look()
    assert (upkeep.led.proposed, upkeep.meta.get(meta_keys.LEVEL)) == ([], None)
    assert b"\nlognode_feature_level 1.0\n" in upkeep.metrics.exposition()


def test_the_leader_proposes_the_level_until_it_is_applied(upkeep: Upkeep) -> None:
    upkeep.metadata.feature_level = 2
    for _ in range(3):
        upkeep.look()
    assert upkeep.led.proposed == [(commands.LEVEL, 2)]
    assert upkeep.meta.get(meta_keys.LEVEL) == 2
    upkeep.now += 5.0  # the entry was lost with another leader
    upkeep.look()
    assert upkeep.led.proposed == [(commands.LEVEL, 2)] * 2
    upkeep.led.state.level = 2
    upkeep.now += 5.0
    upkeep.look()
    assert len(upkeep.led.proposed) == 2
    assert b"\nlognode_feature_level 2.0\n" in upkeep.metrics.exposition()


@pytest.mark.parametrize("other", [None, Program(1, 0, 1, 2, "9.9", noted=1)])
def test_no_range_follows_before_all_directories_have_noted_the_level(
    upkeep: Upkeep, other: Program | None
) -> None:
    """An earlier program could start on a directory whose replicas have entries of the level."""
    noted = upkeep.programs.pop(2)
    if other is not None:
        upkeep.programs[2] = other
    upkeep.metadata.feature_level = 2
    upkeep.look()
    assert (upkeep.led.proposed, upkeep.part.noted) == ([], 2)
    upkeep.programs[2] = noted
    upkeep.look()
    assert upkeep.led.proposed == [(commands.LEVEL, 2)]
    assert upkeep.again().noted == 2


def test_a_range_that_is_led_here_later_follows_later(upkeep: Upkeep) -> None:
    upkeep.metadata.feature_level = 2
    upkeep.look()
    upkeep.followed.leads = True
    upkeep.look()
    assert upkeep.followed.proposed == [(commands.LEVEL, 2)]


def test_a_range_that_begins_after_all_others_have_followed_follows_too(upkeep: Upkeep) -> None:
    upkeep.metadata.feature_level = upkeep.led.state.level = upkeep.followed.state.level = 2
    upkeep.look()
    late = Replica(3)
    upkeep.ranges = (*upkeep.ranges, late)
    upkeep.look()
    assert (upkeep.led.proposed, late.proposed) == ([], [(commands.LEVEL, 2)])
    late.state.level = 2
    upkeep.look()
    upkeep.metadata.feature_level, upkeep.now = 3, upkeep.now + 5.0
    upkeep.programs.update({node: Program(1, 0, 1, 3, "9.9", noted=3) for node in (1, 2)})
    upkeep.look()
    assert (commands.LEVEL, 3) in late.proposed


def test_x2_24_a_refusal_after_the_level_was_noted_survives_a_start(upkeep: Upkeep) -> None:
    upkeep.metadata.feature_level = 2
    upkeep.look()
    upkeep.meta.commit({meta_keys.REFUSED: "it is an old copy"})
    upkeep.part = upkeep.again()
    upkeep.look()
    assert upkeep.meta.get(meta_keys.REFUSED) == "it is an old copy"


def test_a_node_ends_at_a_level_that_its_program_does_not_know(upkeep: Upkeep) -> None:
    upkeep.metadata.feature_level = LEVEL_MAX + 1
    upkeep.look()
    (error,) = upkeep.ends
    assert error.message.startswith(f"the cluster is at feature level {LEVEL_MAX + 1}, and this")
    assert (upkeep.led.proposed, upkeep.meta.get(meta_keys.LEVEL)) == ([], None)
