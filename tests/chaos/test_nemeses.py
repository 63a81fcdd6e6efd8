"""Each nemesis against three real nodes: it does what it says, and all is well after its end."""

import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from chaos_targets import LOG, healthy, real_nodes, until
from metrics_page import metric
from power_disks import is_mounted, need_fuse

import lognode
from lognode.chaos.clients import Clients
from lognode.chaos.history import Event, Recorder
from lognode.chaos.links import new_links
from lognode.chaos.nemeses import PACKAGES, Package, Target
from lognode.chaos.nemeses.clock import prepare, set_clock
from lognode.chaos.nemeses.corrupt import Blow, Corrupt
from lognode.chaos.nemeses.disk import FAILURES, Disk, Failure, commands
from lognode.chaos.nemeses.packet import Packet, Toxic
from lognode.chaos.nemeses.partition import Partition, apart
from lognode.chaos.nemeses.ranges import PHASES, Range, Step
from lognode.chaos.nemeses.slow_disk import SlowDisk
from lognode.chaos.nodes import Node
from lognode.chaos.plan import Plan
from lognode.chaos.powerfs.pace import Slowness
from lognode.chaos.workloads import parts
from lognode.chaos.workloads.named import workload_of

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
    """To both ranges, by the leader."""
    log = target.client.log(LOG)
    for key in (b"a", b"z"):
        await log.append(key, b"after")


@pytest.mark.by_hand
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


@pytest.mark.parametrize(
    "phase", [None, *(pytest.param(phase, marks=pytest.mark.by_hand) for phase in PHASES)]
)
def test_a_range_is_split_after_the_death_of_any_node(tmp_path: Path, phase: str | None) -> None:
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


def log_since(node: Node, size: int) -> list[dict[str, Any]]:
    """What the node logged after so many bytes."""
    lines = node.log_path.read_bytes()[size:].splitlines()
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def test_clock(tmp_path: Path) -> None:
    """A node's log shows its wall clock."""

    async def run() -> None:
        async with real_nodes(tmp_path, seed=7) as target:
            package = PACKAGES["clock"]()
            if reason := package.missing():
                pytest.skip(reason)
            node = target.nodes[2]
            await prepare(target, 2)
            await healthy(target)
            set_clock(target, 2, "-172800")
            size = node.log_path.stat().st_size
            assert await node.stop() == 0
            told = [datetime.fromisoformat(line["time"]) for line in log_since(node, size)]
            behind = [datetime.now(UTC) - at for at in told]
            assert behind
            assert all(timedelta(days=2) <= each < timedelta(days=2, minutes=5) for each in behind)
            await node.start()
            await healthy(target)
            what, numbers = await begun(package, target)
            assert "wall clock" in what
            assert numbers
            await package.end(target)
            await healthy(target)
            await appends(target)

    asyncio.run(run())


@pytest.mark.parametrize(
    "failure",
    [
        FAILURES[0],
        *(pytest.param(failure, marks=pytest.mark.by_hand) for failure in FAILURES[1:]),
    ],
    ids=lambda each: each.what.replace(" ", "-"),
)
def test_disk(tmp_path: Path, failure: Failure) -> None:
    """S1: a node whose disk fails stops itself, with the error and the file in its last line."""

    async def run() -> None:
        async with real_nodes(tmp_path, seed=8) as target:
            package = Disk()
            if reason := package.missing():
                pytest.skip(reason)
            number = await target.damage.next_victim(target)
            assert number is not None
            node = target.nodes[number]
            assert await package.fail(target, number, commands(failure)) is None
            # Every member writes rows to its meta.mdb for it.
            await target.client.admin.split(LOG, at=b"b", wait=False)

            async def has_ended() -> bool:
                await appends(target)
                return not node.running

            await until(has_ended, "the node ends", 30.0)
            assert os.strerror(failure.error) in node.log_tail(1)
            assert await package.begin(target) is None, "one node at a time, and when it is whole"
            await package.end(target)
            await healthy(target)
            await appends(target)
            assert await begun(package, target)
            await package.end(target)
            await healthy(target)

    asyncio.run(run())


@pytest.mark.parametrize(
    "place",
    [
        "wal",
        pytest.param("files", marks=pytest.mark.by_hand),
        pytest.param("meta", marks=pytest.mark.by_hand),
    ],
)
def test_S12_corrupt(tmp_path: Path, place: str) -> None:
    """What is damaged is found, or was of no use; nothing is lost, and the node comes back."""

    async def run() -> None:
        async with real_nodes(tmp_path, seed=9) as target:
            log, package = target.client.log(LOG), Corrupt()
            for n in range(100):
                await log.append(b"a", b"%d" % n * 100)
            await target.client.admin.split(LOG, at=b"b")  # which brings entries into segments
            await healthy(target)
            number = await target.damage.next_victim(target)
            assert number is not None
            blow = await package.strike(target, number, place)
            assert blow is not None
            assert blow.path.is_relative_to(target.nodes[number].data)
            await appends(target)
            if place == "meta" and not await serves(target.nodes[number]):
                assert not target.nodes[number].running
            await package.end(target)
            await healthy(target)

            async def is_over() -> bool:
                return bool(await target.damage.next_victim(target) == number)

            await until(is_over, "the node is whole, and the one to be damaged", 60.0)
            held = [entry.value async for entry in log.scan(b"a", limit=1000)]
            assert held[1:101] == [b"%d" % n * 100 for n in range(100)]

    asyncio.run(run())


@pytest.mark.by_hand
def test_a_node_that_another_package_has_just_started_gets_its_meta_back(tmp_path: Path) -> None:
    """It ran, for a moment, when `corrupt` ended, and never again."""

    async def run() -> None:
        async with real_nodes(tmp_path, seed=9) as target:
            package = Corrupt()
            number = await target.damage.next_victim(target)
            assert number is not None
            assert await package.strike(target, number, "meta") is not None
            node = target.nodes[number]
            await node.kill()
            (node.data / "meta.mdb").write_bytes(b"nothing")
            await node.start()
            await package.end(target)
            await node.wait_ready()
            await healthy(target)

    asyncio.run(run())


async def serves(node: Node) -> bool:
    """Whether it does, once that is clear."""
    try:
        await node.wait_ready()
    except lognode.LognodeError:
        return False
    return True


@pytest.mark.by_hand
def test_S12_a_flip_in_what_was_synced_is_found(tmp_path: Path) -> None:
    async def run() -> None:
        async with real_nodes(tmp_path, seed=10) as target:
            number = await target.damage.next_victim(target)
            assert number is not None
            node = target.nodes[number]
            await node.kill()
            (wal,) = (node.data / "wal").glob("wal-*")  # a spare is beside it
            # In the bytes of an entry that each member has.
            Blow(wal, "flipped", wal.read_bytes().index(b"first")).strike()
            await node.start()
            await node.wait_ready()
            refused = target.damage.refused(target)
            assert refused

            async def went_on() -> bool:
                """The node says with its next heartbeat what it refused: not healthy until then."""
                rows = (await target.client.status())["ranges"]
                return all(row["generation"] > refused.get(row["id"], 0) for row in rows)

            await until(went_on, "a generation without the damaged replica", 60.0)
            await healthy(target)
            await appends(target)

    asyncio.run(run())


@pytest.mark.parametrize("how", [pytest.param("refuse", marks=pytest.mark.by_hand), "drop"])
def test_partition(tmp_path: Path, how: Any) -> None:
    """A leader that is cut off leads no more, and does again nothing wrong after the end."""

    async def run() -> None:
        links = new_links("embedded")
        try:
            async with real_nodes(tmp_path, seed=11, links=links) as target:
                package = Partition()
                old = (await ranges_of(target))[0]["leader"]
                await package.cut(target, [(how, apart(target.nodes.numbers, [old]))])
                others = [node.advertised for node in target.nodes if node.number != old]
                async with lognode.AsyncClient("lognode://" + ",".join(others), timeout=5) as rest:

                    async def leads_elsewhere() -> bool:
                        try:
                            rows = (await rest.log(LOG).describe())["ranges"]
                        except lognode.LognodeError:
                            return False
                        return all(row["leader"] not in (old, None) for row in rows)

                    await until(leads_elsewhere, "a leader among the others", 30.0)
                    await rest.log(LOG).append(b"a", b"meanwhile")
                await package.end(target)
                await healthy(target)
                await appends(target)
                # Now as the package draws them.
                what, numbers = await begun(package, target)
                assert "partition" in what
                assert numbers
                await package.end(target)
                await healthy(target)
                await appends(target)
        finally:
            await links.close()

    asyncio.run(run())


def test_packet_latency_is_felt_and_ends(tmp_path: Path) -> None:
    async def run() -> None:
        links = new_links("embedded")
        try:
            async with real_nodes(tmp_path, seed=12, links=links) as target:
                loop = asyncio.get_running_loop()

                async def answer_s() -> float:
                    began = loop.time()
                    await target.client.log(LOG).count(b"a")
                    return loop.time() - began

                package = Packet()
                toxics = [Toxic("latency", {"latency": 150, "jitter": 0}, "upstream")]
                await package.poison(target, target.nodes.numbers, toxics)
                assert await answer_s() >= 0.15
                await package.end(target)
                await healthy(target)
                assert min([await answer_s() for _ in range(10)]) < 0.15
                for _ in range(6):
                    what, numbers = await begun(package, target)
                    assert what
                    assert numbers
                    await package.end(target)
                await healthy(target)
                await appends(target)
        finally:
            await links.close()

    asyncio.run(run())


async def typical_s(target: Target, key: bytes, count: int = 15) -> float:
    """The median of the seconds that an append takes."""
    took = []
    for _ in range(count):
        began = time.monotonic()
        await target.client.log(LOG).append(key, b"timed")
        took.append(time.monotonic() - began)
    return statistics.median(took)


async def leader_and_follower(target: Target) -> tuple[int, int]:
    """The leader of the key a, and a node that leads nothing, or only another range."""
    leader = (await ranges_of(target))[0]["leader"]
    status = await target.client.status()
    led = [row["leader"] for row in status["ranges"]]
    others = [number for number in target.nodes.numbers if number != leader]
    return leader, min(others, key=led.count)


@pytest.mark.parametrize(
    "writes",
    [
        pytest.param(False, id="fsyncs"),
        pytest.param(True, id="writes", marks=pytest.mark.by_hand),
    ],
)
def test_L3_a_slow_disk_is_felt_by_what_it_leads_and_nothing_else(
    tmp_path: Path, *, writes: bool
) -> None:
    """One disk takes 0.3 s: appends wait for that of their leader, and not for a follower's."""
    need_fuse()
    slowness = Slowness(0.3, 0.35, writes=writes)

    async def run() -> None:
        async with real_nodes(tmp_path, seed=13, mounted=True) as target:
            package = SlowDisk()
            leader, follower = await leader_and_follower(target)
            assert await typical_s(target, b"a") < 0.15
            package.slow(target, [follower], slowness)
            slow = await typical_s(target, b"a", 40)
            assert slow < 0.15, f"a slow follower is felt: an append takes {slow:.3f} s"
            await package.end(target)
            package.slow(target, [leader], slowness)
            assert await typical_s(target, b"a", 5) >= 0.3
            await package.end(target)
            assert await typical_s(target, b"a") < 0.15
            assert (await ranges_of(target))[0]["leader"] == leader, "the lead stayed"
            await healthy(target)

    asyncio.run(run())


@pytest.mark.by_hand
def test_slow_disks_go_on_at_the_end_and_are_drawn(tmp_path: Path) -> None:
    """What waits when it ends does not wait any longer; nobody ends the last one."""
    need_fuse()

    async def run() -> None:
        async with real_nodes(tmp_path, seed=14, mounted=True) as target:
            package = SlowDisk()
            package.slow(target, target.nodes.numbers, Slowness(60.0, 90.0))
            append = asyncio.create_task(target.client.log(LOG).append(b"a", b"waits"))
            assert not (await asyncio.wait([append], timeout=1.0))[0]
            await package.end(target)
            await asyncio.wait_for(append, 20.0)
            for _ in range(3):
                what, numbers = await begun(package, target)
                assert what.startswith("slow disk")
                assert numbers
                await appends(target)
                await package.end(target)
            await healthy(target)
            assert await begun(package, target)
        assert not any(is_mounted(node.data) for node in target.nodes)

    asyncio.run(run())


def test_L1_a_leader_whose_disk_hangs_is_followed_by_another(tmp_path: Path) -> None:
    """It answers pings and hears acks, and cannot commit: it is not a leader to keep."""
    need_fuse()

    async def run() -> None:
        async with real_nodes(tmp_path, seed=16, mounted=True) as target:
            package = SlowDisk()
            leader, _ = await leader_and_follower(target)
            package.slow(target, [leader], Slowness(60.0, 90.0))
            await target.client.log(LOG).append(b"a", b"meanwhile", timeout=20)
            assert (await ranges_of(target))[0]["leader"] != leader
            await package.end(target)
            await healthy(target)
            await appends(target)

    asyncio.run(run())


async def all_are_told(events: list[Event], processes: set[int]) -> None:
    """Return when each was told something that went well, from now on."""
    since = len(events)

    async def are_they() -> bool:
        return processes <= {event.process for event in events[since:] if event.type == "ok"}

    await until(are_they, f"clients {processes} are told something", 30.0)


async def all_wait(events: list[Event], processes: set[int]) -> None:
    """Return when each is in the middle of a call, and no other.

    Nodes that stand still send nothing, but the sockets of this process may hold answers that the
    clients did not read. So no event may come during ten looks.
    """
    lengths: list[int] = []

    async def do_they() -> bool:
        lengths.append(len(events))
        last = {event.process: event for event in events if event.process is not None}
        waiting = {number for number, event in last.items() if event.type == "invoke"}
        return processes == waiting and lengths[-10:] == [len(events)] * 10

    await until(do_they, f"only clients {processes} wait for an answer", 10.0)


def client_connections(target: Target) -> list[float]:
    """How many each node has."""
    return [metric(node, 'lognode_connections{role="client"}') for node in target.nodes]


def test_client(tmp_path: Path) -> None:
    """Cut off while no node answers: in the middle of a call for sure. Its number is not used
    again, another takes its slot, the others are told theirs, and no connection stays."""

    async def run(recorder: Recorder) -> None:
        async with real_nodes(tmp_path, seed=15) as target:
            await target.client.create_log(parts.LOG, split_at=["k5"])
            await healthy(target)
            before = client_connections(target)
            events, plan = recorder.events, Plan(rate=200, clients=8, timeout_s=30.0)
            workload = workload_of(plan.workload, random.Random(15))
            target.clients = Clients(plan, target.nodes.servers, workload, recorder)
            running = asyncio.create_task(target.clients.run())
            living: set[int] = set(range(plan.clients))
            ends: set[str] = set()
            while ends != {"info", "fail"}:  # who writes does not know, who reads does
                await all_are_told(events, living)
                for node in target.nodes:
                    node.pause()
                await stand_still(target, target.nodes.numbers)
                await all_wait(events, living)
                since = len(events)
                what, numbers = await asyncio.wait_for(begun(PACKAGES["client"](), target), 10.0)
                assert not numbers
                told = [event for event in events[since:] if event.type != "invoke"]
                assert len(told) == 1, told
                (crash,) = told
                assert crash.error == "CRASHED"
                assert crash.process in living
                slot = crash.process % plan.clients
                assert what == f"crash of the client in slot {slot}, {workload.role(slot)}"
                ends.add(crash.type)
                living = living - {crash.process} | {crash.process + plan.clients}
                for node in target.nodes:
                    node.resume()
                await all_are_told(events, living)
                assert [e for e in events[since:] if e.process == crash.process] == [crash]
            target.clients.stop()
            await asyncio.wait_for(running, 30.0)
            assert {event.error for event in events} == {None, "CRASHED"}

            async def are_closed() -> bool:
                return client_connections(target) == before

            await until(are_closed, f"no more connections of clients than {before}", 10.0)
            await healthy(target)
            await appends(target)

    with contextlib.closing(Recorder(tmp_path / "history.jsonl", time.monotonic_ns)) as recorder:
        asyncio.run(run(recorder))
