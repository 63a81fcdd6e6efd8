"""Where a node may begin: in a directory that is empty, or a node's."""

import logging
import os
import stat
from pathlib import Path

import pytest

from lognode.client.protocol.errors import InvalidArgument
from lognode.node.directory.data_directory import DataDirectory


def test_a_node_does_not_begin_among_the_files_of_another_program(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "d", "c"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(InvalidArgument) as caught:
        DataDirectory(tmp_path).open()
    assert caught.value.message == (
        f"{tmp_path} is not empty and is not the data directory of a node: the directory contains "
        "a.txt, b.txt, c and 1 more; give an empty or a new directory with --data"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt", "c", "d"]


@pytest.mark.parametrize("there", [(), ("lost+found",), ("lock",), ("meta.mdb", "notes.txt")])
def test_an_empty_disk_and_a_node_with_something_beside_it_are_right(
    tmp_path: Path, there: tuple[str, ...]
) -> None:
    root = tmp_path / "data"
    for name in there:
        root.mkdir(exist_ok=True)
        (root / name).touch()
    directory = DataDirectory(root)
    directory.open()
    directory.close()
    assert (root / "wal").is_dir()


def test_S1_the_names_in_a_directory_and_its_own_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a power cut could take meta.mdb, which nobody but the directory's fsync prevents."""
    directory = DataDirectory(tmp_path / "data")
    directory.open()
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    directory.sync()
    directory.close()
    assert synced == [str(tmp_path / "data"), str(tmp_path)]


def modes(root: Path) -> dict[str, int]:
    paths = [root, *root.rglob("*")]
    return {str(path.relative_to(root)): stat.S_IMODE(path.lstat().st_mode) for path in paths}


def test_a_new_directory_is_its_owner_s_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        directory = DataDirectory(tmp_path / "data")
        directory.open()
        directory.close()
    finally:
        os.umask(before)
    closed = dict.fromkeys((".", "wal", "files", "tmp"), 0o700)
    assert modes(tmp_path / "data") == {**closed, "lock": 0o600}


@pytest.mark.parametrize("opened", [".", "wal", "files"])
def test_a_directory_that_was_open_is_closed_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, opened: str
) -> None:
    root = tmp_path / "data"
    directory = DataDirectory(root)
    directory.open()
    directory.close()
    caplog.clear()
    for name in ("wal/0.wal", "files/segment", "meta.mdb", "tmp/fetch-part"):
        (root / name).touch(0o644)
    (root / opened).chmod(0o755)
    outside = tmp_path / "outside"
    outside.touch(0o644)
    (root / "files" / "link").symlink_to(outside)
    directory.open()
    directory.close()
    found = modes(root)
    del found["files/link"]
    for name, mode in found.items():
        assert mode == (0o700 if (root / name).is_dir() else 0o600), name
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644  # nothing is done behind a link
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert (
        record.message
        == "other users could open the data directory; the node has closed the directory to them"
    )
    caplog.clear()
    directory.open()
    directory.close()
    assert caplog.records == []
