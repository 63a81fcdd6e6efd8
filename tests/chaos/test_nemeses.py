"""Each nemesis against three real nodes: it does what it says, and all is well after its end."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from chaos_targets import LOG, healthy, real_nodes, until

import lognode
from lognode.chaos.nemeses import PACKAGES, Package, Target
from lognode.chaos.nemeses.ranges import PHASES, Range, Step
from lognode.chaos.nodes import Node

pytestmark = pytest.mark.cluster


def stands_still(node: Node) -> bool:
    """By the kernel: T is a process that was stopped."""
    stat = Path(f"/proc/{node.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


async def stand_still(target: Target, numbers: list[int]) -> None:
    """Return when these do and no others: the kernel delivers signals in its own time."""

    async def is_so() -> bool:
        return [node.number for node in target.nodes if stands_still(node)] == numbers

    await until(is_so, f"only nodes {numbers} stand still", 10.0)


async def begun(package: Package, target: Target) -> tuple[str, list[int]]:
    """A fault, once there is one to begin."""
    found = []

    async def is_begun() -> bool:
        found.append(await package.begin(target))
        return found[-1] is not None

    await until(is_begun, f"a fault of {package.name}", 60.0)
    assert found[-1] is not None
    return found[-1]


async def appends(target: Target) -> None:
    """To both ranges, by whoever leads."""
    log = target.client.log(LOG)
    for key in (b"a", b"z"):
        await log.append(key, b"after")


def test_kill(tmp_path: Path) -> None:
    async def run() -> None:
        async with real_nodes(tmp_path, seed=1) as target:
            package = PACKAGES["kill"]()
            before = {node.number: node.pid for node in target.nodes}
            what, numbers = await begun(package, target)
            assert what.startswith("kill of")
            for node in target.nodes:
                assert node.running == (node.number not in numbers)
            assert all(target.nodes[n].exit_code == -signal.SIGKILL for n in numbers)
            await package.end(target)
            await healthy(target)
            for node in target.nodes:
                assert (node.pid != before[node.number]) == (node.number in numbers)
            await appends(target)

    asyncio.run(run())


def test_pause(tmp_path: Path) -> None:
    async def run() -> None:
        async with real_nodes(tmp_path, seed=2) as target:
            package = PACKAGES["pause"]()
            for _ in range(3):
                what, numbers = await begun(package, target)
                assert what.startswith("pause of")
                await stand_still(target, numbers)
                await package.end(target)
                await stand_still(target, [])
            await healthy(target)
            await appends(target)

    asyncio.run(run())


async def ranges_of(target: Target) -> list[dict[str, Any]]:
    """Of the log, in the order of keys."""
    found: list[dict[str, Any]] = (await target.client.log(LOG).describe())["ranges"]
    return found


@pytest.mark.parametrize("phase", [None, *PHASES])
def test_a_range_is_split_whoever_dies(tmp_path: Path, phase: str | None) -> None:
    """`phase`: the controller's leader is killed in it."""

    async def run() -> None:
        async with real_nodes(tmp_path, seed=3) as target:
            package = Range()
            what, numbers = await package.take(target, Step("split", at=b"b"), phase)
            assert what.startswith("split at b")
            assert [node.number for node in target.nodes if not node.running] == numbers
            assert bool(numbers) == (phase is not None)

            async def is_split() -> bool:
                try:
                    return len(await ranges_of(target)) == 3
                except lognode.LognodeError:
                    return False

            await until(is_split, "three ranges", 60.0)
            await package.end(target)
            await healthy(target)
            await appends(target)

    asyncio.run(run())


def test_ranges_are_merged_and_led_by_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with real_nodes(tmp_path, seed=4) as target:
            package = Range()
            await package.take(target, Step("merge", at=b"m"), None)

            async def is_merged() -> bool:
                return len(await ranges_of(target)) == 1

            await until(is_merged, "one range", 60.0)
            await package.end(target)
            await healthy(target)
            (merged,) = await ranges_of(target)
            other = next(n for n in merged["members"] if n != merged["leader"])
            await package.take(target, Step("transfer", merged["id"], to_node=other), None)

            async def is_led() -> bool:
                return bool((await ranges_of(target))[0]["leader"] == other)

            await until(is_led, f"a lead of node {other}", 60.0)
            await package.end(target)
            await appends(target)

    asyncio.run(run())


def test_operations_are_drawn_for_the_cluster_as_it_is(tmp_path: Path) -> None:
    async def run() -> None:
        async with real_nodes(tmp_path, seed=6) as target:
            package = PACKAGES["range"]()
            kinds: set[str] = set()
            while kinds != {"split", "merge", "transfer"}:  # three nodes allow no others
                what, _ = await begun(package, target)
                kinds.add(what.split()[0])
                await package.end(target)
            await healthy(target)
            await appends(target)

    asyncio.run(run())


def test_a_drained_node_is_filled_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with real_nodes(tmp_path, seed=5, count=4) as target:
            package = Range()
            await package.take(target, Step("drain", node=2), None)

            async def state() -> str:
                rows = await target.client.admin.nodes()
                return next(str(row["state"]) for row in rows if row["id"] == 2)

            assert await state() == "DRAINING"
            await package.end(target)
            await healthy(target)
            assert await state() == "ACTIVE"
            await appends(target)

    asyncio.run(run())
