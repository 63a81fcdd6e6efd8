"""A node's data directory on a disk that can lose power and be slow, as a file system process.

While the file system is mounted, the content of the directory is kept beside it, in a folder with
`.disk` behind its name. `close` moves the content back, so that the directory looks the same as
without this disk.
"""

import asyncio
import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import BinaryIO, Final

from ..client.protocol.errors import Unavailable
from .powerfs.backing import DATA, Lost
from .powerfs.needs import LIBRARY, unmount
from .powerfs.pace import Slowness

_MOUNT_S: Final = 20.0
_CUT_S: Final = 60.0


class PowerDisk:
    """A disk mounted at `point`, which can be cut and mounted again.

    Calls wait for each other. All raise Unavailable where the file system does not obey.
    """

    def __init__(self, point: Path) -> None:
        self._point = point.absolute()  # libfuse accepts only an absolute path
        self._folder = Path(f"{self._point}.disk")
        self._log = Path(f"{self._point}.powerfs.log")
        self._process: asyncio.subprocess.Process | None = None
        self._changing = asyncio.Lock()
        self._closed = False
        self._slowness: Slowness | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the file system; None while it is not mounted."""
        return None if self._process is None else self._process.pid

    async def mount(self) -> None:
        """Mount the disk, unless it is mounted.

        The earlier content of the directory counts as synced.
        """
        async with self._changing:
            if self._closed:
                raise Unavailable(f"the disk at {self._point} was closed")
            if self._process is not None:
                self._check()
                return
            self._take_in()
            try:
                await self._start()
            except BaseException:
                await self._abandon()
                raise

    def slow(self, slowness: Slowness | None) -> None:
        """Make the disk slow shortly after now, and through cuts; None: at full speed.

        While the disk is not mounted, or is being cut, the change begins with the next mount.
        """
        self._slowness = slowness
        if self._process is not None and not self._changing.locked():
            self._check()
            self._tell_pace()

    async def cut(self, seed: int) -> Lost:
        """Lose what was not synced, or a part of it drawn by this seed; unmount the disk.

        No process may use the directory any more: the node's processes are dead.
        """
        async with self._changing:
            said = await self._end(f"cut {seed}\n")
        files, _, names = said.partition(" ")
        if not files.isdigit():
            raise Unavailable(
                f"the power cut of {self._point} failed: {self._log} gives the reason"
            )
        return Lost(int(files), int(names))

    async def close(self) -> None:
        """Make the directory an ordinary one again, without loss. Idempotent."""
        async with self._changing:
            self._closed = True
            try:
                if self._process is not None:
                    await self._end("")
            finally:
                await self._abandon()
                self._give_back()

    async def _start(self) -> None:
        with self._output() as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "lognode.chaos.powerfs", str(self._folder),
                str(self._point), stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE, stderr=output, start_new_session=True,
                env={**os.environ, "FUSE_LIBRARY_NAME": LIBRARY},
            )  # fmt: skip
        assert self._process.stdout is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MOUNT_S):
                if await self._process.stdout.readline() == b"mounted\n":
                    self._tell_pace()
                    return
        raise Unavailable(
            f"mounting a file system that can lose power or be slow at {self._point} "
            f"failed: {self._log_tail()}; the user needs the right to mount with FUSE"
        )

    def _check(self) -> None:
        if self._process is not None and self._process.returncode is not None:
            raise Unavailable(
                f"the file system at {self._point} has ended by itself: {self._log_tail()}"
            )

    def _tell_pace(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        order = "fast" if self._slowness is None else f"slow {self._slowness.to_line()}"
        self._process.stdin.write(f"{order}\n".encode())  # fits in the pipe: returns at once

    async def _end(self, order: str) -> str:
        """Write the order as the last input, and return the last output."""
        if self._process is None:
            raise Unavailable(f"{self._point} is not mounted")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CUT_S):
                said, _ = await self._process.communicate(order.encode())
                if self._process.returncode == 0:
                    self._process = None
                    return said.decode().strip()
        await self._abandon()
        return ""

    async def _abandon(self) -> None:
        """End the process in any state, and unmount what it may have left."""
        if self._process is not None:
            process, self._process = self._process, None
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            unmount(self._point)
            await process.wait()

    def _take_in(self) -> None:
        """Move the directory's content to the folder, and put an empty directory in its place."""
        data = self._folder / DATA
        if not data.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._point.exists():
                self._point.rename(data)
        self._point.mkdir(exist_ok=True)

    def _give_back(self) -> None:
        data = self._folder / DATA
        if data.exists():
            self._point.rmdir()
            data.rename(self._point)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log.read_text("utf-8", "replace").strip().splitlines()
            return lines[-1] if lines else "the log is empty"
        return "there is no log"

    def _output(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        return open(self._log, "ab")
