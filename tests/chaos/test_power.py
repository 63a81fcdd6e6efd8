"""Power cuts and slow disks, on real FUSE: what files, LMDB, a WAL and real nodes find."""

import asyncio
import fcntl
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chaos_targets import LOG, healthy, real_nodes, until
from power_disks import is_mounted, mounted, need_fuse

import lognode
from lognode.chaos.links import new_links
from lognode.chaos.nemeses import PACKAGES
from lognode.chaos.nodes import Node
from lognode.chaos.power_disk import PowerDisk
from lognode.chaos.powerfs.pace import Slowness
from lognode.statemachine.meta import LmdbMeta
from lognode.statemachine.write_back import write_back

SUPPORT = Path(__file__).parents[1] / "support"


def sync_names(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


@pytest.mark.slow
def test_S1_synced_data_survives_and_cached_pages_do_not(tmp_path: Path) -> None:
    """In a path with spaces. What was only written is lost in some cuts, and not in all."""
    point = tmp_path / "a node's data"

    async def run() -> None:
        point.mkdir()
        (point / "before").write_bytes(b"before")
        ends = set()
        async with mounted(point) as disk:
            assert (point / "before").read_bytes() == b"before"
            for seed in range(12):
                fd = os.open(point / f"{seed}", os.O_RDWR | os.O_CREAT, 0o644)
                os.pwrite(fd, b"old", 0)
                os.fdatasync(fd)
                sync_names(point)
                os.pwrite(fd, b"new", 0)
                (point / f"nameless-{seed}").write_bytes(b"x")
                assert os.pread(fd, 3, 0) == b"new"
                await disk.cut(seed)  # with the file open, as by a process that outlives its node
                assert not is_mounted(point)
                os.close(fd)
                await disk.mount()
                ends.add((point / f"{seed}").read_bytes())
        assert ends == {b"old", b"new"}
        assert not is_mounted(point)
        assert (point / "before").read_bytes() == b"before"
        assert 0 < len(list(point.glob("nameless-*"))) < 12

    asyncio.run(run())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a node's data", "a node's data.powerfs.log",
    ]  # fmt: skip


def test_a_relative_path_can_be_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        monkeypatch.chdir(tmp_path)
        async with mounted(Path("store/node1")):
            (tmp_path / "store/node1/a").write_bytes(b"a")
            assert is_mounted(tmp_path / "store/node1")
        assert (tmp_path / "store/node1/a").read_bytes() == b"a"

    asyncio.run(run())


def test_a_write_to_a_file_opened_with_dsync_is_synced(tmp_path: Path) -> None:
    """As LMDB writes the page that makes a transaction whole."""
    point = tmp_path / "node"

    async def run() -> None:
        async with mounted(point) as disk:
            for seed in range(8):
                name = point / str(seed)
                fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_DSYNC, 0o644)
                sync_names(point)
                os.pwrite(fd, b"synced", 0)
                os.close(fd)
                await disk.cut(seed)
                await disk.mount()
                assert name.read_bytes() == b"synced"

    asyncio.run(run())


def test_calls_that_nodes_make_of_a_disk_work(tmp_path: Path) -> None:
    point = tmp_path / "node"

    async def run() -> None:
        async with mounted(point):
            fd = os.open(point / "a", os.O_RDWR | os.O_CREAT, 0o644)
            os.posix_fallocate(fd, 0, 8192)
            with mmap.mmap(fd, 8192, access=mmap.ACCESS_READ) as pages:
                assert pages[:6] == bytes(6)
                os.pwritev(fd, [b"map", b"ped"], 0)
                assert pages[:6] == b"mapped"
            with mmap.mmap(fd, 8192) as shared:
                shared[4096:4099] = b"out"
            assert os.pread(fd, 3, 4096) == b"out"
            write_back(point / "a")  # sync_file_range
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            other = os.open(point / "a", os.O_RDWR)
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(other)
            os.ftruncate(fd, 6)
            assert os.fstat(fd).st_size == 6
            os.rename(point / "a", point / "b")
            os.unlink(point / "b")
            assert os.pread(fd, 9, 0) == b"mapped"
            os.pwrite(fd, b"M", 0)
            os.fsync(fd)
            os.close(fd)
            (point / "folder").mkdir()
            (point / "folder" / "c").write_bytes(b"")
            assert [path.name for path in point.iterdir()] == ["folder"]
            assert os.listdir(point / "folder") == ["c"]
            assert os.statvfs(point).f_bavail > 0
            with pytest.raises(OSError, match="not supported"):
                os.rename(point / "folder", point / "other")

    asyncio.run(run())


COMMITS = """
import sys
from pathlib import Path
from lognode.statemachine.meta import LmdbMeta
meta = LmdbMeta(Path(sys.argv[1]), map_bytes=1 << 24)
number = meta.get("last") or 0
while True:
    number += 1
    meta.commit({"last": number, f"row/{number % 50}": [number, bytes(2000)]})
    print(number, flush=True)
"""


@pytest.mark.slow
def test_S1_S2_lmdb_commits_survive_power_cuts(tmp_path: Path) -> None:
    """A process commits and tells each, is killed, and loses power; fifteen times."""
    point, rng = tmp_path / "node", random.Random(5)

    async def run() -> None:
        async with mounted(point) as disk:
            for life in range(15):
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", COMMITS, str(point / "meta.mdb"),
                    stdout=asyncio.subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )  # fmt: skip
                assert process.stdout is not None
                await process.stdout.readline()
                if not life:
                    sync_names(point)
                await asyncio.sleep(rng.uniform(0.0, 0.1))
                process.kill()
                told = (await process.stdout.read()).split()
                assert await process.wait() == -signal.SIGKILL
                await disk.cut(rng.getrandbits(32))
                await disk.mount()
                meta = LmdbMeta(point / "meta.mdb", map_bytes=1 << 24)
                last = meta.get("last")
                assert last is not None
                assert last >= max(map(int, told), default=1)
                assert all(row[0] <= last for _, row in meta.items("row/"))
                meta.close()

    asyncio.run(run())


@pytest.mark.by_hand
@pytest.mark.slow
def test_S1_S2_storage_loses_power_at_its_steps(tmp_path: Path) -> None:
    """`LOGNODE_POWER_CUTS` of the failpoints of test_storage_failpoints.py, 0 for all of them; and
    power is lost again in the recovery."""
    need_fuse()
    count = os.environ.get("LOGNODE_POWER_CUTS", "16")
    seed = str(random.randrange(1 << 31))
    done = subprocess.run(
        [sys.executable, SUPPORT / "storage_power.py", tmp_path, seed, count],
        capture_output=True, text=True, timeout=1800,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    print(f"seed {seed}\n{done.stdout}")
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.4])
def test_a_cut_that_is_cancelled_leaves_the_disk_mounted(tmp_path: Path, after_s: float) -> None:
    async def run() -> None:
        need_fuse()
        node = Node(1, tmp_path, 1, 2, environment={}, mounted=True)
        assert node.disk is not None
        try:
            await node.disk.mount()
            (node.data / "a").write_bytes(b"unsynced")
            cutting = asyncio.create_task(node.lose_power(1))
            await asyncio.wait([cutting], timeout=after_s)
            cutting.cancel()
            await asyncio.wait([cutting])
            assert is_mounted(node.data)
            (node.data / "b").write_bytes(b"b")
        finally:
            await node.disk.close()
        assert not is_mounted(node.data)
        assert (node.data / "b").read_bytes() == b"b"

    asyncio.run(run())


def test_a_file_system_that_died_is_told_and_leaves_no_mount(tmp_path: Path) -> None:
    point = tmp_path / "node"

    async def run() -> None:
        async with mounted(point) as disk:
            assert disk.pid is not None
            os.kill(disk.pid, signal.SIGKILL)

            async def told() -> str:
                while True:
                    try:
                        await disk.mount()
                    except lognode.Unavailable as error:
                        return error.message
                    await asyncio.sleep(0.01)

            assert "has ended by itself" in await asyncio.wait_for(told(), 10)
        assert not is_mounted(point)

    asyncio.run(run())


@pytest.mark.slow
def test_a_disk_is_slow_through_cuts_until_it_is_fast_again(tmp_path: Path) -> None:
    point = tmp_path / "node"

    async def run() -> None:
        async with mounted(point) as disk:
            fd = -1

            async def takes_s(call: Callable[[], object]) -> float:
                began = time.monotonic()
                await asyncio.to_thread(call)
                return time.monotonic() - began

            def write() -> None:
                os.pwrite(fd, b"a", 0)

            def sync() -> None:
                os.fdatasync(fd)

            async def heard(*, slow: bool) -> None:
                """It is told without an answer."""

                async def is_it() -> bool:
                    return (await takes_s(write) >= 0.6) == slow

                await until(is_it, f"slow={slow}", 10.0)

            disk.slow(Slowness(0.6, 0.7))
            for seed in range(2):
                fd = os.open(point / "a", os.O_RDWR | os.O_CREAT, 0o644)
                assert await takes_s(write) < 0.6
                await asyncio.sleep(0.1)  # it is told without an answer
                assert await takes_s(sync) >= 0.6
                assert await takes_s(lambda: sync_names(point)) >= 0.6
                os.close(fd)
                await disk.cut(seed)
                await disk.mount()
            fd = os.open(point / "a", os.O_RDWR)
            disk.slow(Slowness(0.6, 0.7, writes=True))
            await heard(slow=True)
            disk.slow(None)
            await heard(slow=False)
            assert await takes_s(sync) < 0.6
            assert os.pread(fd, 1, 0) == b"a"
            os.close(fd)

    asyncio.run(run())


SYNC = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(fd, b"a", 0)
print("syncs", flush=True)
os.fsync(fd)
"""


def test_a_slow_disk_can_be_closed_under_a_process_that_waits_for_it(tmp_path: Path) -> None:
    """As by a test that is cancelled; nothing is lost, as slow as it was."""
    point = tmp_path / "node"

    async def run() -> None:
        async with mounted(point) as disk:
            disk.slow(Slowness(60.0, 90.0))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", SYNC, str(point / "a"), stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            assert process.stdout is not None
            assert await process.stdout.readline() == b"syncs\n"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(process.wait(), 0.5)
            await asyncio.wait_for(disk.close(), 20.0)
            await asyncio.wait_for(process.wait(), 20.0)
        assert not is_mounted(point)
        assert (point / "a").read_bytes() == b"a"

    asyncio.run(run())


ORPHAN = """
import asyncio, os, sys
from pathlib import Path
from lognode.chaos.power_disk import PowerDisk
async def run():
    await PowerDisk(Path(sys.argv[1])).mount()
    os._exit(7)
asyncio.run(run())
"""


def test_a_test_that_is_killed_leaves_no_mount(tmp_path: Path) -> None:
    need_fuse()
    point = tmp_path / "node"
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN, str(point)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 7

    async def gone() -> bool:
        return not is_mounted(point)

    asyncio.run(until(gone, "the end of the mount", 20.0))


def test_a_failed_mount_is_reported_and_leaves_nothing_behind(tmp_path: Path) -> None:
    point = tmp_path / "node"
    point.mkdir()
    (point / "a").write_bytes(b"a")

    async def run() -> None:
        need_fuse()
        disk = PowerDisk(point)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lognode.chaos.power_disk.LIBRARY", "no-such-library")
            with pytest.raises(
                lognode.Unavailable,
                match="mounting a file system that can lose power or be slow at",
            ):
                await disk.mount()
        await disk.close()

    asyncio.run(run())
    assert (point / "a").read_bytes() == b"a"
    assert not is_mounted(point)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "name",
    [
        "power",
        pytest.param("part-kill", marks=pytest.mark.by_hand),
        pytest.param("pause-kill", marks=pytest.mark.by_hand),
    ],
)
def test_S1_S2_nodes_lose_power_and_nothing_that_was_acknowledged(
    tmp_path: Path, name: str
) -> None:
    need_fuse()

    async def run() -> None:
        links = new_links("embedded")
        try:
            async with real_nodes(tmp_path, seed=13, links=links, mounted=True) as target:
                log, package = target.client.log(LOG), PACKAGES[name]()
                told: list[bytes] = []
                for round_ in range(4):
                    writing = asyncio.create_task(_write(log, round_, told))
                    await asyncio.sleep(0.3)
                    begun = await package.begin(target)
                    assert begun is not None
                    what, numbers = begun
                    assert "power cut of" in what
                    assert numbers
                    await package.end(target)
                    await healthy(target)
                    await writing
                held = {entry.value async for entry in log.scan(b"a", limit=100_000)}
                assert set(told) <= held
                assert len(told) > 50
            assert not any(is_mounted(node.data) for node in target.nodes)
        finally:
            await links.close()

    asyncio.run(run())


async def _write(log: Any, round_: int, told: list[bytes]) -> None:
    """For some seconds, noting what was acknowledged."""
    deadline = asyncio.get_running_loop().time() + 4.0
    number = 0
    while asyncio.get_running_loop().time() < deadline:
        value = b"%d-%d" % (round_, number) + bytes(1024)
        number += 1
        try:
            await log.append(b"a", value)
        except lognode.LognodeError:
            continue
        told.append(value)
