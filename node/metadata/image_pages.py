"""Pages of the metadata's image: one node makes them, another assembles them.

A page has the buckets that changed after the asking node's version, oldest change first, up to
`image_page_bytes`. It says where to continue; the last page does not. See `partitions.buckets` for
why pages of metadata that changes meanwhile make one version at the end.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from ...client.protocol import limits
from ...client.protocol.errors import CorruptData
from ...partitions import buckets
from ...partitions.buckets import Part, Staged
from ...partitions.metadata import Metadata
from ...partitions.metadata_state import MetadataState
from ...partitions.tables import Bucket
from ..directory.data_directory import new_incarnation
from ..runtime.slices import SLICE_S

Body = dict[str, Any]
Ask = Callable[[Body], Awaitable[Body]]
"""Asks for a page: gets `since` and `after`, returns what `page_of` made on the other node."""
Position = Sequence[int] | None
"""Where to continue: the token of the process that made the page, and a tick of that process. None:
at the beginning."""
START: Final = (0, 0)
"""Generation and version of a node that has no image."""


class Image(NamedTuple):
    """All pages together: the state of a version, or the changes from an earlier version."""

    generation: int
    version: int
    since: int
    """The version from which the image gives the changes; 0: the image is the whole state."""
    parts: Collection[Part]

    @property
    def full(self) -> bool:
        """Whether the image is the whole state."""
        return not self.since


async def page_of(
    state: MetadataState, since: int, after: Position = None, *, tables: Collection[str]
) -> Body:
    """Make the page that follows `after`, or the first page for a node at version `since`."""
    changes = state.changes
    token = changes.named(new_incarnation)
    tick = _position(token, after)
    begins, full = tick is None, False
    if tick is None:
        full = since == START[1] or since < changes.floor
        tick = 0 if full else changes.tick_of(since)
    found: list[list[Any]] = []
    size, more = 0, True

    def is_full() -> bool:
        return size >= limits.image_page_bytes or len(found) >= limits.image_page_buckets_max

    while more and not is_full():
        more = False
        changed = changes.after(tick)
        until = time.perf_counter() + SLICE_S
        for at, bucket in changed:
            if is_full() or time.perf_counter() > until:
                more = True
                break
            tick = at
            if bucket.table in tables:
                data = buckets.pack(state, bucket)
                if data or not full:
                    found.append([*bucket, data])
                    size += len(data)
        if more and not is_full():
            await asyncio.sleep(0)
    return {
        "begins": begins,
        "full": full,
        "generation": state.controller.generation,
        "version": state.version,
        "buckets": found,
        "next": [token, tick] if more else None,
    }


def _position(token: int, after: Position) -> int | None:
    """Return the tick after which the page begins; None for the first page or another process."""
    if after is None or after[0] != token:
        return None
    return after[1]


class Assembly:
    """Assembles received pages, for a node that has the version `since`."""

    def __init__(self, since: int = 0) -> None:
        self._since = since
        self._staged = Staged()
        self._tables = MetadataState()
        """Tables that say how to read buckets."""
        self.after: Position = None
        """Where to continue."""

    async def add(self, page: Body) -> Image | None:
        """Take a page; return the image when the page is the last. Raises CorruptData."""
        if page["begins"]:
            self._staged.begin(full=page["full"])
        elif self.after is None:
            raise CorruptData("the first page of an image does not begin at the start of the image")
        until = time.perf_counter() + SLICE_S
        for row in page["buckets"]:
            self._staged.add(buckets.read(self._tables, *row))
            if time.perf_counter() > until:
                await asyncio.sleep(0)
                until = time.perf_counter() + SLICE_S
        self.after = page["next"]
        if self.after is not None:
            return None
        since = 0 if self._staged.full else self._since
        return Image(page["generation"], page["version"], since, self._staged.parts.values())


async def pull(ask: Ask, since: tuple[int, int], first: Body | None = None) -> Image:
    """Ask for pages until the image is whole. `first` was received already, unasked.

    Raises CorruptData for pages that make no image, and what `ask` raises.
    """
    assembly = Assembly(since[1])
    page = first or await ask({"since": list(since), "after": None})
    while (image := await assembly.add(page)) is None:
        page = await ask({"since": list(since), "after": assembly.after})
    return image


async def packed(
    state: MetadataState, wanted: Callable[[], Iterable[Bucket]]
) -> dict[Bucket, bytes]:
    """Return the packed bytes of the wanted buckets, all as of the moment of the return.

    Buckets are packed in slices; a bucket that changes meanwhile is packed again.
    """
    while True:
        until: float | None = None
        found = {}
        for bucket in wanted():
            if not buckets.is_packed(state, bucket):
                now = time.perf_counter()
                until = until or now + SLICE_S
                if now > until:
                    break
            found[bucket] = buckets.pack(state, bucket)
        else:
            return found
        await asyncio.sleep(0)


async def changed(state: Metadata, image: Image) -> None:
    """Apply the image to the state, which nothing else uses yet."""
    until = time.perf_counter() + SLICE_S
    for part in image.parts:
        buckets.put(state, part, image.version)
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S
    state.version = image.version


async def made(image: Image) -> Metadata:
    """Make the metadata of a full image. Raises CorruptData for an image that is not full."""
    if not image.full:
        raise CorruptData("the image contains only changes")
    metadata = Metadata()
    await changed(metadata, image)
    metadata.begin_at(image.version)
    return metadata
