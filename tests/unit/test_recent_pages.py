"""Which files of a node have their pages in the kernel's memory."""

import os
from pathlib import Path
from typing import Final

import pytest

from lognode.client.protocol import limits
from lognode.statemachine import recent_pages
from lognode.statemachine.recent_pages import RecentPages
from lognode.statemachine.segments import SegmentStore

SIZE: Final = 1 * limits.MIB


def write(path: Path) -> Path:
    """A synced file with its pages in memory."""
    with open(path, "wb") as file:
        file.write(os.urandom(SIZE))
        os.fsync(file.fileno())
    return path


def in_memory(path: Path) -> bool:
    """Whether the first page of a file is in the kernel's memory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A directory whose files are on a disk, not in memory alone."""
    path = write(tmp_path / "trial")
    recent_pages.forget_pages(path)
    if in_memory(path):
        pytest.skip("the file system of the temporary directory is in memory")
    return tmp_path


def test_the_newest_files_keep_their_pages(disk: Path) -> None:
    pages, files = RecentPages(3 * SIZE), [write(disk / str(n)) for n in range(6)]
    for path in files[:3]:
        pages.written(path)
    assert all(map(in_memory, files))
    for path in files[3:5]:
        pages.written(path)
    assert [in_memory(path) for path in files] == [False, False, True, True, True, True]
    files[2].unlink()
    pages.written(files[5])
    assert [in_memory(path) for path in files[3:]] == [True] * 3


def test_pages_that_a_read_brings_back_stay(disk: Path) -> None:
    pages, files = RecentPages(SIZE), [write(disk / str(n)) for n in range(4)]
    pages.written(files[0])
    pages.written(files[1])
    assert not in_memory(files[0])
    files[0].read_bytes()
    for path in files[2:]:
        pages.written(path)
    assert in_memory(files[0])


def test_a_file_larger_than_all_that_is_kept_goes_at_once(disk: Path) -> None:
    path = write(disk / "large")
    RecentPages(SIZE - 1).written(path)
    assert not in_memory(path)


def test_few_small_files_are_noted(disk: Path) -> None:
    pages = RecentPages(SIZE)
    for n in range(100):
        path = disk / str(n)
        path.write_bytes(b"x")
        pages.written(path)
    assert len(pages._files) == 16


def test_a_store_keeps_the_pages_of_its_newest_files(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_pages, "KEPT_BYTES", 2 * SIZE)
    files = disk / "files"
    files.mkdir()
    store = SegmentStore(files)
    for n in range(4):
        store.add(write(disk / "new"), f"{n:064x}")
    assert [in_memory(store.path(f"{n:064x}")) for n in range(4)] == [False, False, True, True]
