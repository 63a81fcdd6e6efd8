"""Segment files whose bytes are in a tier, read by range requests through a cache of chunks.

A read of a segment touches a few pages and blocks, each of some kilobytes, at places that depend on
each other. So files are fetched in aligned chunks: neighbouring pages come with one request. A read
that goes on where the last one ended gets more chunks with each request, up to `_AHEAD_MAX`; a
request stays within a part, which is an object. Several reads that need one chunk share one
request.

Nothing here is believed: the reader checks each block, filter and footer by its checksum, and each
lookup by the keys around it, as it does for a local file (`statemachine.segment_reader`). When it
finds damage, `forget` drops the chunks of the file, so that the next read asks the store again.

A store that gives no answer gets a rest. Until its end each read fails at once with Unavailable,
whose `retry_after` is the rest of the rest; then one read tries.

All waits are in threads. On the event loop, `TierFile.read` returns what is in memory, or raises
NotPrepared, as a local file does. What a thread has fetched for a read stays with that read, so a
read ends however small the cache is.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from ...client.objects.store import ObjectStore
from ...client.protocol.errors import CorruptData, LognodeError, Unavailable
from ...statemachine.block_cache import BlockCache
from ...statemachine.turn_limits import NotPrepared, Place
from .chunk_cache import ChunkCache, ChunkName
from .local_file import PART_BYTES
from .manifest import Held
from .names import file_of

GONE: Final = "gone"
"""The reason of an Unavailable for a file that is no longer in the tier."""
_AHEAD_MAX: Final = 32
"""The most chunks of a request."""
_STREAMS_MAX: Final = 1_024
"""Reads in progress whose next chunk is known."""
_REST_FIRST_S: Final = 1.0
_REST_MAX_S: Final = 10.0


class TierFiles:
    """The files that manifests of a tier name. `clock`: monotonic, in seconds.

    `held` is called in threads: it returns where the file of a content id is, or None.
    """

    def __init__(
        self, objects: ObjectStore, cache: ChunkCache, held: Callable[[str], Held | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._objects = objects
        self._cache = cache
        self._held = held
        self._clock = clock
        self._chunk_bytes = cache.chunk_bytes
        self._lock = threading.Lock()
        self._under_way: dict[ChunkName, Future[None]] = {}
        self._streams: OrderedDict[ChunkName, int] = OrderedDict()
        """The chunk where each read goes on, and how many chunks its last request had."""
        self._failures = 0
        self._tries = False
        """Whether a read tries a store that gave no answer."""
        self._rests_until = float("-inf")
        self._why = ""
        self.requests = 0
        self.fetched_bytes = 0

    def open(self, content_id: str) -> "TierFile | None":
        """Return the file, or None if no manifest names the file. Any thread."""
        held = self._held(content_id)
        return None if held is None else TierFile(self, content_id, held)

    def place(self, content_id: str) -> Held | None:
        """Return where a file is now, None if no manifest names the file any more. Any thread."""
        return self._held(content_id)

    def forget(self, content_id: str) -> None:
        """Drop the chunks of a file in which a reader has found damage. Waits for the disk."""
        self._cache.forget(content_id)

    def row(self) -> dict[str, Any]:
        """Return the part of a status."""
        return {
            "requests": self.requests,
            "fetched_bytes": self.fetched_bytes,
            "cache_memory_bytes": self._cache.memory_bytes,
            "cache_disk_bytes": self._cache.disk_bytes,
            "store_error": self._why or None,
        }

    # Reading.

    def in_memory(self, content_id: str, offset: int, count: int) -> memoryview | None:
        """Return bytes of a file if all of them are in memory."""
        found = []
        for at in self._chunks(offset, count):
            chunk = self._cache.in_memory(ChunkName(content_id, at))
            if chunk is None:
                return None
            found.append(chunk)
        return self._cut(found, offset, count)

    def read(self, content_id: str, held: Held, offset: int, count: int) -> memoryview:
        """Return bytes of a file. Waits for the disk and the store.

        Raises CorruptData for an object that ends too early; Unavailable for a store that gives no
        answer or refuses the request, and for a file that is no longer in the tier.
        """
        wanted = self._chunks(offset, count)
        found = []
        for at in wanted:
            name = ChunkName(content_id, at)
            while (chunk := self._cache.get(name)) is None:
                fetched = self._fetch(name, held, wanted.stop)
                if fetched is not None:
                    chunk = fetched
                    break
            found.append(chunk)
        return self._cut(found, offset, count)

    def _fetch(self, name: ChunkName, held: Held, stop: int) -> bytes | None:
        """Fetch a chunk and chunks behind it; return the chunk. None: another thread has tried."""
        with self._lock:
            other = self._under_way.get(name)
            if other is None:
                self._check_rest()
                run = self._run(name, held, stop)
                done: Future[None] = Future()
                self._under_way |= {ChunkName(name.content_id, at): done for at in run}
        if other is not None:
            other.result()
            return None
        try:
            return self._fetched(name, held, run)
        finally:
            with self._lock:
                self._tries = False
                for at in run:
                    del self._under_way[ChunkName(name.content_id, at)]
            done.set_result(None)

    def _run(self, name: ChunkName, held: Held, stop: int) -> range:
        """Return the chunks of the next request, which nobody fetches and the cache lacks."""
        content_id, first = name
        before = self._streams.pop(name, 0)
        ahead = min(2 * before, _AHEAD_MAX) if before else 1
        file_end = -(-held.size // self._chunk_bytes)
        a_part = PART_BYTES // self._chunk_bytes
        part_end = (first // a_part + 1) * a_part
        most = min(max(stop, first + ahead), first + _AHEAD_MAX, file_end, part_end)
        end = first + 1
        while end < most:
            following = ChunkName(content_id, end)
            if following in self._under_way or self._cache.has(following):
                break
            end += 1
        self._streams[ChunkName(content_id, end)] = max(ahead, end - first)
        while len(self._streams) > _STREAMS_MAX:
            self._streams.popitem(last=False)
        return range(first, end)

    def _fetched(self, name: ChunkName, held: Held, run: range) -> bytes:
        """Fetch the chunks with one request, put them into the cache, and return the first."""
        file = file_of(held.path)
        if file is None:
            raise CorruptData(f"{held.path!r} is not the path of a file in a tier")
        step = self._chunk_bytes
        part, first = divmod(run.start * step, PART_BYTES)
        end = min(run.stop * step, held.size) - part * PART_BYTES
        try:
            data = self._objects.get_range(file.part(part), first, end)
        except CorruptData:
            self._answered(None)
            raise
        except LognodeError as error:
            self._answered(error)
            if isinstance(error, Unavailable):
                error.fields.setdefault("retry_after", _REST_FIRST_S)
                raise
            # The credentials have ended, or the bucket is gone. Nothing is wrong with the request
            # of the reader, or with the entry that a replica applies.
            raise self._objects.failed(
                Unavailable, f"the tier refuses reads: {self._why}", reason="tier",
                retry_after=_REST_FIRST_S,
            ) from None  # fmt: skip
        self._answered(None)
        if data is None:
            raise self._objects.failed(
                Unavailable,
                f"{file.part(part)} is not in the tier: newer manifests may not need the file. "
                "Repeat the read; if the file stays away, run `lognode tier verify`",
                reason=GONE, retry_after=_REST_FIRST_S,
            )  # fmt: skip
        with self._lock:
            self.requests += 1
            self.fetched_bytes += len(data)
        chunks = [data[at : at + step] for at in range(0, len(data), step)]
        for at, chunk in zip(run, chunks, strict=True):
            self._cache.put(ChunkName(name.content_id, at), chunk)
        return chunks[0]

    def _chunks(self, offset: int, count: int) -> range:
        """Return the chunks with these bytes."""
        return range(offset // self._chunk_bytes, -(-(offset + count) // self._chunk_bytes))

    def _cut(self, chunks: list[bytes], offset: int, count: int) -> memoryview:
        """Return the bytes of neighbouring chunks, of which the first has the byte at `offset`."""
        begin = offset % self._chunk_bytes
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return memoryview(data)[begin : begin + count]

    # A store that is away.

    def _check_rest(self) -> None:
        """Raise Unavailable while the store has a rest; within the lock."""
        if not self._failures:
            return
        left = self._rests_until - self._clock()
        if self._tries or left > 0:
            raise self._objects.failed(
                Unavailable, f"the tier gives no answer: {self._why}", reason="tier",
                retry_after=round(max(left, _REST_FIRST_S), 3),
            )  # fmt: skip
        self._tries = True

    def _answered(self, error: LognodeError | None) -> None:
        """Note the end of a request; `error`: the store gave no useful answer."""
        with self._lock:
            if error is None:
                self._failures, self._why = 0, ""
                return
            rest_s = min(_REST_MAX_S, _REST_FIRST_S * 2 ** min(self._failures, 10))
            self._failures += 1
            self._rests_until = self._clock() + rest_s
            self._why = error.message.removeprefix(f"{self._objects.place}: ")


class TierFile:
    """A file in a tier. Implements `statemachine.segment_file.SegmentBytes`."""

    def __init__(self, files: TierFiles, content_id: str, held: Held) -> None:
        self._files = files
        self._content_id = content_id
        self._held = held
        self.size = held.size
        self.cache: BlockCache | None = None
        """The cache, which knows the turns of the loop's current read; None: a thread reads."""

    def read(self, offset: int, count: int) -> memoryview:
        """Return these bytes. Raises CorruptData when the file ends before.

        Raises NotPrepared for bytes that are not in memory, when the loop reads; otherwise the
        errors of `TierFiles.read`.
        """
        if offset + count > self.size:
            raise CorruptData(f"the file has {self.size} bytes, and ends too early")
        turns = None if self.cache is None else self.cache.turns
        if turns is None:
            held = self._files.place(self._content_id) or self._held
            return self._files.read(self._content_id, held, offset, count)
        place = Place(self._content_id, offset, count)
        found = turns.fetched.get(place)
        if found is None:
            found = self._files.in_memory(self._content_id, offset, count)
        if found is None:
            raise NotPrepared(self._content_id, place)
        return found

    def close(self) -> None:
        """Do nothing: the file has no descriptor."""
