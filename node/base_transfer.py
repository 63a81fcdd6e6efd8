"""Fetching a base: a peer's durable state of a range, manifest and tables, and its files.

Files are immutable and named by the SHA-256 of their content, so a fetch goes on where it broke
off, from whichever peer, and is verified before the file is opened (raft.md section 5).
"""

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from weakref import WeakValueDictionary

from ..client import limits
from ..client.connection import Connection
from ..client.errors import CorruptData, InvalidArgument, RangeNotFound, Unavailable
from ..client.wire import field
from ..raft.types import GroupId
from ..statemachine.range_state import Base
from ..statemachine.segments import SegmentStore
from . import fields
from .host import Host
from .sync_thread import SyncThread

log = logging.getLogger("lognode.transfer")

_REQUEST_TIMEOUT_S = 10.0
_PIN_S = 60.0
_CONTENT_ID = re.compile(r"[0-9a-zA-Z]{1,64}")

Body = dict[str, Any]


class BaseServer:
    """The giving side: what a base consists of, and pieces of its files."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._leases: dict[object, asyncio.TimerHandle] = {}

    def describe(self, body: Body) -> Body:
        """The durable base of a generation here, and its seal when it has one.

        Its files are kept for a minute after the last request that names them (executions 2.18).
        """
        gid = fields.group(body)
        replica = self._host.replica(gid)
        if replica is None:
            raise RangeNotFound(f"no replica of {gid} on this node", range=gid.range_id)
        base = replica.state.durable_base
        self._pin(gid, [info.content_id for info in base.manifest])
        return {"base": base.to_wire()}

    def piece(self, body: Body) -> Body:
        """Bytes of a segment file."""
        content_id, offset = field(body, "id", str), fields.integer(body, "offset")
        if not _CONTENT_ID.fullmatch(content_id) or offset > 1 << 62:
            raise InvalidArgument("not a piece of a segment", what="id")
        self._pin(content_id, [content_id])
        try:
            with open(self._host.store.path(content_id), "rb") as file:
                file.seek(offset)
                return {"data": file.read(limits.base_chunk_bytes)}
        except FileNotFoundError:
            raise RangeNotFound(f"no segment {content_id} on this node", range=0) from None

    def _pin(self, name: object, content_ids: list[str]) -> None:
        lease = self._leases.pop(name, None)
        if lease is not None:
            lease.cancel()  # progress renews it
        self._host.pinned[name] = content_ids
        self._leases[name] = self._loop.call_later(_PIN_S, self._unpin, name)

    def _unpin(self, name: object) -> None:
        del self._leases[name]
        self._host.pinned.pop(name, None)


class BaseFetcher:
    """The taking side."""

    def __init__(
        self,
        *,
        host: Host,
        store: SegmentStore,
        tmp: Path,
        sync: SyncThread,
        connection: Callable[[int], Connection | None],
    ) -> None:
        self._host = host
        self._store = store
        self._tmp = tmp
        self._sync = sync
        self._connection = connection
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Per file: two duties may want the same one at once."""

    async def fetch(self, peer: int, gid: GroupId, *, pin: object) -> Base:
        """The peer's durable base of a generation, with every file of it here.

        The files stay until the caller drops `pin` from the host. Raises Unavailable, CorruptData,
        RangeNotFound.
        """
        answer = await self._ask(
            peer, "base", {"range": gid.range_id, "generation": gid.generation}
        )
        base = Base.from_wire(answer["base"])
        self._host.pinned[pin] = [info.content_id for info in base.manifest]
        for info in base.manifest:
            turn = self._turns.setdefault(info.content_id, asyncio.Lock())
            async with turn:
                if not await self._is_sound(info.content_id):
                    await self._fetch_file(peer, info.content_id, info.size)
        return base

    async def _is_sound(self, content_id: str) -> bool:
        """Whether the file is here and is what its name says; a damaged one goes."""
        if not self._store.has(content_id):
            return False
        if not self._store.is_verified(content_id):
            try:
                await asyncio.to_thread(self._store.verify, content_id)
            except CorruptData as error:
                log.warning("file is fetched again", extra={"fields": {"reason": error.message}})
                self._store.discard(content_id)
                return False
        return True

    async def _fetch_file(self, peer: int, content_id: str, size: int) -> None:
        """Written by a thread of its own: WAL rounds do not wait for a large file's fsync."""
        path = self._tmp / f"fetch-{content_id}"
        digest = hashlib.sha256()
        received = 0
        try:
            with await asyncio.to_thread(path.open, "wb") as file:
                while received < size:
                    answer = await self._ask(peer, "file", {"id": content_id, "offset": received})
                    data: bytes = answer["data"]
                    if not data:
                        break
                    received += len(data)
                    await asyncio.to_thread(_take, file, digest, data)
                await asyncio.to_thread(os.fsync, file.fileno())
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror or error}") from None
        if digest.hexdigest() != content_id:
            path.unlink()
            raise CorruptData(f"segment {content_id} came from node {peer} with another content")
        await self._sync.run(lambda: self._store.add(path, content_id))

    async def _ask(self, peer: int, op: str, body: Body) -> Body:
        connection = self._connection(peer)
        if connection is None:
            raise Unavailable(f"no link to node {peer}")
        deadline = asyncio.get_running_loop().time() + _REQUEST_TIMEOUT_S
        return await connection.request(op, body, deadline=deadline)


def _take(file: IO[bytes], digest: "hashlib._Hash", data: bytes) -> None:
    file.write(data)
    file.flush()
    digest.update(data)
