"""Disks that lose power, for tests: skipped where FUSE is missing, but not in CI."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lognode.chaos.power_disk import PowerDisk
from lognode.chaos.powerfs.needs import missing


def need_fuse() -> None:
    """Skip the test, or fail it in CI, where this machine cannot mount one."""
    if (reason := missing()) is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI runs these tests: {reason}")
        pytest.skip(reason)


@asynccontextmanager
async def mounted(point: Path) -> AsyncIterator[PowerDisk]:
    """A disk at this path, until the end."""
    need_fuse()
    disk = PowerDisk(point)
    try:
        await disk.mount()
        yield disk
    finally:
        await disk.close()


def is_mounted(point: Path) -> bool:
    """By the kernel's own list, in which a space is `\\040`."""
    name = str(point.absolute()).replace(" ", "\\040")
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == name for line in lines)
