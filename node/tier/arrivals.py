"""Sealed files that come to this node from the tier, so that no member has to send them.

A new, moved or repaired replica gets a base from a member, and needs its files. The files that the
head of the chain holds come from the tier, the rest from members (`lifecycle.base_transfer`). A
file is used when it has the hash of its name, wherever its bytes are from.

Nothing is claimed: a file on the disk needs no claim. The sweep of a tier removes a file only after
the grace time, and a fetch takes less. If a file vanishes nevertheless, or the look came from an
old listing, the rest of the file comes from a member.

The tier is tried, never waited for: each request may take `_PATIENCE_S`. After a request that
failed or was late, and after a damaged file, all files come from members for some time. A request
that hangs, in a directory of a file server that is down, holds its thread: until it ends nothing
more is asked, so no more threads hang than there are.

At most `_AT_ONCE` requests of `_PIECE_BYTES` run for all fetches of the node. A place in this
number is free again when the bytes are written, so it bounds the memory too. A fetch waits for a
place only while it has none, so no two fetches wait for each other.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from ...client.protocol.errors import CorruptData, LognodeError, Unavailable
from ...client.protocol.limits import MIB
from ...partitions.metadata import Metadata
from ...raft.types import GroupId
from ..metrics import Metrics
from ..runtime.bounded_waits import BoundedWaits
from ..runtime.rate import TokenBucket
from ..runtime.workers import Workers
from . import local_file
from .manifest import Held
from .names import Chain, StoredFile, file_of
from .tier_progress import TierProgress
from .tier_store import TierStore

_AT_ONCE: Final = 4
_LOOKS: Final = 2
"""Looks at heads at a time."""
THREADS: Final = _AT_ONCE + _LOOKS
"""Threads that `workers` needs."""
_PIECE_BYTES: Final = 2 * MIB
_PATIENCE_S: Final = 5.0
_REST_FIRST_S: Final = 10.0
_REST_MAX_S: Final = 120.0
_NEVER: Final = float("-inf")

T = TypeVar("T")


class Arrivals:
    """What this node fetches from its tier. All calls on the loop."""

    def __init__(
        self, store: TierStore, *, metadata: Callable[[], Metadata], progress: TierProgress,
        metrics: Metrics, workers: Workers,
    ) -> None:  # fmt: skip
        self._store = store
        self._metadata = metadata
        self._progress = progress
        self._metrics = metrics
        self._workers = workers
        self._waits = BoundedWaits(workers, _PATIENCE_S)
        self._looks = asyncio.Semaphore(_LOOKS)
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._failures = 0
        self._rests_until = _NEVER
        self._files = 0
        self._bytes = 0

    def stop(self) -> None:
        """Stop. A request under way ends by itself, and nobody waits for it."""
        self._workers.leave()

    def row(self) -> dict[str, Any]:
        """Return the part of a status."""
        return {"received_files": self._files, "received_bytes": self._bytes}

    @property
    def gives_files(self) -> bool:
        """Whether the store has not failed lately."""
        return time.monotonic() >= self._rests_until and not self._waits.is_hung

    async def source(self, gid: GroupId, sizes: Mapping[str, int]) -> "TierSource":
        """Look at the head of a generation: see `KeptFiles.source`."""
        async with self._looks:
            self._check()
            own = await self._asked(partial(self._store.held, Chain(*gid)))
            held = dict(own or {})
            if own is None:  # the generation is young: its first manifest names such files
                for parent in self._parents(gid):
                    closed = await self._asked(partial(self._store.held, parent))
                    held |= closed or {}
                if not held:  # a directory that is not mounted has no manifests either
                    await self._asked(self._store.token)
        found = {
            name: held[name] for name, size in sizes.items()
            if name in held and held[name].size == size
        }  # fmt: skip
        return TierSource(self, found)

    def _parents(self, gid: GroupId) -> list[Chain]:
        range_ = self._metadata().ranges.get(gid.range_id)
        if range_ is None or range_.generation != gid.generation:
            return []
        return [Chain(each.range_id, each.generation) for each in range_.lineage]

    async def pieces(
        self, held: Held, offset: int, bucket: TokenBucket
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file: see `Source.pieces`."""
        file = file_of(held.path)
        if file is None:
            raise CorruptData(f"{held.path!r} is not the path of a file in a tier")
        self._check()
        step = min(_PIECE_BYTES, bucket.piece_bytes)
        under_way: deque[asyncio.Task[bytes]] = deque()
        try:
            while offset < held.size or under_way:
                while offset < held.size and not (under_way and self._places.locked()):
                    await self._places.acquire()
                    part_end = (offset // local_file.PART_BYTES + 1) * local_file.PART_BYTES
                    end = min(offset + step, part_end, held.size)
                    piece = self._piece(file, offset, end, bucket)
                    under_way.append(asyncio.get_running_loop().create_task(piece))
                    offset = end
                yield await under_way[0]
                under_way.popleft()
                self._places.release()
        finally:
            for task in under_way:
                self._places.release()
                if not task.cancel() and not task.cancelled():
                    task.exception()  # the error of a piece before is the one that counts

    async def _piece(self, file: StoredFile, begin: int, end: int, bucket: TokenBucket) -> bytes:
        """Return the bytes [begin, end) of a file, which are in one part."""
        await asyncio.sleep(bucket.reserve(end - begin))
        self._check()
        part, first = divmod(begin, local_file.PART_BYTES)
        last = first + end - begin
        name = file.part(part)
        data = await self._asked(partial(self._store.objects.get_range, name, first, last))
        if data is None:
            raise self._store.objects.failed(Unavailable, f"{name} is not in the tier any more")
        return data

    # A tier that is away.

    def _check(self) -> None:
        """Raise Unavailable while nothing is to be asked."""
        if not self.gives_files:
            left = self._rests_until - time.monotonic()
            raise self._store.objects.failed(
                Unavailable, "the tier has failed lately, and files come from members",
                retry_after=max(round(left, 3), 1.0),
            )  # fmt: skip

    async def _asked(self, call: Callable[[], T]) -> T:
        """Return the result of a call to the store. Raises Unavailable after the patience."""
        try:
            return await self._waits.run(call)
        except TimeoutError:
            text = f"the store gave no answer in {_PATIENCE_S:.0f} s"
            error = self._store.objects.failed(Unavailable, text)
            self._failed(error)
            raise error from None
        except LognodeError as error:
            self._failed(error)
            raise

    def _failed(self, error: LognodeError) -> None:
        """Let all files come from members for some time."""
        now = time.monotonic()
        if now >= self._rests_until:  # otherwise the request began before the rest
            rest_s = min(_REST_MAX_S, _REST_FIRST_S * 2 ** min(self._failures, 10))
            self._failures += 1
            self._rests_until = now + rest_s
        self._progress.failed(error)

    def took(self, size: int) -> None:
        """Note a file with the content of its name."""
        self._failures = 0
        self._files += 1
        self._bytes += size
        self._metrics.tier_received_files.inc()
        self._metrics.tier_received_bytes.inc(size)

    def spoiled(self, held: Held) -> LognodeError:
        """Note a file with another content; return the error."""
        text = f"file {held.path} in the tier is damaged. Run `lognode tier verify`"
        error = self._store.objects.failed(CorruptData, text)
        self._failed(error)
        return error


class TierSource:
    """The files of one base that the tier has. Implements `kept_files.Source`."""

    def __init__(self, arrivals: Arrivals, held: Mapping[str, Held]) -> None:
        self._arrivals = arrivals
        self._held = held

    def has(self, content_id: str) -> bool:
        """As in `Source`."""
        return content_id in self._held

    def pieces(
        self, content_id: str, offset: int, bucket: TokenBucket
    ) -> AsyncGenerator[bytes, None]:
        """As in `Source`."""
        return self._arrivals.pieces(self._held[content_id], offset, bucket)

    def took(self, content_id: str) -> None:
        """As in `Source`."""
        self._arrivals.took(self._held[content_id].size)

    def spoiled(self, content_id: str) -> LognodeError:
        """As in `Source`."""
        return self._arrivals.spoiled(self._held[content_id])
