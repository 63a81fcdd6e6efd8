"""Damage to a WAL that recovery must find: flipped bits, lost ends of files, a lost disk; and to
segments: changed bytes, or a file that is gone.

One kind is left out because no recovery can find it, as docs/design.md says: bytes of the last
synced rounds, as long as nothing later in the file says that they were synced (x5). There a flipped
bit looks like a torn tail.
"""

from typing import Final

from ...node.directory import meta_keys
from ...node.rules.ending import files_of
from ...raft import wal_format
from ...raft.wal_scan import file_number, scan
from .disk import SimDisk
from .store import Durable

_GONE: Final = 0.3


def damage_wal(disk: SimDisk, how: str, where: float) -> bool:
    """Damage a WAL at `where`, a share of the possible places, 0 to 1.

    Returns False if there is no place yet. The page cache is written back first: the batch that
    vouches for a damaged batch must not be lost in the next power cut.
    """
    disk.write_back()
    if how == "lost":
        hit = bool(disk.names())
        disk.lose_all()
        return hit
    if how == "truncate":
        names = [name for name in disk.names() if file_number(name) is not None]
        files = [(name, disk.size(name)) for name in names]
        files = [(name, size) for name, size in files if size > wal_format.HEADER_BYTES]
        if not files:
            return False
        position = where * len(files)
        name, size = files[int(position)]
        keep = wal_format.HEADER_BYTES + (position % 1.0) * (size - wal_format.HEADER_BYTES)
        disk.cut_short(name, int(keep))
        return True
    places = _findable(disk)
    total = sum(end - start for _, start, end in places)
    if not total:
        return False
    offset = int(where * total)
    for name, start, end in places:
        if offset < end - start:
            disk.flip_bit(name, start + offset, bit=offset % 8)
            break
        offset -= end - start
    return True


def rot_segment(durable: Durable, where: float) -> str | None:
    """Damage one of the segments that replicas need, or lose the file.

    `where`, 0 to 1, picks the file and the damage. Return its content id, None without a file.
    """
    rows = [row for _, row in durable.meta.items(meta_keys.REPLICA) if not row["damaged"]]
    names = sorted(files_of(rows) & durable.files.keys())
    if not names:
        return None
    position = where * len(names)
    name = names[int(position)]
    if position % 1.0 < _GONE:
        del durable.files[name]
    else:
        durable.files.rotten.add(name)
    return name


def _findable(disk: SimDisk) -> list[tuple[str, int, int]]:
    """Return (file, start, end) of the used bytes that later bytes vouch for."""
    batches: list[tuple[str, wal_format.BatchHead]] = []
    places = []
    for name in disk.names():
        number = file_number(name)
        found = None if number is None else scan(disk, number, None).batches
        if found:
            batches += [(name, head) for head in found]
            places.append((name, 0, wal_format.HEADER_BYTES))
    synced = max((head.synced_through for _, head in batches), default=0)
    places += [(name, head.offset, head.end) for name, head in batches if head.round <= synced]
    return places
