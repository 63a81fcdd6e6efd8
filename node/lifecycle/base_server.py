"""Gives a base to a peer in pieces, and pieces of its files (docs/design/ranges.md#bases).

A lease keeps every file of the base while a peer fetches it, and the log behind the base, from
which the peer continues afterwards (x2.18). Each piece that the peer takes renews the lease.
"""

import asyncio
import itertools
import logging
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from ...client.protocol.errors import (
    CorruptData,
    InvalidArgument,
    Overloaded,
    RangeNotFound,
    Unavailable,
)
from ...raft.types import GroupId
from ..metrics import Metrics
from ..replicas.host import Host
from ..runtime import fields
from ..runtime.rate import TokenBucket
from .base_pieces import PIECE_BYTES, pack

_LEASE_S = 60.0
_WAIT_MAX_S = 5.0
"""The longest wait for the rate limit; a peer that would wait longer must come back later."""
_CONTENT_ID = re.compile(r"[0-9a-zA-Z]{1,64}")

log = logging.getLogger("lognode.transfer")

Body = dict[str, Any]
Lease = tuple[str, int, GroupId]


class BaseServer:
    """Serves bases and files to peers.

    `bucket` limits the bytes of files that this node sends to all peers together. `doubt` is called
    with a replica's file that is damaged.
    """

    def __init__(
        self, host: Host, bucket: TokenBucket,
        doubt: Callable[[GroupId, str, CorruptData], None], metrics: Metrics,
    ) -> None:  # fmt: skip
        self._host = host
        self._doubt = doubt
        self._bucket = bucket
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._leases: dict[Lease, asyncio.TimerHandle] = {}
        self._packed: dict[Lease, tuple[int, bytes]] = {}
        """Number and bytes of each base that has more than one piece."""
        self._numbers = itertools.count(1)

    async def describe(self, node: int, body: Body) -> Body:
        """Describe the durable base of a generation here.

        The answer has the first piece of the base, its number, the bytes of the whole base, and the
        bytes that are in memory behind the base. Raises RangeNotFound.
        """
        gid = fields.group(body)
        replica = self._host.replica(gid)
        if replica is None:
            raise RangeNotFound(f"this node has no replica of {gid}", range=gid.range_id)
        base = replica.state.durable_base
        lease = ("lease", node, gid)
        self._host.pinned.pin(lease, [info.content_id for info in base.manifest])
        replica.log_pins.pin(lease, base.applied_index)
        self._renew(lease)
        data, number = await pack(base), next(self._numbers)
        self._packed.pop(lease, None)
        if len(data) > PIECE_BYTES and lease in self._leases:
            self._packed[lease] = number, data
        return {
            "base": number, "bytes": len(data), "data": data[:PIECE_BYTES],
            "tail_bytes": replica.state.memtable_bytes,
        }  # fmt: skip

    async def base_piece(self, node: int, body: Body) -> Body:
        """Return a later piece of the base that `describe` gave this number, from `offset` on.

        Raises Unavailable where the base is no longer held: the peer took no piece for a minute, or
        asked for the base again.
        """
        lease = ("lease", node, fields.group(body))
        number, data = self._packed.get(lease, (0, b""))
        if number != body["base"]:
            raise Unavailable("this node no longer has the base; ask for the base again")
        self._renew(lease)
        offset = body["offset"]
        return {"data": data[offset : offset + PIECE_BYTES]}

    async def piece(self, node: int, body: Body) -> Body:
        """Return at most `bytes` bytes of a file from `offset` on, or no bytes at its end.

        Raises RangeNotFound, Unavailable while the file is repaired here, or Overloaded: the peer
        must come back later.
        """
        content_id, offset = _content_id(body), body["offset"]
        lease = ("lease", node, fields.group(body))
        if lease in self._leases:
            self._renew(lease)
        if self._host.store.is_suspended(content_id):
            raise Unavailable(
                f"segment {content_id} is damaged on this node, and the node fetches the "
                "segment again"
            )
        count = min(body["bytes"], self._bucket.piece_bytes)
        delay_s = self._bucket.reserve(count)
        if delay_s > _WAIT_MAX_S:
            self._bucket.give_back(count)
            raise Overloaded(
                "other nodes use all file transfers of this node; try again later",
                retry_after=delay_s,
            )
        await asyncio.sleep(delay_s)
        run, store = self._host.store.run_elsewhere, self._host.store
        read = partial(self._read, content_id, offset, count)
        if run is None or store.is_listed(content_id):
            run = asyncio.to_thread
        data = await run(read)  # of a file in the tier only it waits for the tier
        self._metrics.transfer_sent_bytes.inc(len(data))
        return {"data": data}

    def _read(self, content_id: str, offset: int, count: int) -> bytes:
        try:
            return self._host.store.bytes_of(content_id, offset, count)
        except FileNotFoundError:
            raise RangeNotFound(f"this node has no segment {content_id}", range=0) from None

    async def check(self, node: int, body: Body) -> Body:
        """Tell whether the file here is sound, for a peer that has received other content.

        A damaged file is repaired, or the replicas that hold it are marked damaged. Raises
        RangeNotFound where no replica here holds a file of that name: a peer's word alone damages
        nothing.
        """
        content_id, gid = _content_id(body), fields.group(body)
        if not self._host.holders(content_id):
            raise RangeNotFound(f"no replica on this node has segment {content_id}", range=0)
        try:
            await asyncio.to_thread(self._host.store.verify, content_id)
        except CorruptData as error:
            log.error("this node sent node %d a damaged file: %s", node, error.message)
            self._doubt(gid, content_id, error)
            return {"sound": False}
        return {"sound": True}

    def _renew(self, lease: Lease) -> None:
        timer = self._leases.pop(lease, None)
        if timer is not None:
            timer.cancel()
        self._leases[lease] = self._loop.call_later(_LEASE_S, self._end, lease)

    def _end(self, lease: Lease) -> None:
        del self._leases[lease]
        self._packed.pop(lease, None)
        self._host.pinned.unpin(lease)
        replica = self._host.replica(lease[2])
        if replica is not None:
            replica.log_pins.unpin(lease)


def _content_id(body: Body) -> str:
    content_id: str = body["id"]
    if not _CONTENT_ID.fullmatch(content_id):
        raise InvalidArgument("the text is not the id of a segment", what="id")
    return content_id
