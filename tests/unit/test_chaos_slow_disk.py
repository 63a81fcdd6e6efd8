"""Slow disks: who is hit, how slow they become, what their file systems are told, and the end."""

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chaos_targets import CountedCrashes, NotedLinks

import lognode
from lognode.chaos.nemeses import MOUNTED, PACKAGES, Target
from lognode.chaos.nemeses.slow_disk import HANGS, TAKES_S, SlowDisk, draw, words
from lognode.chaos.nodes import Node
from lognode.chaos.power_disk import PowerDisk
from lognode.chaos.powerfs import needs
from lognode.chaos.powerfs.pace import Slowness

FIVE = [1, 2, 3, 4, 5]
SLOW = Slowness(0.02, 0.05)


class _Led:
    """A cluster that is led by some node, which it tells when it is asked `slowly` enough."""

    slowly = False

    async def status(self, *, timeout: float) -> Any:
        if self.slowly:
            await asyncio.sleep(60)
        return {"ranges": [{"log": "orders", "leader": 4}]}


class _Noted:
    """A node; `slow` is how slow the disks of all are."""

    def __init__(self, number: int, slow: dict[int, Slowness]) -> None:
        self.number = number
        self.slow = slow

    def slow_down(self, slowness: Slowness) -> None:
        if self.number == 9:
            raise lognode.Unavailable("it has ended by itself")
        self.slow[self.number] = slowness

    def speed_up(self) -> None:
        self.slow.pop(self.number, None)


class _NotedNodes:
    def __init__(self, numbers: Sequence[int] = FIVE) -> None:
        self.numbers = list(numbers)
        self.slow: dict[int, Slowness] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: int) -> Any:
        return _Noted(number, self.slow)


def target_of(nodes: Any, seed: int = 1, *, slowly: bool = False) -> Target:
    client: Any = _Led()
    client.slowly = slowly
    return Target(nodes, NotedLinks(), client, "orders", random.Random(seed), CountedCrashes())


def test_every_slowness_is_drawn_and_has_words() -> None:
    drawn = {draw(random.Random(seed)) for seed in range(300)}
    assert {(each.least_s, each.most_s) for each in drawn} == set(TAKES_S)
    assert {each.hangs for each in drawn} == set(HANGS)
    assert len(drawn) == len({words(each) for each in drawn}) == 2 * len(TAKES_S) * len(HANGS)
    assert all(0.02 <= least < most <= 0.5 for least, most in TAKES_S)


@pytest.mark.parametrize(
    ("slowness", "said"),
    [(SLOW, "fsyncs take 20 to 50 ms"),
     (Slowness(0.1, 0.5, writes=True), "fsyncs and writes take 100 to 500 ms"),
     (Slowness(0.1, 0.5, hangs=0.02), "fsyncs take 100 to 500 ms, and some hang")],
)  # fmt: skip
def test_words(slowness: Slowness, said: str) -> None:
    assert words(slowness) == said


def test_disks_of_one_a_minority_the_leaders_or_all_are_slow_until_the_end() -> None:
    async def run() -> None:
        seen: dict[str, set[int]] = {}
        package = PACKAGES["slow-disk"]()
        for seed in range(200):
            nodes = _NotedNodes()
            target = target_of(nodes, seed)
            begun = await package.begin(target)
            assert begun is not None
            what, hit = begun
            assert sorted(nodes.slow) == hit
            assert len({each.seed for each in nodes.slow.values()}) == len(hit)
            assert {what.partition(": ")[2]} == {words(each) for each in nodes.slow.values()}
            seen.setdefault(what.partition(":")[0].partition(" of ")[2], set()).update(hit)
            nodes.slow[0] = SLOW
            await package.end(target)
            assert list(nodes.slow) == [0], "no other's"
            nodes.slow[hit[0]] = SLOW
            await package.end(target)
            assert list(nodes.slow) == [0, hit[0]], "a second end does nothing"
        assert set(seen) == {"one node", "a minority", "the leaders", "all nodes"}
        assert seen.pop("the leaders") == {4}
        assert all(hit == set(FIVE) for hit in seen.values())

    asyncio.run(run())


def test_the_same_seed_makes_the_same_disks_slow_alike() -> None:
    def run(seed: int) -> tuple[Any, dict[int, Slowness]]:
        nodes = _NotedNodes()
        return asyncio.run(PACKAGES["slow-disk"]().begin(target_of(nodes, seed))), nodes.slow

    assert run(5) == run(5) != run(6)


def test_one_that_was_not_told_leaves_none_slow() -> None:
    async def run() -> None:
        nodes = _NotedNodes([1, 9, 2])
        package, target = SlowDisk(), target_of(nodes)
        with pytest.raises(lognode.Unavailable):
            package.slow(target, [1, 9, 2], SLOW)
        assert list(nodes.slow) == [1]
        await package.end(target)
        assert not nodes.slow

    asyncio.run(run())


def test_one_that_is_cancelled_leaves_none_slow() -> None:
    async def run() -> None:
        nodes = _NotedNodes()
        package, target = SlowDisk(), target_of(nodes, slowly=True)
        beginning = asyncio.create_task(package.begin(target))
        await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.wait([beginning])
        assert not nodes.slow
        await package.end(target)
        assert not nodes.slow

    asyncio.run(run())


def test_a_slow_disk_needs_nodes_on_mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "slow-disk" in MOUNTED
    monkeypatch.setattr(needs, "DEVICE", tmp_path / "fuse")
    assert f"{tmp_path / 'fuse'} is missing" in str(SlowDisk().missing())
    node = Node(1, tmp_path, 1, 2, environment={})
    with pytest.raises(lognode.Unavailable, match="mount the disks with Nodes mounted"):
        node.slow_down(SLOW)
    with pytest.raises(lognode.Unavailable, match="mount the disks with Nodes mounted"):
        node.speed_up()


class _Pipe:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, data: bytes) -> None:
        self.lines.append(data.decode())


class _FileSystem:
    """A process that is told things."""

    def __init__(self, returncode: int | None = None) -> None:
        self.returncode = returncode
        self.stdin = _Pipe()


def mounted_by(disk: Any, process: _FileSystem) -> PowerDisk:
    disk._process = process
    return disk  # type: ignore[no-any-return]


def test_a_file_system_is_told_once_it_is_mounted(tmp_path: Path) -> None:
    async def run() -> None:
        node = Node(1, tmp_path, 1, 2, environment={}, mounted=True)
        assert node.disk is not None
        node.slow_down(SLOW)
        process = _FileSystem()
        disk: Any = mounted_by(node.disk, process)
        disk._tell_pace()
        node.speed_up()
        async with disk._changing:
            node.slow_down(SLOW)  # while it is cut: what follows hears of it
        (slow, fast) = process.stdin.lines
        assert slow.startswith("slow {")
        assert Slowness.from_line(slow.removeprefix("slow ")) == SLOW
        assert json.loads(slow.removeprefix("slow "))["most_s"] == 0.05
        assert fast == "fast\n"
        disk._tell_pace()
        assert process.stdin.lines[2] == slow

    asyncio.run(run())


def test_a_file_system_that_has_ended_is_told_of(tmp_path: Path) -> None:
    disk = mounted_by(PowerDisk(tmp_path / "node1"), _FileSystem(returncode=1))
    with pytest.raises(lognode.Unavailable, match="has ended by itself"):
        disk.slow(SLOW)
