"""The files of a WAL keep few descriptors open, whatever their number."""

import os
import threading
from pathlib import Path

import pytest

from lognode.raft.os_disk import OsDisk


def open_files(directory: Path) -> list[str]:
    """Names of the files in the directory that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
        if path.parent == directory:
            found.append(path.name)
    return sorted(found)


def filled(directory: Path, count: int, open_max: int) -> OsDisk:
    """So many files, each holding its own name."""
    disk = OsDisk(directory, open_max=open_max)
    for n in range(count):
        disk.create(f"f{n:03}", 100)
        disk.write(f"f{n:03}", 0, [b"f%03d" % n])
        disk.sync(f"f{n:03}")
    return disk


def test_only_the_files_used_last_stay_open(tmp_path: Path) -> None:
    disk = filled(tmp_path, 50, open_max=4)
    assert open_files(tmp_path) == ["f046", "f047", "f048", "f049"]
    for n in range(50):
        assert disk.read(f"f{n:03}", 0, 4) == b"f%03d" % n
        assert len(open_files(tmp_path)) == 4
    disk.read("f007", 0, 1)
    assert "f007" in open_files(tmp_path)
    disk.close()
    assert open_files(tmp_path) == []


def test_a_file_that_is_written_and_not_synced_stays_open(tmp_path: Path) -> None:
    """A new descriptor might never hear that the write failed."""
    disk = filled(tmp_path, 10, open_max=2)
    disk.write("f003", 0, [b"more"])
    disk.truncate("f004", 50)
    disk.create("new", 10)
    disk.rename("new", "renamed")
    for n in range(10):
        disk.read(f"f{n:03}", 0, 1)
        assert {"f003", "f004", "renamed"} <= set(open_files(tmp_path))
    for name in ("f003", "f004", "renamed"):
        disk.sync(name)
    disk.read("f000", 0, 1)
    disk.read("f001", 0, 1)
    assert open_files(tmp_path) == ["f000", "f001"]
    disk.close()


def test_a_deleted_file_is_closed(tmp_path: Path) -> None:
    disk = filled(tmp_path, 3, open_max=8)
    disk.write("f001", 0, [b"more"])
    disk.delete("f001")
    assert open_files(tmp_path) == ["f000", "f002"]
    assert disk.names() == ["f000", "f002"]
    disk.close()


@pytest.mark.slow
def test_two_threads_read_and_write_and_nobody_gets_the_bytes_of_another_file(
    tmp_path: Path,
) -> None:
    """A descriptor that is closed while a call uses it may be that of another file by then."""
    disk = filled(tmp_path, 30, open_max=2)
    wrong: list[bytes] = []
    stop = threading.Event()

    def read() -> None:
        n = 0
        while not stop.is_set():
            n = (n + 7) % 30
            data = disk.read(f"f{n:03}", 0, 4)
            if data != b"f%03d" % n:
                wrong.append(data)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for turn in range(900):
            n = turn % 30
            disk.write(f"f{n:03}", 4, [b"%08d" % turn])
            disk.sync(f"f{n:03}")
    finally:
        stop.set()
        thread.join()
    assert wrong == []
    assert disk.read("f029", 4, 8) == b"%08d" % 899
    assert len(open_files(tmp_path)) <= 3
    disk.close()
