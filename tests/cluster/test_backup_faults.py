"""Backups and restores while nodes are killed and ranges change: every entry is there, once.

The nodes are processes. A gate lets the backup or the restore take its objects one at a time, so
that each fault happens in the middle of the work: while an object is held, or beside the requests
of the next object.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cluster_ranges import ranges_of

import lognode
from lognode import testing
from lognode.client.backup.create import create
from lognode.client.backup.manifest import Manifest
from lognode.client.backup.pace import Pace
from lognode.client.backup.restore import restore
from lognode.client.backup.store import Store
from lognode.client.backup.verify import manifest_of, verify
from lognode.client.objects import places
from lognode.testing import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster
SPLIT_AT = [f"k{at}" for at in range(1, 8)]
Fault = Callable[[], object]


class Step(NamedTuple):
    """Faults at one object: while the gate holds the object, and beside what comes next."""

    held: Fault | None = None
    beside: Fault | None = None


NOTHING = Step()


class Gate(Pace):
    """Stops the work after each object until the gate lets the next object through."""

    def __init__(self) -> None:
        super().__init__(None)
        self._free = asyncio.Semaphore(0)
        self._reached = asyncio.Event()
        self._waiting = 0
        self._passed = asyncio.Event()

    async def passed(self, count: int) -> None:
        self._waiting += 1
        self._reached.set()
        await self._free.acquire()
        self._waiting -= 1
        self._passed.set()
        if not self._waiting:
            self._reached.clear()

    async def around(self, work: Any, steps: Sequence[Step]) -> Any:
        """Do the work with the faults in its middle; return its result."""
        task = asyncio.ensure_future(work)
        for step in steps:
            await self._at_gate(task)
            if step.held is not None:
                await asyncio.to_thread(step.held)
            await self._let_through()
            if step.beside is not None:
                await asyncio.to_thread(step.beside)
        await self._at_gate(task)
        for _ in range(1_000):
            self._free.release()
        return await task

    async def _let_through(self) -> None:
        self._passed.clear()
        self._free.release()
        await self._passed.wait()

    async def _at_gate(self, task: "asyncio.Future[Any]") -> None:
        reached = asyncio.ensure_future(self._reached.wait())
        await asyncio.wait({task, reached}, return_when="FIRST_COMPLETED", timeout=60)
        assert reached.done(), f"the work does not reach the next object: {task}"


class Faults:
    """Faults of a cluster and its log."""

    def __init__(self, cluster: LocalCluster, log: str) -> None:
        self._cluster = cluster
        self._log = log
        self._killed: list[LocalNode] = []

    def kill_leader_of(self, key: str) -> None:
        """Kill the node that leads the range of a key."""
        with lognode.Client(self._cluster.servers) as client:
            rows = ranges_of(client, self._log)
            row = next(row for row in reversed(rows) if row["start"] <= key.encode())
            leader = row["leader"] or row["members"][0]
        node = next(node for node in self._cluster.nodes if node.number == leader)
        node.kill()
        self._killed.append(node)

    def start(self) -> None:
        """Start what was killed, and wait until each range has all members again."""
        for node in self._killed:
            node.start()
            node.wait_ready(timeout_s=60)
        self._killed.clear()
        testing.wait_healthy(self._cluster)

    def split(self, at: str) -> None:
        with lognode.Client(self._cluster.servers, timeout=60) as client:
            client.admin.split(self._log, at=at)

    def merge(self, at: str) -> None:
        with lognode.Client(self._cluster.servers, timeout=60) as client:
            client.admin.merge(self._log, at=at)


def fill(cluster: LocalCluster, name: str, rounds: int, seed: int) -> None:
    """A log of eight ranges; two were merged, so that one range has keys of unrelated seqs."""
    rng = random.Random(seed)
    with lognode.Client(cluster.servers, timeout=60) as client:
        log = client.create_log(name, split_at=SPLIT_AT, split_bytes=None, split_rate=None)
        for _ in range(rounds):
            log.append_many(
                [(f"k{rng.randrange(8)}-{rng.randrange(9)}", rng.randbytes(80), {"h": b"1"})
                 for _ in range(200)]
            )  # fmt: skip
        client.admin.merge(name, at="k3")
        log.append_many([(f"k{at % 8}", b"last") for at in range(40)])


@contextlib.contextmanager
def writing(cluster: LocalCluster, name: str) -> Iterator[None]:
    """Append to each range all the time."""
    ends = threading.Event()

    def write() -> None:
        with lognode.Client(cluster.servers, timeout=60) as client:
            log = client.log(name)
            while not ends.is_set():
                log.append_many([(f"k{at % 8}-{at}", b"meanwhile") for at in range(16)])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def entries(cluster: LocalCluster, log: str) -> list[Any]:
    with lognode.Client(cluster.servers, timeout=60) as client:
        return sorted(client.log(log).snapshot().read())


def held(manifest: Manifest, found: list[Any]) -> list[Any]:
    """The entries that the manifest's snapshot has: others came later."""

    def has(entry: Any) -> bool:
        for part in manifest.logs[0].parts:
            if part.start <= entry.key and (part.end is None or entry.key < part.end):
                return bool(entry.seq <= part.through_seq)
        raise AssertionError(f"no part has {entry.key!r}")

    return [entry for entry in found if has(entry)]


def backed_up(
    cluster: LocalCluster, log: str, place: Path, steps: Sequence[Step]
) -> tuple[Store, Manifest]:
    """Make a backup amid faults, check the backup, and return the backup."""
    store = Store.opened(places.opened(str(place)), None, create=True)

    async def run() -> Manifest:
        async with lognode.AsyncClient(cluster.servers) as client:
            gate = Gate()
            made = await gate.around(create(client, store, [log], gate, lambda *_: None), steps)
        manifest = await manifest_of(store, made.backup)
        assert await verify(store, manifest, Pace(None), lambda *_: None) == made.entries
        return manifest

    return store, asyncio.run(run())


def put_back(
    cluster: LocalCluster, store: Store, manifest: Manifest, steps: Sequence[Step]
) -> None:
    """Restore amid faults into a new log of the same name."""
    with lognode.Client(cluster.servers, timeout=60) as client:
        client.delete_log(manifest.logs[0].name)

    async def run() -> None:
        async with lognode.AsyncClient(cluster.servers) as client:
            gate = Gate()
            await gate.around(
                restore(client, store, manifest, [], None, gate, lambda *_: None), steps
            )

    asyncio.run(run())


def test_S6_a_backup_is_whole_though_leaders_die_and_ranges_change(
    three: LocalCluster, tmp_path: Path
) -> None:
    fill(three, "busy", 4, 1)
    faults = Faults(three, "busy")
    with writing(three, "busy"):
        store, manifest = backed_up(
            three, "busy", tmp_path / "store",
            [
                Step(beside=lambda: faults.kill_leader_of("k1")), Step(beside=faults.start),
                Step(beside=lambda: faults.split("k4-3")), Step(held=lambda: faults.merge("k6")),
            ],
        )  # fmt: skip
    wanted = held(manifest, entries(three, "busy"))
    assert len(wanted) >= 4 * 200 + 40
    put_back(three, store, manifest, [])
    assert entries(three, "busy") == wanted


def test_S6_a_restore_is_whole_though_a_node_dies_and_ranges_split(
    three: LocalCluster, tmp_path: Path
) -> None:
    fill(three, "quiet", 4, 2)
    store, manifest = backed_up(three, "quiet", tmp_path / "store", [])
    wanted = entries(three, "quiet")
    faults = Faults(three, "quiet")
    put_back(
        three, store, manifest,
        [
            NOTHING, Step(held=lambda: faults.split("k1-3")),
            Step(beside=lambda: faults.kill_leader_of("k3")), Step(beside=faults.start),
            Step(held=lambda: faults.split("k4-5")), NOTHING,
            Step(beside=lambda: faults.split("k7-5")),
        ],
    )  # fmt: skip
    assert entries(three, "quiet") == wanted
    with lognode.Client(three.servers, timeout=60) as client:
        assert {row["start"] for row in ranges_of(client, "quiet")} >= {b"k1-3", b"k4-5", b"k7-5"}
        for part in manifest.logs[0].parts:
            for key in (part.start or b"a", *part.bounds):
                assert client.log("quiet").append(key, b"x").seq == part.through_seq + 1
        for key in (b"k1-3", b"k4-5", b"k7-5"):  # a child of a split goes on where the parent was
            (part,) = [p for p in manifest.logs[0].parts if p.start <= key < (p.end or b"l")]
            assert client.log("quiet").append(key, b"x").seq == part.through_seq + 1


class RandomFaults(Faults):
    """Faults that a seed draws; a node that is down is started by the next fault."""

    def __init__(self, cluster: LocalCluster, log: str, seed: int) -> None:
        super().__init__(cluster, log)
        self._rng = random.Random(seed)
        self.done: list[str] = []

    def steps(self, count: int, *, merges: bool) -> list[Step]:
        """Faults at some of the next objects."""
        found = []
        for _ in range(count):
            held, beside = (self._fault(merges) if self._rng.random() < 0.5 else None
                            for _ in range(2))  # fmt: skip
            found.append(Step(held, beside))
        return found

    def _fault(self, merges: bool) -> Fault:
        kinds = ["kill", "kill", "split", "split", *(["merge"] if merges else [])]
        kind, key = self._rng.choice(kinds), f"k{self._rng.randrange(8)}"
        at = f"{key}-{self._rng.randrange(1, 9)}"
        return lambda: self._do(kind, key, at)

    def _do(self, kind: str, key: str, at: str) -> None:
        if self._killed:
            self.start()
        self.done.append(f"{kind} {at}")
        refused = (lognode.Conflict, lognode.OperationInProgress, lognode.InvalidArgument)
        with contextlib.suppress(*refused):
            if kind == "kill":
                self.kill_leader_of(key)
            elif kind == "split":
                self.split(at)
            else:
                self.merge(key)


@pytest.mark.by_hand
@pytest.mark.parametrize("seed", range(1, 7))
def test_S6_backups_and_restores_are_whole_amid_random_faults(
    three: LocalCluster, tmp_path: Path, seed: int
) -> None:
    log = f"random-{seed}"
    fill(three, log, 60, seed)
    faults = RandomFaults(three, log, seed)
    with writing(three, log):
        store, manifest = backed_up(
            three, log, tmp_path / "store", faults.steps(6, merges=True)
        )  # fmt: skip
    faults.start()
    wanted = held(manifest, entries(three, log))
    put_back(three, store, manifest, faults.steps(6, merges=False))
    faults.start()
    print(f"seed {seed}: {len(wanted)} entries; {', '.join(faults.done)}")
    assert entries(three, log) == wanted
