"""Disks that are full or fail: one error that names file and cause, nothing half, nothing lost.

A limit on the size of files (EFBIG) stands for a full disk: the kernel refuses the same calls in
the same places, and part of a write may have been made.
"""

import contextlib
import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest
from raft_wal import sync

from lognode.client.protocol.errors import CorruptData, Unavailable
from lognode.client.protocol.invariants import DiskFailure
from lognode.client.protocol.records import encode_batch
from lognode.raft.os_disk import OsDisk
from lognode.raft.types import GroupId
from lognode.raft.wal import Wal
from lognode.statemachine import commands
from lognode.statemachine.builder import Builder
from lognode.statemachine.meta import LmdbMeta
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segments import SegmentStore

G1 = GroupId(1, 1)
FILE_BYTES = 1 << 16


@contextlib.contextmanager
def full_above(size: int) -> Iterator[None]:
    """No file may grow above `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def open_wal(directory: Path) -> tuple[Wal, OsDisk]:
    directory.mkdir(exist_ok=True)
    disk = OsDisk(directory)
    return Wal.open(disk, entropy=random.Random(7).randbytes, file_bytes=FILE_BYTES), disk


# The WAL.


def append_once(directory: Path) -> None:
    wal, _ = open_wal(directory)
    wal.groups[G1].append(3, 1, b"\0new")
    sync(wal)


@pytest.mark.parametrize("room", [0, 100, 5000, FILE_BYTES - 1])
def test_hole_12_a_full_disk_at_a_new_wal_file_is_one_error_and_loses_nothing(
    tmp_path: Path, room: int
) -> None:
    wal, disk = open_wal(tmp_path / "wal")
    log = wal.create_group(G1)
    synced = 1
    while wal._offset < FILE_BYTES - 1100:
        log.append(synced + 1, 1, b"\0" * 1000)
        sync(wal)
        synced += 1
    log.append(synced + 1, 1, b"\0" * 1000)
    failed = rf"writing {tmp_path}/wal/spare-0000000002 failed: File too large \(EFBIG\)"
    with full_above(room), pytest.raises(DiskFailure, match=failed):
        sync(wal)
    disk.close()
    wal, disk = open_wal(tmp_path / "wal")
    assert not wal.recovery.damaged
    assert wal.groups[G1].last_index == synced > 50
    wal.groups[G1].append(synced + 1, 1, b"\0again")
    sync(wal)
    disk.close()
    wal, disk = open_wal(tmp_path / "wal")
    assert wal.groups[G1].entry(synced + 1).command == b"\0again"
    disk.close()


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "fsync", "pread"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_hole_12_any_failing_call_is_a_disk_failure_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    wal, disk = open_wal(tmp_path / "wal")
    wal.create_group(G1).append(2, 1, b"\0old")
    sync(wal)
    disk.close()

    def failing(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, failing)
    with pytest.raises(DiskFailure, match=rf"{tmp_path}/wal.*failed: {os.strerror(number)}"):
        append_once(tmp_path / "wal")
    monkeypatch.undo()
    wal, disk = open_wal(tmp_path / "wal")
    assert wal.groups[G1].entry(2).command == b"\0old"
    disk.close()


def test_a_write_that_the_kernel_cuts_short_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(tmp_path)
    disk.create("file", 8000)
    real_pwritev, real_pwrite = os.pwritev, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: real_pwritev(fd, [parts[0][:7]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_pwrite(fd, data[:11], at))
    parts = [bytes([n]) * 10 for n in range(1, 60)]
    disk.write("file", 100, parts)
    assert disk.read("file", 100, 590) == b"".join(parts)
    assert disk.read("file", 0, 100) == bytes(100)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="file"):
        disk.write("file", 0, parts)
    disk.close()


def test_s12_an_entry_that_is_not_what_was_written_is_not_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal, disk = open_wal(tmp_path / "wal")
    wal.create_group(G1).append(2, 1, b"\0" + b"value" * 30)
    sync(wal)
    disk.close()
    wal, disk = open_wal(tmp_path / "wal")
    path = tmp_path / "wal" / "wal-0000000001"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"value", b"VALUE", 1))
    with pytest.raises(CorruptData, match="entry 2"):
        wal.groups[G1].entry(2)
    disk.close()


# Segments.


def frozen_state(directory: Path) -> tuple[RangeState, SegmentStore]:
    (directory / "files").mkdir(exist_ok=True)
    store = SegmentStore(directory / "files")
    state = RangeState(start=b"", end=None, store=store)
    rng = random.Random(1)
    for index in range(2, 12):
        keys = [b"%04d" % rng.randrange(500) for _ in range(100)]
        data = encode_batch(keys, [rng.randbytes(200) for _ in keys], producer=7, epoch=1, low=1,
                            numbers=1 + 100 * index)  # fmt: skip
        state.apply(index, 1, commands.encode(commands.APPEND, index, [data]))
    return state, store


def test_s2_a_segment_that_the_disk_cannot_hold_leaves_no_file_and_no_gap(tmp_path: Path) -> None:
    state, store = frozen_state(tmp_path)
    before = [entry for key in state.keys(limit=999)
              for entry in state.scan(key, limit=999, bytes_max=1 << 30).entries()]  # fmt: skip
    frozen = state.freeze()
    assert frozen is not None
    builder = Builder()
    path = tmp_path / "build-1"
    pid = builder._running().pid
    for room in (0, 4096, 50_000, 200_000):
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, hard))
        with pytest.raises(
            Unavailable, match=r"building the segment failed: .*build-1: .*(large|space|output)"
        ):
            builder.build(path, 1, frozen.sources())
        assert not path.exists()
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
    info = builder.build(path, 1, frozen.sources())
    assert builder._running().pid == pid
    builder.stop()
    store.add(path, info.content_id)
    state.flushed(state.base_with(frozen, info))
    after = [entry for key in state.keys(limit=999)
             for entry in state.scan(key, limit=999, bytes_max=1 << 30).entries()]  # fmt: skip
    assert after == before
    assert len(after) == 1000


# Meta.


def test_s12_a_meta_transaction_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    meta = LmdbMeta(tmp_path / "meta.mdb", map_bytes=1 << 26)
    meta.commit({"a": 1, "b": 1})
    size = (tmp_path / "meta.mdb").stat().st_size
    with (
        full_above(size),
        pytest.raises(DiskFailure, match=r"writing .*meta\.mdb failed: .*(large|space)"),
    ):
        meta.commit({"a": 2, "big": bytes(8 << 20)}, ["b"])
    assert (meta.get("a"), meta.get("b"), meta.get("big")) == (1, 1, None)
    meta.close()
    meta = LmdbMeta(tmp_path / "meta.mdb", map_bytes=1 << 26)
    assert [key for key, _ in meta.items("")] == ["a", "b"]
    meta.commit({"a": 3})
    assert meta.get("a") == 3
    meta.close()


KILLED = """
import sys
from pathlib import Path
from lognode.statemachine.meta import LmdbMeta
meta = LmdbMeta(Path(sys.argv[1]), map_bytes=1 << 26)
number = (meta.get("x") or {"n": 0})["n"]
while True:
    number += 1
    row = {"n": number, "filler": bytes(number % 30 * 1000)}
    meta.commit({"x": row, "y": row, f"z/{number % 50}": number}, [f"z/{(number + 25) % 50}"])
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_S2_meta_has_its_name_once_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power left a file of half an environment, and the node could not start any more."""
    path = tmp_path / "meta.mdb"
    (tmp_path / "meta.mdb.new").write_bytes(b"\xff" * 8_192)  # of a start that was cut off
    seen: list[bool] = []

    def fail(self: Path, target: Path) -> None:
        with contextlib.closing(
            lmdb.open(str(self), subdir=False, readonly=True, lib_version=0)
        ) as made:
            seen.append(made.stat()["entries"] == 0 and not target.exists())
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(DiskFailure, match=r"making .*meta\.mdb failed"):
            LmdbMeta(path, map_bytes=1 << 26)
    assert seen == [True]
    assert [each.name for each in tmp_path.iterdir()] == ["meta.mdb-lock"]
    meta = LmdbMeta(path, map_bytes=1 << 26)
    assert path.stat().st_size >= 4 << 20, "pages for a full disk"
    meta.close()


@pytest.mark.slow
def test_S2_meta_killed_at_any_moment_of_a_commit_has_all_of_it_or_nothing(tmp_path: Path) -> None:
    """LMDB's own steps cannot be told apart from outside: so, at random moments."""
    rng = random.Random(1)
    path, told = tmp_path / "meta.mdb", 0
    for _ in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 60)):
            told = int(process.stdout.readline())
        time.sleep(rng.random() * 0.002)
        process.send_signal(signal.SIGKILL)
        for line in process.stdout:
            told = int(line)
        process.stdout.close()
        process.wait()
        meta = LmdbMeta(path, map_bytes=1 << 26)
        first, second = meta.get("x"), meta.get("y")
        assert first is not None
        assert first == second
        assert told <= first["n"] <= told + 1
        assert meta.get(f"z/{first['n'] % 50}") == first["n"]
        assert meta.get(f"z/{(first['n'] + 25) % 50}") is None
        meta.close()
