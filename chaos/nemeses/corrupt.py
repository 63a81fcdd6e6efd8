"""Bytes that change on a disk while the node is down: flipped bits and lost ends.

Damage to WAL records of the last second before a kill looks like the torn tail of a power cut. It
costs a member entries that it had confirmed, and no product can detect it. Only older parts of the
WAL are therefore damaged, and this damage must be found.
"""

import asyncio
import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...client.protocol.errors import Unavailable
from ..nodes import Node
from .package import Begun, Target

_SETTLED_S: Final = 2.0
"""The mark of a synced WAL round follows within a second."""
_CLEAR_S: Final = 10.0
"""A node that has not ended after this time will not end because of its meta.mdb."""
PLACES: Final = ("wal", "wal", "files", "files", "meta")


@dataclass(frozen=True, slots=True)
class Blow:
    """One change of one file: a bit of the byte at `at` is flipped, or the file ends there."""

    path: Path
    how: str
    at: int

    def strike(self) -> None:
        """Change the file. Raises OSError."""
        if self.how == "truncated":
            with open(self.path, "r+b") as file:
                file.truncate(self.at)
            return
        with open(self.path, "r+b") as file:
            file.seek(self.at)
            (byte,) = file.read(1)
            file.seek(self.at)
            file.write(bytes([byte ^ 16]))


def same_until(before: bytes, after: bytes) -> int:
    """Return the length of the common prefix."""
    size = min(len(before), len(after))
    low, high = 0, size
    while low < high:  # by slices, as a loop over bytes takes seconds
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
    return low


def draw(rng: random.Random, settled: Mapping[Path, int], newest: Path | None) -> Blow | None:
    """Draw a change, or None if there is nothing to damage.

    `settled` maps each file to how many of its first bytes may be damaged. The newest WAL file is
    not truncated: that would look like a torn tail.
    """
    able = sorted(path for path, size in settled.items() if size)
    if not able:
        return None
    path = rng.choice(able)
    if path == newest or rng.random() < 0.6:
        return Blow(path, "flipped", rng.randrange(settled[path]))
    return Blow(path, "truncated", rng.randrange(settled[path]))


class Corrupt:
    """Damages a file of one node, which is killed for this and started again at once."""

    name = "corrupt"

    def __init__(self) -> None:
        self._down: int | None = None
        self._kept: tuple[Path, bytes] | None = None

    def missing(self) -> str | None:
        """Return None: nothing is missing."""
        return None

    async def begin(self, target: Target) -> Begun | None:
        """Change one file; None while the node is not whole."""
        number = await target.damage.next_victim(target)
        if number is None:
            return None
        place = target.rng.choice(PLACES)
        blow = await self.strike(target, number, place)
        if blow is None:
            return f"kill of node {number}, which has no file to damage in {place}", [number]
        where = blow.path.relative_to(target.nodes[number].data)
        word = "bit flipped in" if blow.how == "flipped" else "lost end of"
        return f"{word} {where} at byte {blow.at} of node {number}", [number]

    async def strike(self, target: Target, number: int, place: str) -> Blow | None:
        """Kill the node, damage it in one of PLACES and start it.

        Returns None if there was nothing to damage. `end` must follow.
        """
        self._down = number
        node = target.nodes[number]
        before = await asyncio.to_thread(read_wal, node.data / "wal")
        await asyncio.sleep(_SETTLED_S)
        await node.kill()
        settled = await asyncio.to_thread(_settled, node.data, place, before)
        newest = _newest(node.data / "wal")
        blow = draw(target.rng, settled, newest)
        if blow is not None:
            if place == "meta":
                self._kept = blow.path, blow.path.read_bytes()
            blow.strike()
        await node.start()
        return blow

    async def end(self, target: Target) -> None:
        """Make the node run. A node that cannot run with its meta.mdb gets the old file back.

        Only an operator could make it a node again; S2 is about the other nodes.
        """
        if self._down is None:
            return
        node = target.nodes[self._down]
        if self._kept is not None and not await _runs(node):
            path, held = self._kept
            path.write_bytes(held)
        await node.start()
        self._down = self._kept = None


async def _runs(node: Node) -> bool:
    """Return whether the node runs once that is clear: another package may have just started it."""
    with contextlib.suppress(Unavailable):
        await node.wait_ready(_CLEAR_S)
    return node.running


def _newest(folder: Path) -> Path | None:
    files = [path for path in folder.iterdir() if path.is_file()]
    return max(files, key=lambda path: path.stat().st_mtime_ns, default=None)


def read_wal(folder: Path) -> tuple[set[Path], Path | None, bytes]:
    """Return all files, the newest of them, and its bytes."""
    newest = _newest(folder)
    return set(folder.iterdir()), newest, newest.read_bytes() if newest is not None else b""


def _settled(
    data: Path, place: str, before: tuple[set[Path], Path | None, bytes]
) -> dict[Path, int]:
    """Return, for each file, how many of its first bytes may be damaged; zeros are left out."""
    if place == "meta":
        files = [data / "meta.mdb"]
    elif place == "files":
        files = sorted((data / "files").iterdir())
    else:
        files = sorted(set((data / "wal").iterdir()) & before[0])
    found = {}
    for path in files:
        held = path.read_bytes()
        size = len(held.rstrip(b"\0"))
        found[path] = min(size, same_until(before[2], held)) if path == before[1] else size
    return found
