"""The gate of a node: requests of clients pass it, or are refused for a quota.

A request is charged to the principal of its connection, and to the tenant of the log whose range it
names. Either may have a quota. A request is refused before anything of it is done, with the time
after which it may be sent again; its connection is served as before. Nodes of the cluster pass
free, and pay nothing.

What is charged, and when:

    requests, append_bytes     as the request passes
    append_records             once the batches are opened
    read_bytes, read_records   as the answer is sent; `answer_reserved_bytes` of it in advance
    cpu_ms                     after each turn of the loop that the request takes
"""

from collections.abc import Callable
from typing import Any

from ..client import limits
from ..client.acceptor import ServerConnection
from ..client.errors import Overloaded
from ..client.fair_turns import Share
from ..client.principal import Principal
from ..client.protocol import Operation
from ..client.protocol.appends import APPEND
from ..client.protocol.reads import READS
from ..client.request import Request
from ..partitions.metadata import Metadata
from ..partitions.quota import tenant_of
from .quotas import (
    APPEND_BYTES,
    APPEND_RECORDS,
    CPU,
    READ_BYTES,
    READ_RECORDS,
    REFUSED,
    REQUESTS,
    Quotas,
    Refusal,
    Spender,
)

_ANY = (REQUESTS, CPU)
_APPEND = (*_ANY, APPEND_BYTES, APPEND_RECORDS)
_READ = (*_ANY, READ_BYTES, READ_RECORDS)
_READS = frozenset(READS)
_MS_PER_S = 1_000.0
_HELD_MAX_S = 1.0
"""A principal over its quota is held back for so long at most, until its next refusal."""

Body = dict[str, Any]


class Payer:
    """Who pays for one request: a principal, and a tenant if the request names a log's range."""

    __slots__ = ("_clock", "_reserved", "_spenders", "share")

    def __init__(
        self, spenders: tuple[Spender, ...], share: Share, clock: Callable[[], float]
    ) -> None:
        self.share = share
        self._spenders = spenders
        self._clock = clock
        self._reserved = 0

    @property
    def name(self) -> str:
        """The name of the principal."""
        return self.share.name

    def use(self, kind: int, amount: float) -> None:
        """So much was used."""
        now = self._clock()
        for spender in self._spenders:
            spender.use(kind, amount, now)

    def ran(self, seconds: float) -> None:
        """The request has taken a turn of the loop."""
        self.use(CPU, seconds * _MS_PER_S)

    def reserve(self, answer_bytes: int) -> None:
        """Take some of the answer's bytes in advance, so that many reads at once do not all find
        the quota unused."""
        self._reserved = min(answer_bytes, limits.answer_reserved_bytes)
        self._take(self._reserved)

    def sent(self, size: int, body: Body) -> None:
        """An answer or a part of it was sent, or an error instead."""
        self.settle()
        seqs = body.get("page", body).get("seqs")
        self.use(READ_BYTES, size)
        if seqs:
            self.use(READ_RECORDS, len(seqs))

    def settle(self) -> None:
        """Give back what was taken in advance."""
        if self._reserved:
            self._take(-self._reserved)
            self._reserved = 0

    def pause_s(self) -> float:
        """Seconds to wait before the next part of a long answer is made."""
        now = self._clock()
        refusals = (spender.refusal(_READ, now) for spender in self._spenders)
        return max((found.retry_after_s for found in refusals if found), default=0.0)

    def _take(self, amount: int) -> None:
        now = self._clock()
        for spender in self._spenders:
            spender.reserve(READ_BYTES, amount, now)


class Gate:
    """See the module. `metadata` gives the newest metadata that the node knows."""

    def __init__(self, quotas: Quotas, metadata: Callable[[], Metadata]) -> None:
        self.quotas = quotas
        self._metadata = metadata
        self._principals: dict[ServerConnection, Spender] = {}
        self._tenants: dict[int, Spender] = {}
        """By range, as far as they were asked for since the metadata changed."""

    def opened(self, connection: ServerConnection, principal: Principal) -> None:
        """A client has connected."""
        spender = self.quotas.principal(principal.name, principal.quota_class)
        spender.connections += 1
        self._principals[connection] = spender

    def closed(self, connection: ServerConnection) -> None:
        """A connection has ended."""
        spender = self._principals.pop(connection, None)
        if spender is not None:
            spender.connections -= 1

    def image_changed(self) -> None:
        """The metadata may have changed."""
        metadata = self._metadata()
        self._tenants.clear()
        self.quotas.learn(metadata.quotas)
        if self.quotas.has_many_tenants:
            self.quotas.keep_tenants({tenant_of(log.name) for log in metadata.logs.values()})

    def admit(self, request: Request) -> Payer | None:
        """Who pays for the request; None for one of a node, for which nobody pays.

        Raises Overloaded with `quota` and `retry_after`.
        """
        connection = request.connection
        principal, share = self._principals.get(connection), connection.share
        if principal is None or share is None:
            return None
        if share.on_spent is None:
            share.on_spent = _cpu_of(principal, self.quotas.clock)
        operation, body, clock = request.operation, request.body, self.quotas.clock
        tenant = self._tenant(body)
        spenders = (principal,) if tenant is None else (principal, tenant)
        now = clock()
        for spender in spenders:
            if spender.is_limited:
                refusal = spender.refusal(_kinds(operation), now)
                if refusal is not None:
                    raise _refused(refusal, principal, share)
        for spender in spenders:
            spender.use(REQUESTS, 1, now)
        payer = Payer(spenders, share, clock)
        if operation is APPEND:
            payer.use(APPEND_BYTES, sum(map(len, body["batches"])))
        elif operation in _READS:
            payer.reserve(request.weight)
            request.on_sent = payer.sent
        return payer

    def _tenant(self, body: Body) -> Spender | None:
        range_id = body.get("range")
        if range_id is None:
            return None
        found = self._tenants.get(range_id)
        if found is None:
            metadata = self._metadata()
            range_ = metadata.ranges.get(range_id)
            log = None if range_ is None else metadata.logs.get(range_.log_id)
            if log is None:
                return None
            found = self._tenants[range_id] = self.quotas.tenant(tenant_of(log.name))
        return found


def _cpu_of(spender: Spender, clock: Callable[[], float]) -> Callable[[float], None]:
    """Charges a principal for the turns in which its frames are taken."""
    return lambda seconds: spender.use(CPU, seconds * _MS_PER_S, clock())


def _kinds(operation: Operation) -> tuple[int, ...]:
    """What an operation uses."""
    if operation is APPEND:
        return _APPEND
    return _READ if operation in _READS else _ANY


def _refused(refusal: Refusal, principal: Spender, share: Share) -> Overloaded:
    """The error; the principal is held back meanwhile."""
    spender, wait_s = refusal.spender, refusal.retry_after_s
    principal.used[REFUSED] += 1
    if spender is not principal:
        spender.used[REFUSED] += 1
    share.hold_back(min(wait_s, _HELD_MAX_S))
    return Overloaded(
        f"{spender.label} {spender.name} has used its quota: {refusal.limit:,} {refusal.quota} a "
        f"second are allowed on each node. Send the request again in {wait_s:.3f} s.",
        retry_after=round(wait_s, 4), quota=refusal.quota,
    )  # fmt: skip
