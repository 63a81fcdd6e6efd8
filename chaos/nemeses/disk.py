"""Disks that fail: system calls of a node return errors, made by libfiu under its C library.

The node promises to stop itself, since the disk's content after a failed fsync is unknown. The
first fault of its disk restarts a node, with the library before all others. The failing calls are
set while the node runs.
"""

import asyncio
import contextlib
import errno
import os
import random
import shutil
from dataclasses import dataclass
from typing import Final

from .package import Begun, Target

_CONTROL_S: Final = 10.0
_READY_S: Final = 30.0
_POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Failure:
    """Calls by libfiu's names, and the number of the error that they return."""

    what: str
    calls: tuple[str, ...]
    error: int


FAILURES: Final = (
    Failure("fsync fails with EIO", ("sync/fsync", "sync/fdatasync"), errno.EIO),
    Failure("fsync fails with ENOSPC", ("sync/fsync", "sync/fdatasync"), errno.ENOSPC),
    Failure("writes of LMDB fail with EIO", ("rw/pwrite", "rw/pwritev"), errno.EIO),
    Failure("writes of LMDB fail with ENOSPC", ("rw/pwrite", "rw/pwritev"), errno.ENOSPC),
)
"""The WAL is written by pwritev2, which libfiu does not know; its fsync fails like all others."""


def commands(failure: Failure, *, probability: float | None = None) -> list[str]:
    """Return the commands for libfiu; with a probability, each call fails or not by chance."""
    if probability is None:
        return [f"enable name=posix/io/{call},failinfo={failure.error}" for call in failure.calls]
    return [
        f"enable_random name=posix/io/{call},probability={probability},failinfo={failure.error}"
        for call in failure.calls
    ]


def draw(rng: random.Random) -> tuple[str, list[str]]:
    """Return a description, and the commands for libfiu."""
    failure = rng.choice(FAILURES)
    if rng.random() < 0.5:
        return failure.what, commands(failure)
    return f"{failure.what} now and then", commands(failure, probability=0.02)


class Disk:
    """Makes the disk of one node fail."""

    name = "disk"

    def __init__(self) -> None:
        self._failing: int | None = None

    def missing(self) -> str | None:
        """Return what installs libfiu, if it is missing."""
        if shutil.which("fiu-run") is None:
            return "the disk nemesis needs libfiu: install Debian's package fiu-utils"
        return None

    async def begin(self, target: Target) -> Begun | None:
        """Make the calls fail from now on; None while the node is not whole, or is paused."""
        number = await target.damage.next_victim(target)
        if number is None:
            return None
        what, told = draw(target.rng)
        if await self.fail(target, number, told) is not None:
            await self.end(target)
            return None
        return f"{what} on node {number}", [number]

    async def fail(self, target: Target, number: int, told: list[str]) -> str | None:
        """Send the commands; return why the node's process did not get them. `end` must follow."""
        self._failing = number
        await self._prepare(target, number)
        return await _tell(target, number, told)

    async def end(self, target: Target) -> None:
        """Make the disk work again, and the node run, started again if it had stopped itself."""
        if self._failing is None:
            return
        node = target.nodes[self._failing]
        # Always start a new process: the old one may not have met its failing disk.
        await node.kill()
        await node.start()
        self._failing = None

    async def _prepare(self, target: Target, number: int) -> None:
        node = target.nodes[number]
        if node.wrapper:
            return
        node.wrapper = ["fiu-run", "-x", "-f", str(control(target, number))]
        await node.stop()
        await node.start()
        await node.wait_ready(_READY_S)


def control(target: Target, number: int) -> str:
    """Return the path of libfiu's named pipes to the node, without its process id at the end."""
    return str(target.nodes.root / f"node{number}.fiu")


async def _tell(target: Target, number: int, told: list[str]) -> str | None:
    """Return why the node's process did not hear; a dead or paused process does not."""
    node = target.nodes[number]
    if not node.running:
        return f"node {number} does not run"
    pipes = f"{control(target, number)}-{node.pid}"
    step = "its pipes appear"
    try:
        async with asyncio.timeout(_CONTROL_S), contextlib.AsyncExitStack() as opened:
            # Both ends stay open for all commands: libfiu drops what is in a pipe without a reader.
            replies = await _open(f"{pipes}.out", os.O_RDONLY, opened)
            commands_in = await _open(f"{pipes}.in", os.O_WRONLY, opened)
            for command in told:
                step = f"node answers {command!r}"
                os.write(commands_in, f"{command}\n".encode())
                if (reply := await _line(replies)) != "0":
                    return f"node {number} answered {reply!r} to {command!r}"
    except TimeoutError:
        return f"node {number} made no progress in {_CONTROL_S:g} s until {step}"
    except BrokenPipeError:
        return f"node {number} died before {step}"
    return None


async def _open(path: str, how: int, opened: contextlib.AsyncExitStack) -> int:
    """Return the descriptor of a named pipe, once that exists and, for writing, has a reader."""
    while True:
        try:
            pipe = os.open(path, how | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENXIO):
                raise
            await asyncio.sleep(_POLL_S)
        else:
            opened.callback(os.close, pipe)
            return pipe


async def _line(pipe: int) -> str:
    """Return the next line of a named pipe, which may have no writer yet."""
    line = b""
    while not line.endswith(b"\n"):
        try:
            more = os.read(pipe, 1)
        except BlockingIOError:
            more = b""
        if not more:
            await asyncio.sleep(_POLL_S)
        line += more
    return line.decode().strip()
