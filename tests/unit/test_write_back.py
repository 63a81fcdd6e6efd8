"""Writing a file back in steps: what it is asked to do, and what it may not hide."""

import ctypes
import errno
import threading
from pathlib import Path

import pytest

from lognode.statemachine.write_back import write_back


class System:
    """Stands for the C library; fails from the n-th call on."""

    def __init__(self, failing: int = 0, number: int = 0) -> None:
        self.asked: list[tuple[int, int]] = []
        self._failing, self._number = failing, number

    def sync_file_range(self, fd: int, offset: int, count: int, flags: int) -> int:
        self.asked.append((offset, count))
        if len(self.asked) == self._failing:
            ctypes.set_errno(self._number)
            return -1
        return 0


def asked(monkeypatch: pytest.MonkeyPatch, path: Path, system: System) -> list[tuple[int, int]]:
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: _Callable(system))
    write_back(path)
    return system.asked


class _Callable:
    def __init__(self, system: System) -> None:
        def call(fd: int, offset: int, count: int, flags: int) -> int:
            return system.sync_file_range(fd, offset, count, flags)

        self.sync_file_range = call


def test_every_byte_is_written_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes((5 << 20) // 2))
    write_back(path)  # by the system that is here
    assert asked(monkeypatch, path, System()) == [(at << 20, 1 << 20) for at in range(3)]


def test_a_system_without_it_is_not_asked_again_and_a_failed_write_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 << 20))
    assert len(asked(monkeypatch, path, System(1, errno.ENOSYS))) == 1
    with pytest.raises(OSError, match="Input/output error"):
        asked(monkeypatch, path, System(2, errno.EIO))


def test_a_file_that_nobody_needs_any_more_is_not_written_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 << 20))
    system, given_up = System(), threading.Event()
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: _Callable(system))
    given_up.set()
    with pytest.raises(InterruptedError, match="nobody needs the file"):
        write_back(path, given_up)
    assert system.asked == [(0, 1 << 20)]
