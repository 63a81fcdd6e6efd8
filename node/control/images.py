"""Sends images of the metadata between nodes: `pull` asks for an image, `serve` answers a page."""

import asyncio
from typing import Any, Final, Literal

from ...client.connection import Connection
from ...client.protocol.errors import NotLeader
from ...client.protocol.peers import IMAGE_PAGE
from ...partitions import buckets
from ...partitions.metadata import Metadata
from ..metadata import image_pages
from ..metadata.image_pages import Image, Position
from ..metadata.view import View
from ..replicas.host import Host

Source = Literal["newest", "known"]
NEWEST: Final = "newest"
"""The image of the controller's leader, confirmed by a quorum round (x29)."""
KNOWN: Final = "known"
"""The image of the asked node: committed, and maybe no longer the newest."""
_PAGE_TIMEOUT_S: Final = 5.0

Body = dict[str, Any]


class Images:
    """Both sides of image transfer. Runs on every node."""

    def __init__(self, host: Host, view: View) -> None:
        self._host = host
        self._view = view

    async def pull(
        self, connection: Connection, source: Source, *, first: Body | None = None
    ) -> None:
        """Bring this node's image up to date with the other node's image.

        `first` is a page that was received already. Raises the other node's error, CorruptData,
        Timeout.
        """
        since = self._view.known
        image = await ask(connection, source, since, first=first)
        if image is not None:
            await self._view.take(image)

    async def serve(self, _: int, body: Body) -> Body:
        """Answer a page. Raises NotLeader when the newest is asked of another node."""
        generation, version = body["since"]
        if body["source"] == NEWEST:
            replica = self._host.controller
            if replica is None:
                raise NotLeader("this node is not a member of the controller", hint=None)
            await replica.ready()
            return {"page": await self._page(replica.metadata, version, body["after"])}
        if self._view.known <= (generation, version) and body["after"] is None:
            return {"page": None}
        return {"page": await self._page(self._view.metadata, version, body["after"])}

    async def first_page(self, metadata: Metadata, since: int) -> Body:
        """Return what has changed since that version, as far as it fits a page."""
        return await self._page(metadata, since, None)

    async def _page(self, metadata: Metadata, since: int, after: Position) -> Body:
        return await image_pages.page_of(metadata, since, after, tables=buckets.PUBLIC)


async def ask(
    connection: Connection, source: Source, since: tuple[int, int], *, first: Body | None = None
) -> Image | None:
    """Ask another node for what has changed since; None when it knows nothing newer."""
    loop = asyncio.get_running_loop()

    async def page(body: Body) -> Body:
        deadline = loop.time() + _PAGE_TIMEOUT_S
        answer = await connection.request(IMAGE_PAGE, {**body, "source": source}, deadline=deadline)
        found: Body = answer["page"] or {}
        return found

    if first is None:
        first = await page({"since": list(since), "after": None})
        if not first:
            return None
    return await image_pages.pull(page, since, first)
