"""Writers of WAL rounds: on the thread of the WAL, or on a thread that needs no Python.

A thread of Python takes the interpreter before each system call and after. While the loop works,
each time is a wait. The compiled writer (`_writer.c`) takes bytes and a descriptor, and
tells the end of its work through a descriptor that the loop watches. Rounds that begin a file, and
rounds of a file that is not open, go to the thread of the WAL in any case. One round is under way
at a time, so the order of rounds stays.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ...client.protocol.invariants import DiskFailure
from ...client.protocol.native import load
from ...raft.os_disk import OsDisk
from ...raft.wal import Round, Wal
from ...raft.wal_scan import file_name
from .sync_thread import SyncThread

Written = Callable[[None, BaseException | None], None]
"""Gets None, and the error of the round if it failed."""
compiled: Final[Any] = load("._writer", __package__)
"""The compiled module; None without a compiler and where there is no eventfd."""


class WalWriter:
    """Writes rounds on the thread of the WAL."""

    def __init__(self, wal: Wal, thread: SyncThread) -> None:
        self._wal = wal
        self._thread = thread

    def write(self, round_: Round, done: Written) -> None:
        """Write a round, and sync it if it must be synced; the loop calls `done` afterwards."""
        self._thread.submit(partial(self._wal.write, round_), done)

    def close(self) -> None:
        """Finish the round under way and end. Blocks. The thread is the caller's."""


class CompiledWriter(WalWriter):
    """Writes rounds on a thread without Python.

    `on_failure` is called with every DiskFailure before `done` is. `on_sync` gets the seconds of
    each sync.
    """

    def __init__(
        self, wal: Wal, thread: SyncThread, disk: OsDisk, *,
        on_failure: Callable[[BaseException], None], on_sync: Callable[[float], None],
    ) -> None:  # fmt: skip
        super().__init__(wal, thread)
        self._disk = disk
        self._on_failure = on_failure
        self._on_sync = on_sync
        self._under_way: tuple[Round, Written] | None = None
        self._writer = compiled.Writer()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._writer.fileno(), self._look)

    def write(self, round_: Round, done: Written) -> None:
        fd = None if round_.rotation is not None else self._disk.lend_open(file_name(round_.file))
        if fd is None:
            super().write(round_, done)
            return
        self._under_way = round_, done
        self._writer.submit(fd, round_.offset, round_.buffers, round_.must_sync)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.remove_reader(self._writer.fileno())
        self._writer.close()

    def _look(self) -> None:
        """Take the end of the round under way."""
        found, under_way = self._writer.take(), self._under_way
        if found is None or under_way is None:
            return  # the descriptor told the end of a round that was taken already
        step, number, seconds = found
        (round_, done), self._under_way = under_way, None
        name = file_name(round_.file)
        synced = round_.must_sync and not step
        self._disk.written(name, synced=synced)
        if step != "write":
            self._wal.written(synced=synced)
        if step:
            error = OSError(number, os.strerror(number), self._disk.path(name))
            failure = DiskFailure.of("fdatasync of" if step == "sync" else "writing", error, name)
            self._on_failure(failure)
            done(None, failure)
        else:
            done(None, None)
        if round_.must_sync and step != "write":
            self._on_sync(seconds)  # after `done`, whose messages do not wait for metrics
