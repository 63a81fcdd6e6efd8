"""Check that the segment files are those that the manifests name, down to every block."""

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from ...client.protocol.errors import CorruptData
from ...statemachine.block_cache import BlockCache
from ...statemachine.file_hash import hash_file
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.segment_reader import Segment

_CACHE_BYTES: Final = 4 << 20
_SUFFIX: Final = ".seg"
_PAGES: Final = ".kept"


def check_segments(
    directory: Path,
    named: Iterable[SegmentInfo],
    told: Callable[[int], None],
    far: Collection[str] = (),
) -> tuple[str, list[str]]:
    """Return a summary of what was checked, and the failures. Needs memory for some blocks.

    `told` gets the bytes of each segment that was looked at. `far`: files that may be in the tier
    only; what the disk has of them are some of their pages.
    Raises OSError when the directory cannot be read."""
    segments = {info.content_id: info for info in named}
    wrong = []
    blocks = size = away = 0
    for info in segments.values():
        if info.content_id in far and not (directory / f"{info.content_id}{_SUFFIX}").exists():
            away += 1
            told(info.size)
            continue
        try:
            blocks += _check_one(directory / f"{info.content_id}{_SUFFIX}", info)
            size += info.size
        except CorruptData as error:
            wrong.append(error.message)
        except OSError as error:
            wrong.append(f"segment {info.content_id} cannot be read: {error.strerror or error}")
        told(info.size)
    orphans = strange = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(_PAGES):
                continue
            if not entry.name.endswith(_SUFFIX):
                strange += 1
            elif entry.name.removesuffix(_SUFFIX) not in segments:
                orphans += 1
    found = f"{len(segments) - len(wrong) - away} segments, {blocks} blocks, {size} bytes"
    if away:
        found += f", {away} segments in the tier only, which are not checked"
    if orphans:
        found += f", {orphans} that no replica uses and the next start removes"
    if strange:
        found += f", {strange} unknown files"
    return found, wrong


def _check_one(path: Path, info: SegmentInfo) -> int:
    """Check one segment file; return the number of its blocks. Raises CorruptData, OSError."""
    if not path.is_file():
        raise CorruptData(f"segment {info.content_id} is missing")
    size = path.stat().st_size
    if size != info.size:
        raise CorruptData(f"segment {info.content_id} has {size} bytes of {info.size}")
    found = hash_file(path)
    if found != info.content_id:
        raise CorruptData(f"segment {info.content_id} is damaged: its SHA-256 is {found}")
    segment = Segment(path, info.content_id, BlockCache(_CACHE_BYTES))
    try:
        segment.check()
        segment.check_row(info)
        return segment.footer.blocks
    finally:
        segment.close()
