"""The folder behind the file system that loses power, without FUSE."""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lognode.chaos.powerfs.backing import Backing, Lost


def tree(backing: Backing) -> dict[str, bytes | None]:
    """Content by path; None is a directory."""
    return {
        f"/{path.relative_to(backing.root)}": path.read_bytes() if path.is_file() else None
        for path in backing.root.rglob("*")
    }


def put(backing: Backing, path: str, content: bytes, *, sync: bool = False) -> None:
    """A new file."""
    fd = backing.make(path, 0o644)
    backing.write(fd, 0, content)
    if sync:
        backing.sync(fd)
    backing.close(fd)


def after_cuts(
    folder: Path, work: Callable[[Backing], object], count: int = 60
) -> list[dict[str, bytes | None]]:
    """What is left of the same work, cut by many seeds."""
    found = []
    for seed in range(count):
        backing = Backing(folder / str(seed))
        work(backing)
        backing.cut_power(random.Random(seed))
        found.append(tree(backing))
        assert found[-1] == tree(Backing(folder / str(seed)))
    return found


def test_a_file_synced_with_its_name_stays(tmp_path: Path) -> None:
    def work(backing: Backing) -> None:
        backing.make_directory("/wal", 0o755)
        put(backing, "/wal/1", b"content", sync=True)
        backing.sync_directory("/wal")

    assert all(left == {"/wal": None, "/wal/1": b"content"} for left in after_cuts(tmp_path, work))


def test_a_synced_file_needs_its_name_and_a_name_keeps_no_content(tmp_path: Path) -> None:
    def work(backing: Backing) -> None:
        put(backing, "/nameless", b"content", sync=True)
        put(backing, "/empty", b"content")
        backing.sync_directory("/")
        put(backing, "/later", b"content", sync=True)

    left = after_cuts(tmp_path, work)
    assert all(each["/nameless"] == b"content" for each in left)
    assert {each["/empty"] for each in left} == {b"", b"content"}
    assert {each.get("/later") for each in left} == {None, b"content"}


def test_S1_a_write_after_the_sync_is_lost_and_the_one_before_is_not(tmp_path: Path) -> None:
    def work(backing: Backing) -> None:
        fd = backing.make("/a", 0o644)
        backing.sync_directory("/")
        backing.write(fd, 0, b"old" * 1000)
        backing.sync(fd)
        backing.write(fd, 0, b"new" * 1000)
        backing.close(fd)

    assert {each["/a"] for each in after_cuts(tmp_path, work)} == {b"old" * 1000, b"new" * 1000}


def test_removed_or_replaced_files_may_return(tmp_path: Path) -> None:
    def work(backing: Backing) -> None:
        put(backing, "/a", b"a", sync=True)
        put(backing, "/b", b"b", sync=True)
        put(backing, "/c", b"c", sync=True)
        backing.sync_directory("/")
        backing.remove("/a")
        backing.rename("/c", "/b")

    seen = {tuple(sorted(each.items())) for each in after_cuts(tmp_path, work)}
    a, old, new = ("/a", b"a"), (("/b", b"b"), ("/c", b"c")), (("/b", b"c"),)
    assert seen == {(a, *old), (a, *new), old, new}


def test_deleted_files_take_no_space(tmp_path: Path) -> None:
    backing = Backing(tmp_path)
    put(backing, "/a", b"a")
    put(backing, "/b", b"b")
    backing.sync_directory("/")
    backing.remove("/a")
    put(backing, "/c", b"c")
    backing.rename("/c", "/b")
    spares = tmp_path / "spares"
    assert len(list(spares.iterdir())) == 2
    backing.sync_directory("/")
    assert not list(spares.iterdir())
    assert backing.cut_power(random.Random(1)) == Lost(1, 0)


def test_directories_come_and_go(tmp_path: Path) -> None:
    def work(backing: Backing) -> None:
        backing.make_directory("/old", 0o755)
        backing.sync_directory("/")
        backing.remove_directory("/old")
        backing.make_directory("/new", 0o755)
        put(backing, "/new/a", b"")

    seen = {frozenset(each) for each in after_cuts(tmp_path, work, 200)}
    assert seen == {
        frozenset({*old, *new})
        for old in ((), ("/old",))
        for new in ((), ("/new",), ("/new", "/new/a"))
    }


def test_sizes_are_content(tmp_path: Path) -> None:
    def work(backing: Backing) -> None:
        put(backing, "/a", b"content", sync=True)
        put(backing, "/b", b"content", sync=True)
        put(backing, "/c", b"content", sync=True)
        backing.sync_directory("/")
        fd = backing.open("/a", os.O_RDWR)
        backing.resize(fd, 3)
        backing.close(fd)
        fd = backing.open("/b", os.O_RDWR)
        backing.reserve(fd, 0, 9)
        backing.close(fd)
        backing.close(backing.open("/c", os.O_WRONLY | os.O_TRUNC))

    left = after_cuts(tmp_path, work)
    assert {each["/a"] for each in left} == {b"con", b"content"}
    assert {each["/b"] for each in left} == {b"content", b"content\0\0"}
    assert {each["/c"] for each in left} == {b"", b"content"}


def test_a_file_that_is_removed_while_it_is_open_goes_on(tmp_path: Path) -> None:
    backing = Backing(tmp_path)
    fd = backing.make("/a", 0o644)
    backing.write(fd, 0, b"one")
    backing.remove("/a")
    backing.sync_directory("/")
    backing.write(fd, 0, b"two")
    assert backing.read(fd, 0, 9) == b"two"
    backing.close(fd)
    assert backing.cut_power(random.Random(1)) == Lost(0, 0)


def test_after_a_cut_nothing_is_done(tmp_path: Path) -> None:
    backing = Backing(tmp_path)
    fd = backing.make("/a", 0o644)
    backing.sync_directory("/")
    backing.cut_power(random.Random(1))
    calls: list[Callable[[], object]] = [
        lambda: backing.write(fd, 0, b"x"), lambda: backing.read(fd, 0, 1),
        lambda: backing.sync(fd), lambda: backing.resize(fd, 1), lambda: backing.at("/a"),
        lambda: backing.make("/b", 0o644), lambda: backing.remove("/a"),
        lambda: backing.rename("/a", "/b"), lambda: backing.sync_directory("/"),
        lambda: backing.make_directory("/b", 0o755), lambda: backing.cut_power(random.Random(1)),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(OSError, match="power was cut") as caught:
            call()
        assert caught.value.errno == errno.EIO
    backing.close(fd)
    assert tree(backing) == {"/a": b""}


def test_directories_are_not_renamed(tmp_path: Path) -> None:
    backing = Backing(tmp_path)
    backing.make_directory("/a", 0o755)
    with pytest.raises(OSError, match="not supported") as caught:
        backing.rename("/a", "/b")
    assert caught.value.errno == errno.ENOTSUP
