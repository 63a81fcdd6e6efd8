"""Read a tier: list and verify its logs, and restore them into a cluster.

Each key is read from one manifest, so a restore gives each entry once, whatever splits, merges and
moves are under way. The files of a manifest are fetched into a directory, checked by their hashes,
and read as a replica reads them: entries that were trimmed, deleted or compacted do not come back.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from ...client.backup.manifest import LogBackup, Part
from ...client.backup.restore import LogRestore
from ...client.client import AsyncClient
from ...client.entry_columns import EntryColumns
from ...client.protocol import limits, log_names
from ...client.protocol.errors import CorruptData, LogNotFound, Unavailable
from ...client.protocol.types import Entry
from ...partitions.spans import printable
from ...statemachine.chains import chains
from ...statemachine.page import Page
from ...statemachine.range_state import Base, RangeState
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.segments import SegmentStore
from ...statemachine.span_copies import SpanCopies
from ...statemachine.spans import Span
from ..lifecycle import base_pieces
from . import coverage
from .coverage import LogPieces
from .manifest import Held, Manifest
from .tier_store import TierStore

_PAGE_ENTRIES: Final = 2_000
_GAPS_MAX: Final = 8
"""The most spans, and manifests, that an error names."""
_PAGE_BYTES: Final = 4 * limits.MIB
_COPIES_BYTES_MAX: Final = 512 * limits.MIB
"""The memory of a file that is read in the order of seq: files are in the order of key."""
Told = Callable[[float | None, int], None]
"""Called with the part of the work that is done, 0 to 1 or None, and a number of entries."""


@dataclass(slots=True)
class Restored:
    """The result. `own_logs`: logs that a cluster writes by itself, and that were not restored."""

    logs: int = 0
    entries: int = 0
    own_logs: tuple[str, ...] = ()


def logs_of(store: TierStore, names: Sequence[str] = ()) -> list[LogPieces]:
    """Return the logs of these names, all logs for an empty sequence. Blocks.

    The newest of several logs of one name counts: the others were deleted. Raises
    LogNotFound, NotFound without a tier, CorruptData.
    """
    store.cluster()
    found: dict[str, LogPieces] = {}
    try:
        heads = store.snapshot().heads.values()
    except CorruptData as error:
        raise CorruptData(f"{error.message}. {_lacking(store)}", outcome="not_applied") from None
    for each in coverage.logs(heads):
        found[each.newest.log.name] = each  # in the order of ids
    for name in names:
        if name not in found:
            raise LogNotFound(
                f"the tier in {store.place} does not have log {name!r}; the tier has "
                f"{', '.join(found) or 'no log'}"
            )
    return [found[name] for name in names or found]


def _lacking(store: TierStore) -> str:
    """Say what a restore lacks without the damaged manifests.

    A damaged manifest does not tell its keys. When its generation has ended, no leader publishes
    another one, and the next generation may have no whole manifest yet.
    """
    heads, damaged = store.sound_heads()
    gaps = [
        f"log {log.newest.log.name} from key {printable(start)} to "
        f"{'the last key' if end is None else printable(end)}"
        for log in coverage.logs(heads) for start, end in log.gaps
    ]  # fmt: skip
    lost = ", ".join(gaps[:_GAPS_MAX]) or "what no other manifest has of the range"
    return (
        f"Without {', '.join(damaged[:_GAPS_MAX])} a restore lacks {lost}. If no later manifest "
        "comes, the generation of the range has ended: restore the object from a copy of the store"
    )


async def restore(
    client: AsyncClient, store: TierStore, names: Sequence[str], directory: Path | None, told: Told
) -> Restored:
    """Restore logs, all but those that a cluster writes itself, and read them back.

    `directory`: where the files of one manifest at a time have room. Raises the errors of
    `logs_of`, those of `LogRestore`, and Unavailable for a manifest that was replaced so long ago
    that it was removed; the same call may succeed.
    """
    found = await asyncio.to_thread(logs_of, store, names)
    own = tuple(
        each.newest.log.name for each in found if each.newest.log.name in log_names.OF_CLUSTER
    )
    result = Restored(own_logs=own)
    wanted = [each for each in found if each.newest.log.name not in own]
    for at, log in enumerate(wanted):

        def part_told(part: float, at: int = at) -> None:
            told((at + part) / len(wanted), result.entries)

        await _restore_log(client, store, log, directory, result, part_told)
        result.logs += 1
    return result


async def _restore_log(
    client: AsyncClient, store: TierStore, log: LogPieces, directory: Path | None,
    result: Restored, told: Callable[[float], None],
) -> None:  # fmt: skip
    facts = log.newest.log
    pieces = [await _piece(store, span, head) for span, head in log.pieces]
    backup = LogBackup(
        facts.name, dict(facts.policy), facts.hierarchy, [piece.part for piece in pieces]
    )
    one = LogRestore(client, backup, None)
    await one.create()

    def entries_told(count: int) -> None:
        result.entries += count

    for at, piece in enumerate(pieces):
        with tempfile.TemporaryDirectory(prefix="lognode-tier-", dir=directory) as made:
            await one.fill(piece.part, piece.entries(store, Path(made)), entries_told)
        told((at + 1) / len(pieces))
    await one.finish()


async def entries_of(
    store: TierStore, log: LogPieces, directory: Path
) -> AsyncGenerator[list[Entry], None]:
    """Yield the entries that a restore of the log gives. `directory`: as `restore` has.

    The entries of a key come in their order. Raises the errors of `restore`.
    """
    for span, head in log.pieces:
        piece = await _piece(store, span, head)
        with tempfile.TemporaryDirectory(prefix="lognode-tier-", dir=directory) as made:
            async for entries in piece.entries(store, Path(made)):
                yield entries


async def _piece(store: TierStore, span: Span, head: Manifest) -> "_Piece":
    manifest = await asyncio.to_thread(store.manifest, head.chain, head.number)
    if manifest is None or manifest.base is None:
        raise Unavailable(
            f"{head.name} in {store.place} was replaced and removed. Repeat the command",
            outcome="not_applied",
        )
    base = await asyncio.to_thread(base_pieces.unpack, manifest.base)
    if tuple(dict.fromkeys(info.content_id for info in base.manifest)) != manifest.files:
        raise CorruptData(f"{head.name} in {store.place} has other files than its base")
    return _Piece(span, manifest, base)


class _Piece:
    """Keys that are read from one manifest."""

    def __init__(self, span: Span, manifest: Manifest, base: Base) -> None:
        self._span = span
        self._manifest = manifest
        self._base = base
        own = list(chains(base.manifest, span))
        through_seq = base.tables.get("next_seq", 1) - 1
        self.part = Part(*span, through_seq, [chain.start for chain in own[1:]])
        self._spans = [(chain.start, chain.end) for chain in own]

    async def entries(self, store: TierStore, directory: Path) -> AsyncGenerator[list[Entry], None]:
        """Yield the visible entries, in the order of seq within each chain."""
        for info in self._base.manifest:
            if info.within(self._span) is not None:
                held = self._manifest.held[info.content_id]
                target = directory / f"{info.content_id}.seg"
                if not target.exists():  # rows of two clips may name one file
                    await asyncio.to_thread(store.fetch, held, target)
        files = SegmentStore(directory, copies=SpanCopies(_COPIES_BYTES_MAX))
        try:
            start, end = self._manifest.span
            state = RangeState(start=start, end=end, store=files, base=self._base)
            for info in self._base.manifest:
                if info.within(self._span) is not None:
                    await asyncio.to_thread(_check, files, info)
            for span in self._spans:
                async for entries in _read(state, span):
                    yield entries
        finally:
            files.close()


async def _read(state: RangeState, span: Span) -> AsyncGenerator[list[Entry], None]:
    seq, more = 1, True
    while more:
        page = await asyncio.to_thread(
            partial(
                state.read_span, *span, seq, limit=_PAGE_ENTRIES, bytes_max=_PAGE_BYTES,
                columns=True,
            )
        )  # fmt: skip
        state.store.copies.note(span[0], page.next)
        if entries := await asyncio.to_thread(_entries, page):
            yield entries
        seq, more = page.next, page.more


def _check(files: SegmentStore, info: SegmentInfo) -> None:
    files.segment(info.content_id).check_row(info)


def _entries(page: Page) -> list[Entry]:
    found: list[Entry] = []
    for chunk in page.all_chunks():
        found += EntryColumns(chunk).entries()
    return found


def needed_files(logs: Sequence[LogPieces]) -> Iterator[Held]:
    """Yield the files that a restore of these logs needs, each once."""
    found: dict[str, Held] = {}
    for log in logs:
        for _, head in log.pieces:
            for content_id in head.files:
                held = head.held[content_id]
                found[held.path] = held
    yield from found.values()


async def verify(
    store: TierStore, names: Sequence[str], directory: Path | None, told: Told
) -> tuple[int, int]:
    """Fetch and hash the files that a restore needs; return their number and bytes.

    Raises CorruptData, which names the first damaged object, and the errors of `logs_of`.
    """
    logs = await asyncio.to_thread(logs_of, store, names)
    files = list(needed_files(logs))
    done = 0
    with tempfile.TemporaryDirectory(prefix="lognode-tier-", dir=directory) as made:
        for log in logs:
            for span, head in log.pieces:
                await _piece(store, span, head)
        for at, held in enumerate(files):
            await asyncio.to_thread(store.fetch, held, Path(made) / "file")
            done += held.size
            told((at + 1) / len(files), at + 1)
    return len(files), done
