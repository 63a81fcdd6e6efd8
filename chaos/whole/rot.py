"""A byte of a segment file changes on one node, while the node is down.

The node hashes its files when it starts after a kill, and fetches a damaged file from another
member, or from the tier. So the file must be sound again, or gone, a while after the start (S12). A
file that the node has hashed before is read again an hour later only; such a file is left alone.
"""

import asyncio
import hashlib
import random
from collections.abc import Collection
from pathlib import Path
from typing import Final

from ...node.directory import meta_keys
from ...node.directory.meta_reader import read_rows
from ..verdict import Anomaly
from .nodes import Machine, Machines

_WITHIN_S: Final = 60.0
_LOOK_S: Final = 0.5


async def rot(
    machines: Machines, rng: random.Random, in_tier: Collection[str] = ()
) -> list[Anomaly]:
    """Damage a file that another node or the tier has too; return what is wrong afterwards.

    `in_tier`: content ids.
    """
    numbers = list(machines.numbers)
    rng.shuffle(numbers)
    for number in numbers:
        machine = machines[number]
        others = {f"{name}.seg" for name in in_tier}
        others |= {name for each in machines if each is not machine for name in _files(each)}
        await machine.kill()
        unread = sorted((_files(machine) & others) - _known_as_sound(machine))
        path = machine.data / "files" / rng.choice(unread) if unread else None
        if path is not None:
            _change_byte(path, rng)
        await machine.start()
        if path is not None:
            return await _judged(path)
    return []


def _files(machine: Machine) -> set[str]:
    return {path.name for path in (machine.data / "files").glob("*.seg")}


def _known_as_sound(machine: Machine) -> set[str]:
    sound = meta_keys.SOUND.encode()
    rows = read_rows(machine.data / "meta.mdb")
    return {f"{key.removeprefix(sound).decode()}.seg" for key, _ in rows if key.startswith(sound)}


def _change_byte(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


async def _judged(path: Path) -> list[Anomaly]:
    """Wait until the file is sound or gone."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _WITHIN_S
    while loop.time() < until:
        await asyncio.sleep(_LOOK_S)
        if _is_fine(path):
            return []
    told = f"{path.name} of {path.parts[-3]} is damaged {_WITHIN_S:.0f} s after the start"
    return [Anomaly("rot", told, promise="S12")]


def _is_fine(path: Path) -> bool:
    return not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() == path.stem
