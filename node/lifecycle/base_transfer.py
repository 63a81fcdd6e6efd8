"""Fetches a base from a peer: the durable state of a range with its manifest, tables and files.

A base comes in pieces (see `base_pieces`). Files are immutable and named by the SHA-256 of their
content. So a fetch continues where it stopped, even after a restart of either side, and from any
peer. A file is verified as a whole before it is used (docs/design/ranges.md#bases). Files travel on
a connection of their own: no Raft frame waits behind them, whatever their size (x2.18).

A node with a tier takes from the tier what the tier has (`KeptFiles.source`), so no member reads
and sends these files. The bytes go to the same place in `tmp/`, so a member goes on where the tier
stopped. While bytes come from the tier, the peer is asked for a byte now and then: this renews its
lease on the base, on the other files, and on the log behind the base.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ...client.connection import Connection
from ...client.protocol import Operation, limits
from ...client.protocol.errors import CorruptData, LognodeError, Overloaded, Timeout, Unavailable
from ...client.protocol.peers import BASE, BASE_PIECE, FILE, FILE_CHECK
from ...partitions.duties import TAIL_BYTES
from ...raft.types import GroupId
from ...statemachine.file_hash import hash_file
from ...statemachine.range_state import Base
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.segments import SegmentStore
from ..directory.data_directory import PARTIAL
from ..directory.kept_files import Source
from ..metrics import Metrics
from ..replicas.host import Host
from ..runtime.rate import TokenBucket
from ..runtime.sync_thread import SyncThread
from .base_pieces import unpack

_REQUEST_TIMEOUT_S = 15.0
_TRIES = 4
"""Consecutive failures of a piece after which the peer is given up for now."""
_RETRY_FIRST_S = 0.1
_PAUSE_MAX_S = 30.0
_SYNC_BYTES = 16 * limits.MIB
"""A received file is synced after so many bytes, so that no large write delays a WAL round."""
_RENEW_S = 15.0
"""How often the peer's lease, which lasts for a minute, is renewed while the tier gives files."""
_RENEW_WAIT_S = 2.0
"""How long the answer of the peer is waited for: pieces that came wait in memory meanwhile, and are
all that the node fetches from the tier."""
_STALE_S = 3_600.0
_AHEAD_ROUNDS = 10
_AHEAD_S = 0.1

log = logging.getLogger("lognode.transfer")

Body = dict[str, Any]
Ask = Callable[[Operation, Body], Awaitable[Body]]


class BaseFetcher:
    """Fetches bases and files from peers.

    `connection` returns the existing connection to a peer, `dial` makes another one. `bucket`
    limits the bytes of files that this node receives from all peers and the tier together.
    """

    def __init__(
        self,
        *,
        host: Host,
        store: SegmentStore,
        tmp: Path,
        sync: SyncThread,
        connection: Callable[[int], Connection | None],
        dial: Callable[[int], Awaitable[Connection]],
        bucket: TokenBucket,
        metrics: Metrics,
    ) -> None:
        self._host = host
        self._store = store
        self._tmp = tmp
        self._sync = sync
        self._connection = connection
        self._dial = dial
        self._bucket = bucket
        self._metrics = metrics
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock per file: two duties may want the same file at once."""

    async def fetch(self, peer: int, gid: GroupId, *, pin: object, from_tier: bool = True) -> Base:
        """Fetch the peer's durable base of a generation, with all its files.

        The files stay until the caller drops `pin` from the host. `from_tier`: also look at the
        tier, and claim old files there, for half a minute where the store hangs. Raises
        Unavailable, CorruptData or RangeNotFound; the received part of a file is kept.
        """
        base, _ = await self._fetch(peer, gid, pin, from_tier=from_tier)
        return base

    async def fetch_ahead(self, peer: int, gid: GroupId, *, pin: object) -> Base:
        """Fetch as `fetch` does, and repeat while the peer has too much in memory for the seal.

        The peer flushes its memory meanwhile. Under load there is always more, so the number of
        rounds is limited.
        """
        for _ in range(_AHEAD_ROUNDS):
            base, tail_bytes = await self._fetch(peer, gid, pin)
            if tail_bytes <= TAIL_BYTES:
                break
            await asyncio.sleep(_AHEAD_S)
        return base

    async def _fetch(
        self, peer: int, gid: GroupId, pin: object, *, from_tier: bool = True
    ) -> tuple[Base, int]:
        """Return the base, and how many bytes the peer had in memory behind it."""
        connection = self._connection(peer)
        if connection is None:
            raise Unavailable(f"this node has no link to node {peer}")
        group = {"range": gid.range_id, "generation": gid.generation}
        answer = await connection.request(BASE, group, deadline=_deadline())
        async with self._connected(peer) as ask:
            giver = _Giver(peer, group, ask)
            base = await asyncio.to_thread(unpack, await giver.rest_of_base(answer))
            self._host.pinned.pin(pin, [info.content_id for info in base.manifest])
            if from_tier:
                await self._host.kept.join(gid, base)
            missing = [
                info for info in base.manifest
                if not self._is_far(gid, info.content_id)
                and not await self._is_sound(info.content_id)
            ]  # fmt: skip
            if missing:
                await asyncio.to_thread(_forget_stale, self._tmp)
            source = await self._source(gid, missing) if missing and from_tier else None
            for info in missing:
                turn = self._turns.setdefault(info.content_id, asyncio.Lock())
                async with turn:
                    if (
                        not await self._is_sound(info.content_id)
                        and not await self._taken(source, info, giver)
                    ):  # fmt: skip
                        await self._fetch_file(giver, info)
        return base, answer["tail_bytes"]

    async def fetch_from_tier(self, gid: GroupId, info: SegmentInfo) -> bool:
        """Fetch one file of a generation from the tier, and replace the file here.

        False: the tier does not have the file. Raises CorruptData for a file that is damaged there,
        and Unavailable when the tier cannot be asked now.
        """
        source = await self._host.kept.source(gid, {info.content_id: info.size})
        if source is None or not source.has(info.content_id):
            return False
        turn = self._turns.setdefault(info.content_id, asyncio.Lock())
        async with turn:
            await self._take(source, info, None)
        return True

    async def _source(self, gid: GroupId, missing: list[SegmentInfo]) -> Source | None:
        """Return what the tier has of these files, None without an answer."""
        sizes = {info.content_id: info.size for info in missing}
        try:
            return await self._host.kept.source(gid, sizes)
        except LognodeError as error:
            fields = {"range": gid.range_id, "reason": error.message}
            log.info("all files come from members", extra={"fields": fields})
            return None

    async def _taken(self, source: Source | None, info: SegmentInfo, giver: "_Giver") -> bool:
        """Fetch a file from the tier; False: the peer must give the file, or its rest."""
        if source is None or not source.has(info.content_id):
            return False
        try:
            await self._take(source, info, giver)
        except LognodeError as error:
            fields = {"id": info.content_id, "reason": error.message}
            log.info("the file comes from a member", extra={"fields": fields})
            return False
        return True

    async def _take(self, source: Source, info: SegmentInfo, giver: "_Giver | None") -> None:
        """Fetch a file that the tier has. Raises CorruptData, Unavailable.

        `giver`: the peer whose lease keeps the base.
        """
        path, began = self._tmp / f"{PARTIAL}{info.content_id}", time.monotonic()
        try:
            while True:
                held = await asyncio.to_thread(_held, path, info.size)
                pieces = source.pieces(info.content_id, held, self._bucket)
                if giver is not None:
                    pieces = giver.renewed(info.content_id, pieces)
                if await _filled(path, info, held, pieces):
                    break
                if not held:
                    raise source.spoiled(info.content_id)
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror or error}") from None
        await self._add(path, info, "the tier", held, began)
        source.took(info.content_id)

    async def fetch_file(self, peer: int, gid: GroupId, info: SegmentInfo) -> None:
        """Fetch one file that the peer may have, and replace the file here.

        Raises Unavailable when the peer cannot be asked now. Raises RangeNotFound or CorruptData
        when the peer has no such file, or a damaged one too.
        """
        turn = self._turns.setdefault(info.content_id, asyncio.Lock())
        group = {"range": gid.range_id, "generation": gid.generation}
        async with turn, self._connected(peer) as ask:
            await self._fetch_file(_Giver(peer, group, ask), info)

    def _is_far(self, gid: GroupId, content_id: str) -> bool:
        """Whether this node has the file of the generation in the tier only. The pin of the fetch
        keeps its place."""
        return self._host.kept.has(gid, content_id) and not self._store.is_listed(content_id)

    async def _is_sound(self, content_id: str) -> bool:
        """Whether the file is here and its content matches its name; remove a damaged file."""
        if not self._store.has(content_id):
            return False
        if not self._store.is_verified(content_id):
            try:
                await asyncio.to_thread(self._store.verify, content_id)
            except CorruptData as error:
                log.warning(
                    "the node fetches a file again", extra={"fields": {"reason": error.message}}
                )
                await self._sync.run(partial(self._store.discard, content_id))
                return False
        return True

    @contextlib.asynccontextmanager
    async def _connected(self, peer: int) -> AsyncIterator[Ask]:
        """Give a way to ask the peer on a separate connection, which is dialled again when lost."""
        connection: Connection | None = None

        async def ask(operation: Operation, body: Body) -> Body:
            nonlocal connection
            if connection is None or connection.lost is not None:
                connection = await self._dial(peer)
            return await connection.request(operation, body, deadline=_deadline())

        try:
            yield ask
        finally:
            if connection is not None:
                connection.close()

    async def _fetch_file(self, giver: "_Giver", info: SegmentInfo) -> None:
        path = self._tmp / f"{PARTIAL}{info.content_id}"
        try:
            while True:
                began = time.monotonic()
                held = await asyncio.to_thread(_held, path, info.size)
                if await _filled(path, info, held, giver.pieces(info, held, self._bucket)):
                    break
                if not held:
                    raise CorruptData(await giver.blamed(info.content_id))
                # A power loss may have torn the part from before: fetch the whole file once more.
                log.warning(
                    "a part of a fetched file was damaged", extra={"fields": {"path": path}}
                )
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror or error}") from None
        self._metrics.transfer_received_bytes.inc(info.size - held)
        await self._add(path, info, f"node {giver.peer}", held, began)

    async def _add(
        self, path: Path, info: SegmentInfo, source: str, held: int, began: float
    ) -> None:
        """Take over a file that has the content of its name."""
        await self._sync.run(lambda: self._store.add(path, info.content_id))
        fields = {
            "id": info.content_id, "from": source, "bytes": info.size, "held_before": held,
            "seconds": round(time.monotonic() - began, 3),
        }  # fmt: skip
        log.info("file fetched", extra={"fields": fields})


async def _filled(
    path: Path, info: SegmentInfo, held: int, pieces: AsyncGenerator[bytes, None]
) -> bool:
    """Append pieces until the file has its size, and sync the file.

    False: the content does not match the name, and the file is gone. Closes `pieces`.
    """
    if held >= info.size:  # a process that was killed before it synced the file left the file
        await asyncio.to_thread(_write, path, held, b"", sync=True)
    synced = held
    async with contextlib.aclosing(pieces):
        async for data in pieces:
            sync = held + len(data) - synced >= _SYNC_BYTES or held + len(data) >= info.size
            await asyncio.to_thread(_write, path, held, data, sync=sync)
            held += len(data)
            synced = held if sync else synced
    if await asyncio.to_thread(hash_file, path) == info.content_id:
        return True
    await asyncio.to_thread(path.unlink)
    return False


class _Giver:
    """A peer, and the generation whose files it is asked for."""

    def __init__(self, peer: int, group: Body, ask: Ask) -> None:
        self.peer = peer
        self._group = group
        self._ask = ask

    async def rest_of_base(self, answer: Body) -> bytes:
        """Return the whole base, whose first piece is in the answer.

        Raises CorruptData, Unavailable.
        """
        size = answer["bytes"]
        if size > limits.base_bytes_max:
            raise CorruptData(
                f"node {self.peer} has a base of {size} bytes; at most "
                f"{limits.base_bytes_max} are allowed"
            )
        data = bytearray(answer["data"])
        while len(data) < size:
            body = {**self._group, "base": answer["base"], "offset": len(data)}
            piece = (await self._ask(BASE_PIECE, body))["data"]
            if not piece:
                break
            data += piece
        if len(data) != size:
            raise CorruptData(f"node {self.peer} sent {len(data)} of {size} bytes of a base")
        return bytes(data)

    async def pieces(
        self, info: SegmentInfo, held: int, bucket: TokenBucket
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file from `held` on, in order."""
        while held < info.size:
            wanted = min(bucket.piece_bytes, info.size - held)
            await asyncio.sleep(bucket.reserve(wanted))
            data = await self._piece(info.content_id, held, wanted)
            yield data
            held += len(data)

    async def renewed(
        self, content_id: str, pieces: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield pieces that come from elsewhere, and renew the peer's lease meanwhile.

        A peer that gives no answer is asked for the next file, or has lost the base.
        """
        body = {**self._group, "id": content_id, "offset": 0, "bytes": 1}
        renewed_at = time.monotonic()
        async with contextlib.aclosing(pieces):
            async for data in pieces:
                yield data
                if time.monotonic() - renewed_at > _RENEW_S:
                    renewed_at = time.monotonic()
                    with contextlib.suppress(LognodeError, TimeoutError):
                        async with asyncio.timeout(_RENEW_WAIT_S):
                            await self._ask(FILE, body)

    async def _piece(self, content_id: str, offset: int, count: int) -> bytes:
        """Return at least one byte. Try again for a while when the connection fails."""
        body = {**self._group, "id": content_id, "offset": offset, "bytes": count}
        failed = 0
        while True:
            try:
                data: bytes = (await self._ask(FILE, body))["data"]
            except Overloaded as error:
                await asyncio.sleep(_pause_s(error))
                continue
            except (Unavailable, Timeout) as error:
                failed += 1
                if failed == _TRIES:
                    raise Unavailable(f"node {self.peer}: {error.message}") from None
                await asyncio.sleep(_RETRY_FIRST_S * 2**failed)
                continue
            if not data or len(data) > count:
                raise CorruptData(await self.blamed(content_id))
            return data

    async def blamed(self, content_id: str) -> str:
        """Tell the peer that its file came with other content, so that it checks its own copy."""
        told = f"node {self.peer} sent segment {content_id} with another content"
        try:
            sound = (await self._ask(FILE_CHECK, {**self._group, "id": content_id}))["sound"]
        except LognodeError as error:
            return f"{told}; the question for the reason failed: {error.message}"
        if sound:
            return f"{told}, although the file of node {self.peer} is sound"
        return (
            f"{told}: the file on node {self.peer} is damaged, and the node now knows about the "
            "damage"
        )


def _pause_s(error: Overloaded) -> float:
    """Return how long the peer asks this node to wait."""
    wanted: Any = error.fields.get("retry_after")
    if type(wanted) not in (int, float) or not wanted >= 0:
        return _RETRY_FIRST_S
    return min(float(wanted), _PAUSE_MAX_S)


def _deadline() -> float:
    return asyncio.get_running_loop().time() + _REQUEST_TIMEOUT_S


def _held(path: Path, size: int) -> int:
    """Return how many bytes of the file are here already; a part that is too long is removed."""
    try:
        held = path.stat().st_size
    except FileNotFoundError:
        return 0
    if held > size:
        path.unlink()
        return 0
    return held


def _write(path: Path, offset: int, data: bytes, *, sync: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, offset)
            offset, view = offset + written, view[written:]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def _forget_stale(tmp: Path) -> None:
    """Remove parts of files whose fetch has not continued for long."""
    for path in tmp.glob(f"{PARTIAL}*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink()
