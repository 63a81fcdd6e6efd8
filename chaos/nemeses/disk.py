"""Disks that fail: system calls of a node return errors, made by libfiu under its C library.

The node's promise is to stop itself: what a failed fsync left on the disk is unknown. A node is
restarted once, the first time that its disk is to fail, with the library before all others; which
calls fail is told to it while it runs.
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
    """What libfiu is told; with a probability each call has its own luck."""
    if probability is None:
        return [f"enable name=posix/io/{call},failinfo={failure.error}" for call in failure.calls]
    return [
        f"enable_random name=posix/io/{call},probability={probability},failinfo={failure.error}"
        for call in failure.calls
    ]


def draw(rng: random.Random) -> tuple[str, list[str]]:
    """Words, and what libfiu is told."""
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
        """Needs libfiu."""
        if shutil.which("fiu-run") is None or shutil.which("fiu-ctrl") is None:
            return "errors of system calls are made by libfiu: install Debian's package fiu-utils"
        return None

    async def begin(self, target: Target) -> Begun | None:
        """From now on the calls fail; None while the node is not whole, or stands still."""
        number = await target.damage.next_victim(target)
        if number is None:
            return None
        what, told = draw(target.rng)
        if not await self.fail(target, number, told):
            await self.end(target)
            return None
        return f"{what} on node {number}", [number]

    async def fail(self, target: Target, number: int, told: list[str]) -> bool:
        """Whether the node's process heard what libfiu was told; `end` must follow."""
        self._failing = number
        await self._prepare(target, number)
        return await _tell(target, number, told)

    async def end(self, target: Target) -> None:
        """The disk works again, and the node runs, started again if it had stopped itself."""
        if self._failing is None:
            return
        node = target.nodes[self._failing]
        # A new process, whatever the old one was told: it need not have met its failing disk.
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
    """The path of libfiu's named pipes to the node, to which its process id is added."""
    return str(target.nodes.root / f"node{number}.fiu")


async def _tell(target: Target, number: int, told: list[str]) -> bool:
    """Whether the node's process heard; one that is dead or stands still does not."""
    node = target.nodes[number]
    if not node.running:
        return False
    process = await asyncio.create_subprocess_exec(
        "fiu-ctrl", "-f", control(target, number),
        *(part for command in told for part in ("-c", command)), str(node.pid),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL, env=os.environ,
    )  # fmt: skip
    try:
        return await asyncio.wait_for(process.wait(), _CONTROL_S) == 0
    except TimeoutError:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
            await process.wait()
