"""Filling the file system of the fixture `small_disk`."""

import os
from pathlib import Path

MIB = 1 << 20


def fill(place: Path, leave: int) -> Path:
    """Take all the room but `leave` bytes."""
    filler = place / "filler"
    free = os.statvfs(place)
    with open(filler, "wb") as file:
        left = free.f_bavail * free.f_frsize - leave
        while left > 0:
            left -= file.write(bytes(min(MIB, left)))
    return filler
