"""What a node takes from its process: threads, child processes, disks, stores, and its own end.

A node has the surroundings of a real process by default. The simulator gives a node others
(`chaos/whole/`).
"""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ...client.objects import places
from ...client.objects.store import ObjectStore
from ...raft.os_disk import OsDisk
from ...raft.wal import Wal
from ...statemachine.builder import Builder
from ...statemachine.merge_process import Merger
from .sync_thread import SyncThread
from .turn_time import of_running_loop
from .wal_writer import CompiledWriter, WalWriter, compiled
from .workers import Workers

OnFailure = Callable[[BaseException], None]


class Alarm(Protocol):
    """A call that will be made later, unless it is cancelled."""

    def cancel(self) -> None:
        """Do not make the call."""


class Surroundings:
    """The surroundings of a real process."""

    def thread(self, name: str, on_failure: OnFailure) -> SyncThread:
        """Begin a thread that waits for the disk."""
        return SyncThread(name, on_failure=on_failure)

    def disk(self, directory: Path, open_max: int) -> OsDisk:
        """Return the disk of the write-ahead log."""
        return OsDisk(directory, open_max=open_max)

    def writer(
        self, wal: Wal, thread: SyncThread, disk: OsDisk, *,
        on_failure: OnFailure, on_sync: Callable[[float], None],
    ) -> WalWriter:  # fmt: skip
        """Return the writer of WAL rounds: the compiled writer, or `thread` without a compiler."""
        if compiled is None:
            return WalWriter(wal, thread)
        return CompiledWriter(wal, thread, disk, on_failure=on_failure, on_sync=on_sync)

    def is_alone(self) -> Callable[[], bool]:
        """Return a function that tells whether the turn of the loop began with one event."""
        turns = of_running_loop()
        return lambda: turns.events == 1

    def builder(self) -> Builder:
        """Return the builder of segments."""
        return Builder()

    def merger(self) -> Merger:
        """Return the merger of segments."""
        return Merger()

    def objects(
        self, place: str, *, endpoint: str | None, region: str | None, patience_s: float | None
    ) -> ObjectStore:
        """Return the object store of a place. Raises InvalidArgument."""
        return places.opened(place, endpoint=endpoint, region=region, patience_s=patience_s)

    def workers(self, name: str, count: int) -> Workers:
        """Begin threads that wait for an object store."""
        return Workers(name, count)

    def alarm(self, seconds: float, call: Callable[[], None]) -> Alarm:
        """Make the call after some time, even when the event loop hangs."""
        timer = threading.Timer(seconds, call)
        timer.daemon = True
        timer.start()
        return timer

    def end(self, code: int) -> None:
        """End the process at once, without an orderly stop."""
        logging.shutdown()
        os._exit(code)
