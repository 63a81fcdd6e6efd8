"""Filling the file system of the fixture `small_disk`."""

import contextlib
import os
from pathlib import Path

MIB = 1 << 20


def fill(place: Path, leave: int) -> Path:
    """Take all the room but `leave` bytes."""
    filler = place / "filler"
    free = os.statvfs(place)
    left = free.f_bavail * free.f_frsize - leave
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
        while left > 0:  # until there is no room at all where the node takes some meanwhile
            left -= file.write(bytes(min(MIB, left)))
    return filler
