"""Power cuts: who is hit, what is told, and that one that is cancelled ends on the disk first."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chaos_targets import CountedCrashes, NotedLinks

import lognode
from lognode.chaos.main import main
from lognode.chaos.nemeses import MOUNTED, PACKAGES, Target
from lognode.chaos.nemeses.power import WHO, aim
from lognode.chaos.nodes import Node
from lognode.chaos.powerfs import needs
from lognode.chaos.powerfs.backing import Lost

FIVE = [1, 2, 3, 4, 5]


class _Led:
    """A cluster that is led by some node."""

    leader = 4

    async def status(self, *, timeout: float) -> Any:
        return {"ranges": [{"log": "orders", "leader": self.leader}]}


class _Noted:
    """A node; `told` is what happened to all of them."""

    def __init__(self, number: int, told: list[str]) -> None:
        self.number = number
        self.told = told

    async def lose_power(self, seed: int) -> Lost:
        await asyncio.sleep(0)
        self.told.append(f"cut {self.number}")
        return Lost(2, 1)

    async def start(self) -> None:
        self.told.append(f"start {self.number}")

    def pause(self) -> None:
        self.told.append(f"pause {self.number}")

    def resume(self) -> None:
        self.told.append(f"resume {self.number}")


class _NotedNodes:
    def __init__(self, numbers: Sequence[int] = FIVE) -> None:
        self.numbers = list(numbers)
        self.told: list[str] = []

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: int) -> Any:
        return _Noted(number, self.told)


def target_of(nodes: Any, seed: int = 1) -> Target:
    client: Any = _Led()
    return Target(nodes, NotedLinks(), client, "orders", random.Random(seed), CountedCrashes())


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody misses writes for long."""
    monkeypatch.setattr("lognode.chaos.nemeses.power._MISSED_S", (0.0, 0.0))


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7])
def test_a_minority_misses_writes_and_another_node_dies(count: int) -> None:
    numbers = list(range(1, count + 1))
    victims, sides = set(), set()
    for seed in range(200):
        victim, minority = aim(random.Random(seed), numbers, [2], at_leader=False)
        assert victim not in minority
        assert 2 * len(minority) < count <= 2 * len(minority) + 2
        assert minority == sorted(set(minority) & set(numbers))
        victims.add(victim)
        sides.update(minority)
        assert aim(random.Random(seed), numbers, [2, 9], at_leader=True)[0] == 2
    assert victims == sides == set(numbers)
    assert aim(random.Random(1), numbers, [], at_leader=True)[0] in numbers


@pytest.mark.parametrize("name", ["part-kill", "pause-kill"])
@pytest.mark.usefixtures("soon")
def test_every_second_time_a_leader_dies_after_a_minority_has_gone(name: str) -> None:
    async def run() -> None:
        nodes = _NotedNodes()
        target = target_of(nodes)
        links: Any = target.links
        package: Any = PACKAGES[name]()
        victims = []
        for _ in range(40):
            nodes.told.clear()
            what, hit = await package.begin(target)
            (victim,) = (int(each.split()[1]) for each in nodes.told if each.startswith("cut"))
            away = [number for number in hit if number != victim]
            assert len(away) == 2
            assert f"power cut of node {victim}: 2 files were not synced, 1 names" in what
            if name == "part-kill":
                rest = set(FIVE) - set(away)
                assert set(links.now) == {(a, b) for a in away for b in rest} | {
                    (b, a) for a in away for b in rest
                }
            else:
                assert nodes.told == [*(f"pause {n}" for n in away), f"cut {victim}"]
            nodes.told.clear()
            await package.end(target)
            assert not links.now
            resumed = [f"resume {n}" for n in away] if name == "pause-kill" else []
            assert nodes.told == [*resumed, f"start {victim}"]
            nodes.told.clear()
            await package.end(target)
            assert not nodes.told, "a second end does nothing"
            victims.append(victim)
        assert set(victims[::2]) == {4}
        assert set(victims[1::2]) == set(FIVE)

    asyncio.run(run())


@pytest.mark.parametrize("name", ["part-kill", "pause-kill"])
def test_two_nodes_have_no_minority(name: str) -> None:
    assert asyncio.run(PACKAGES[name]().begin(target_of(_NotedNodes([1, 2])))) is None


def test_power_is_cut_of_one_a_minority_the_leaders_or_all() -> None:
    async def run() -> None:
        seen = set()
        package = PACKAGES["power"]()
        for seed in range(60):
            nodes = _NotedNodes()
            target = target_of(nodes, seed)
            begun = await package.begin(target)
            assert begun is not None
            what, hit = begun
            assert nodes.told == [f"cut {number}" for number in hit]
            assert f": {2 * len(hit)} files were not synced" in what
            seen.add(what.partition(":")[0])
            nodes.told.clear()
            await package.end(target)
            assert nodes.told == [f"start {number}" for number in hit]
        assert len(seen) == len(set(WHO))

    asyncio.run(run())


def test_packages_that_cut_power_say_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert set(PACKAGES) >= MOUNTED
    monkeypatch.setattr(needs, "DEVICE", tmp_path / "fuse")
    for name in MOUNTED:
        assert f"{tmp_path / 'fuse'} is missing" in str(PACKAGES[name]().missing())
    monkeypatch.setattr(needs, "DEVICE", Path("/dev/null"))
    monkeypatch.setattr(needs, "UNMOUNT", "no-such-program")
    assert "install Debian's packages fuse3 and libfuse3-3" in str(needs.missing())


def test_a_test_that_cannot_run_here_is_unknown_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(needs, "DEVICE", tmp_path / "fuse")
    assert main(["test", "--nemesis", "kill,power", "--store", str(tmp_path)]) == 2
    said = capsys.readouterr().out
    assert "append-kill+power-3 unknown: the test cannot run on this machine: power: " in said


class _SlowDisk:
    """Takes a few turns of the loop for all it does, and notes the begin and the end of it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._changing = asyncio.Lock()

    async def mount(self) -> None:
        await self._do("mount")

    async def cut(self, seed: int) -> Lost:
        await self._do("cut")
        return Lost(0, 0)

    async def _do(self, what: str) -> None:
        async with self._changing:
            self.told.append(f"{what} begins")
            for _ in range(3):
                await asyncio.sleep(0)
            self.told.append(f"{what} ends")


def test_a_cut_that_is_cancelled_ends_on_the_disk_first(tmp_path: Path) -> None:
    async def cancelled_after(turns: int) -> list[str]:
        node = Node(1, tmp_path, 1, 2, environment={}, mounted=True)
        disk: Any = _SlowDisk()
        node.disk = disk
        cutting = asyncio.create_task(node.lose_power(1))
        for _ in range(turns):
            await asyncio.sleep(0)
        cutting.cancel()
        await asyncio.wait([cutting])
        told: list[str] = disk.told
        return told

    whole = ["cut begins", "cut ends", "mount begins", "mount ends"]
    for turns in range(1, 15):
        assert asyncio.run(cancelled_after(turns)) == whole, turns


def test_a_disk_that_cannot_lose_power_says_so(tmp_path: Path) -> None:
    node = Node(1, tmp_path, 1, 2, environment={})
    with pytest.raises(
        lognode.Unavailable, match="node 1 cannot lose power or be slow; mount the disks with Nodes"
    ):
        asyncio.run(node.lose_power(1))
