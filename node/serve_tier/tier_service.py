"""Serves the requests of clients from a tier. Only reads; every other request is refused by name.

Implements `client.accepting.handler.Handler`. Clients need no token: who may connect is decided by
the port (`serve_verb`).
"""

import asyncio
import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...client.accepting.acceptor import ServerConnection
from ...client.accepting.handler import Believed
from ...client.accepting.request import Request
from ...client.protocol import Operation, Sender, by_number, limits
from ...client.protocol.appends import LEASE_RELEASE, LEASE_TAKE
from ...client.protocol.cluster import HEALTH, METADATA, RANGES, STATUS
from ...client.protocol.errors import (
    CorruptData,
    LognodeError,
    LogNotFound,
    NodeNotFound,
    NotFound,
    RangeNotFound,
    Timeout,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from ...client.protocol.principal import Principal
from ...client.protocol.reads import (
    COUNT_ENTRIES,
    EXPORT,
    KEYS,
    LATEST,
    LAYOUT,
    READ_SPAN,
    RESOLVE,
    SCAN,
)
from ...client.protocol.wire import Hello, Welcome
from ...partitions.model import Descriptor
from ...raft.types import GroupId
from ...statemachine.segments import SegmentStore
from ..runtime import fields
from ..serving import reads
from ..serving.metadata_service import range_page
from ..tier.manifest import Held
from ..tier.tier_files import GONE, TierFiles
from .following import Following, Served, files_of
from .served_range import NODE, ServedRange
from .snapshot_leases import SnapshotLeases
from .tier_status import VERSION, TierStatus, log_row

_OF_KEY: Final = frozenset({LATEST, COUNT_ENTRIES, SCAN})
_OF_SPAN: Final = frozenset({READ_SPAN, EXPORT})
_READS: Final[Mapping[Operation, reads.Read]] = {
    operation: reads.READS[operation] for operation in (*_OF_KEY, *_OF_SPAN, KEYS, RESOLVE, LAYOUT)
}
_TIMEOUT_MAX_MS: Final = 60_000
_NEWER_S: Final = 0.5
"""How long a question for newer metadata waits, as at a node."""
_AGAIN_S: Final = 1.0

Body = dict[str, Any]

log = logging.getLogger("lognode.serve_tier")


class FilePlaces:
    """Where the files are that present manifests and leases name. Any thread may ask."""

    def __init__(self) -> None:
        self._present: Mapping[str, Held] = {}
        self._leased: Mapping[str, Held] = {}

    def of(self, content_id: str) -> Held | None:
        """Return where a file is, or None. The place in the present manifests counts first."""
        return self._present.get(content_id) or self._leased.get(content_id)

    def tell(self, served: Served, leases: SnapshotLeases) -> None:
        """Take the files that these ranges need."""
        earlier = (each for each in leases.ranges() if served.ranges.get(each.gid) is not each)
        self._leased = files_of({each.source: each for each in earlier}.values())
        self._present = served.held


class TierService:
    """See the module. `writers`: where clients append, for people; maybe empty."""

    def __init__(
        self, following: Following, leases: SnapshotLeases, files: TierFiles, store: SegmentStore,
        status: TierStatus, places: FilePlaces, *, address: Callable[[], str], max_stale_s: float,
        writers: str,
    ) -> None:  # fmt: skip
        self._following = following
        self._leases = leases
        self._files = files
        self._store = store
        self._status = status
        self._places = places
        self._address = address
        self._max_stale_s = max_stale_s
        self._writers = writers

    # Handler.

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        if hello.role == "node":
            raise Unauthorized(
                "this is `lognode serve-tier`, which is not a node; give --join the address of a "
                "node of the cluster"
            )
        return Welcome(
            nonce=nonce, version=hello.agreed_version(), cluster=self._following.cluster, node=NODE
        )

    def believe(self, connection: ServerConnection, hello: Hello) -> Believed:
        if hello.cluster is not None and hello.cluster != self._following.cluster:
            raise Unauthorized(
                f"this process serves the tier of cluster {self._following.cluster}, and not of "
                f"{hello.cluster:.64}: check the address"
            )
        if hello.token is not None:
            raise Unauthorized(
                "`lognode serve-tier` cannot check tokens, because the tier has none. Connect "
                "without a token, or with a client certificate"
            )
        return None

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        operation = by_number(number)
        if operation is None:
            raise Unsupported(f"this process does not know operation {number}")
        if operation.sender in (Sender.STRANGER, Sender.PEER):
            raise Unauthorized(f"{operation} is only for nodes of a cluster")
        return operation

    def opened(self, connection: ServerConnection) -> Principal | None:
        return None

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        return

    def message(self, connection: ServerConnection, operation: Operation, body: Body) -> None:
        return

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        return

    def failed(self, number: int, error: Exception) -> None:
        log.error(
            "request failed", exc_info=error, extra={"fields": {"op": str(by_number(number))}}
        )

    async def request(self, request: Request) -> Body:
        operation, body = request.operation, request.body
        read = _READS.get(operation)
        if read is not None:
            return await self._read(operation, read, request)
        if operation is LEASE_TAKE:
            self._check_fresh()
            answer = self._leases.take(self._find(body), body, request.connection.host)
            self._places.tell(self._following.served, self._leases)
            return answer
        if operation is LEASE_RELEASE:
            self._leases.release(body["lease"])
            return {}
        if operation in (METADATA, RANGES):
            await self._newer(body)
            await request.room()
            return self._metadata(body) if operation is METADATA else self._ranges(body)
        if operation is STATUS:
            await request.room()
            return await self._status.page(body)
        if operation is HEALTH:
            return self._status.health()
        raise self._unsupported(operation)

    def _unsupported(self, operation: Operation) -> Unsupported:
        where = f", {self._writers}" if self._writers else ""
        return Unsupported(
            f"{operation} is refused: this is `lognode serve-tier`, which only reads the tier of "
            f"cluster {self._following.cluster}. Append, follow and administer at the nodes of the "
            f"cluster{where}"
        )

    # Reads.

    async def _read(self, operation: Operation, read: reads.Read, request: Request) -> Body:
        body = request.body
        if body.get("turn") is not None:
            raise self._unsupported(operation)
        try:
            if body.get("as_of") is not None and operation in _OF_KEY | _OF_SPAN:
                return await self._read_snapshot(operation, read, request)
            served = await self._until_readable(body)
            await request.room()
            answer = await read(served, body)
            answer.setdefault("applied", served.state.applied_index)
            return answer
        except CorruptData as error:
            await self._drop(error)
            raise CorruptData(
                f"{error.message}. Run `lognode tier verify`, and repeat the read",
                outcome="not_applied",
            ) from None
        except Unavailable as error:
            if error.fields.get("reason") == GONE:
                self._following.look_soon()
                self._forget_files()
            raise

    async def _read_snapshot(
        self, operation: Operation, read: reads.Read, request: Request
    ) -> Body:
        """Read from the manifests that the lease keeps. They have no place in the session of the
        client, so the answer names no applied index."""
        body = request.body
        lease, first = body["as_of"], body["key" if operation in _OF_KEY else "start_key"]
        self._find(body)
        part = self._leases.part(lease, first)
        await request.room()
        try:
            if operation in _OF_KEY:
                answer = await read(part.range, body)
            else:
                answer = await self._read_part(part.span[1], part.range, read, body)
        except Unavailable as error:
            if error.fields.get("reason") != GONE:
                raise
            self._forget_files()
            raise NotFound(
                "the tier no longer has a file of this snapshot: the nodes keep files that no "
                "manifest needs for --tier-grace. Take another snapshot"
            ) from None
        answer["applied"] = None
        return answer

    async def _read_part(
        self, end: bytes | None, range_: ServedRange, read: reads.Read, body: Body
    ) -> Body:
        """Read a span up to `end`. An answer with fewer keys than were asked for says so."""
        asked: bytes | None = body["end_key"]
        if end is None or (asked is not None and asked <= end):
            return await read(range_, body)
        answer = await read(range_, {**body, "end_key": end})
        if answer.get("end_key") is None:
            answer["end_key"] = end
        return answer

    async def _until_readable(self, body: Body) -> ServedRange:
        """Wait until the range has what the read asks for.

        Raises Timeout, Unavailable for a client that has seen more elsewhere, and the errors of
        `_find`.
        """
        through, session = body["through"], body["applied"] or 0
        timeout_s = min(body["timeout_ms"], _TIMEOUT_MAX_MS) / 1_000
        until = time.monotonic() + timeout_s
        while True:
            self._check_fresh()
            served = self._find(body)
            if served.state.applied_index < session:
                raise Unavailable(
                    f"the tier has entry {served.state.applied_index} of {served.gid}, but the "
                    f"session has seen {session}; ask again later", reason="behind",
                )  # fmt: skip
            if through is None or served.state.next_seq > through:
                return served
            try:
                await self._following.changed(until - time.monotonic())
            except TimeoutError:
                raise Timeout(
                    f"the read did not finish within {timeout_s:g} s; the tier has seq "
                    f"{served.state.next_seq - 1} of the range, and the read needs seq {through}",
                    outcome="not_applied",
                ) from None

    def _check_fresh(self) -> None:
        """Raise Unavailable when the last look at the manifests is too long ago."""
        age_s = self._following.age_s()
        if age_s > self._max_stale_s:
            why = f": {self._following.error}" if self._following.error else ""
            raise Unavailable(
                f"the last look at the tier was {age_s:.0f} s ago, and --max-stale is "
                f"{self._max_stale_s:g} s{why}", reason="stale", retry_after=_AGAIN_S,
            )  # fmt: skip

    def _find(self, body: Body) -> ServedRange:
        """Return the range that a request names. Raises RangeNotFound: the client then asks for
        the ranges again; NodeNotFound."""
        gid: GroupId = fields.group(body)
        node = body.get("node")
        if node is not None and node != NODE:
            raise NodeNotFound(f"this process has the node id {NODE}, and not {node}", node=node)
        found = self._following.served.ranges.get(gid)
        if found is None:
            raise RangeNotFound(f"the tier has no {gid} now", range=gid.range_id)
        return found

    async def _drop(self, error: CorruptData) -> None:
        """Fetch a damaged file again at its next read: the cache or the network may be at fault."""
        name = error.fields.get("segment")
        log.error("a file of the tier is damaged", extra={"fields": {"error": error.message}})
        if type(name) is str:
            await asyncio.to_thread(self._files.forget, name)
            self._store.doubt([name])

    def _forget_files(self) -> None:
        """Open files again at their next read: a newer manifest may have them in another place."""
        self._store.doubt(self._store.open_ids)

    # Metadata.

    async def _newer(self, body: Body) -> None:
        if body["at_least"] > VERSION:
            try:
                await self._following.changed(_NEWER_S)
            except TimeoutError:
                return  # the answer names the version

    def _metadata(self, body: Body) -> Body:
        """Return a page of a log's ranges, or without `log` a page of the logs."""
        served, name = self._following.served, body["log"]
        answer: Body = {"cluster": self._following.cluster, "version": VERSION}
        if body["nodes"]:
            answer["nodes"] = [{"id": NODE, "address": self._address(), "state": "ACTIVE"}]
        if name is not None:
            found = served.logs.get(name)
            if found is None:
                raise LogNotFound(f"the tier has no log {name!r}", log=name)
            descriptors: Sequence[Descriptor] = [each.descriptor for each in found.ranges]
            limit = min(int(body["limit"]), limits.ranges_page_max)
            some, following = range_page(descriptors, body["start_key"], limit)
            rows = list(map(_described, some))
            return {**answer, "logs": [log_row(found)], "ranges": rows, "next_key": following}
        after, limit = body["after"], min(body["limit"], limits.logs_page_max)
        rest = [each for each in served.logs.values() if each.facts.log_id > after]
        last = rest[limit - 1].facts.log_id if len(rest) > limit else None
        return {**answer, "logs": list(map(log_row, rest[:limit])), "ranges": [], "next": last}

    def _ranges(self, body: Body) -> Body:
        """Return a page of all ranges, or one range."""
        served, wanted = self._following.served, body["range"]
        after, limit = body["after"], min(int(body["limit"]), limits.ranges_page_max)
        if wanted is not None:
            after, limit = wanted - 1, 1
        begin = bisect_right(served.order, after, key=_id_of)
        some = served.order[begin : begin + limit]
        following = some[-1].range_id if begin + limit < len(served.order) else None
        if wanted is not None:
            some, following = [gid for gid in some if gid.range_id == wanted], None
        found = [served.ranges[gid].descriptor for gid in some]
        return {"version": VERSION, "ranges": list(map(_described, found)), "next": following}


def _id_of(gid: GroupId) -> int:
    return gid.range_id


def _described(range_: Descriptor) -> Body:
    return {**range_.to_wire(), "leader": NODE}
