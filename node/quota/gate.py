"""The gate of a node: requests of clients pass it, or are refused for a quota.

A request is charged to the principal of its connection, and to the tenant of the log whose range it
names. Either may have a quota. A request is refused before anything of it is done, with the time
after which it may be sent again; its connection is served as before. Nodes of the cluster pass
free, and pay nothing.

What is charged, and when:

    requests, append_bytes     as the request passes
    stored_bytes               an append is refused while the tenant stores too much
    append_records             once the batches are opened
    read_bytes, read_records   as the answer is sent; with a quota, some of it in advance
    cpu_ms                     after each turn of the loop that the request or its connection takes,
                               TLS included; with a quota, some of it in advance (`foretold`)
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from ...client.accepting.acceptor import ServerConnection
from ...client.accepting.request import Request
from ...client.fair_turns import Share
from ...client.protocol import Operation, limits
from ...client.protocol.appends import APPEND
from ...client.protocol.errors import Overloaded
from ...client.protocol.principal import Principal
from ...client.protocol.quotas import USAGE
from ...client.protocol.reads import READS
from ...partitions.metadata import Metadata
from ...partitions.quota import tenant_of
from .quotas import (
    APPEND_BYTES,
    APPEND_RECORDS,
    CPU,
    READ_BYTES,
    READ_RECORDS,
    REFUSED,
    REQUESTS,
    Payer,
    Quotas,
    Refusal,
    Spender,
)
from .usage import Usage

_ANY = (REQUESTS, CPU)
_APPEND = (*_ANY, APPEND_BYTES, APPEND_RECORDS)
_READ = (*_ANY, READ_BYTES, READ_RECORDS)
_READS = frozenset(READS)
_HELD_MAX_S = 1.0
"""A principal over its quota is held back for so long at most, until its next refusal."""

Body = dict[str, Any]


class _Answer:
    """What an answer is charged with; with a quota, from before it is made."""

    __slots__ = ("_payer", "_reserved")

    def __init__(self, payer: Payer, reserved: int) -> None:
        self._payer = payer
        self._reserved = reserved
        payer.take(READ_BYTES, reserved)

    def sent(self, size: int, body: Body) -> None:
        """A frame of it was sent; 0: nothing more will be."""
        if self._reserved:
            self._payer.take(READ_BYTES, -self._reserved)
            self._reserved = 0
        if size:
            count_answer(self._payer, size, body)


def count_answer(payer: Payer, size: int, body: Body) -> None:
    """A frame of an answer was sent."""
    payer.use(READ_BYTES, size)
    seqs = body.get("page", body).get("seqs")
    if seqs:
        payer.use(READ_RECORDS, len(seqs))


def pause_s(payer: Payer) -> float:
    """Seconds to wait before the next part of a long answer is made."""
    found = payer.refusal(_READ) if payer.is_limited else None
    return 0.0 if found is None else found.retry_after_s


class Gate:
    """See the module. `metadata` gives the newest metadata that the node knows, `clock` seconds;
    the node has started at `started_ms` of the wall clock."""

    def __init__(
        self, metadata: Callable[[], Metadata], clock: Callable[[], float], started_ms: int
    ) -> None:
        self.quotas = Quotas(clock)
        self.handlers = {USAGE: Usage(self.quotas, started_ms).serve}
        self._metadata = metadata
        self._principals: dict[ServerConnection, Spender] = {}
        self._tenants: dict[int, Spender] = {}
        """By range, as far as they were asked for since the metadata changed."""

    def opened(self, connection: ServerConnection, principal: Principal) -> None:
        """A client has connected."""
        spender = self.quotas.principal(principal.name, principal.quota_class)
        spender.connections += 1
        self._principals[connection] = spender

    def check_room(self, principal: Principal) -> None:
        """Raise Overloaded where one more connection of the principal is one too many."""
        spender = self.quotas.principal(principal.name, principal.quota_class)
        spender.check("connections", spender.connections + 1)

    def names_allowed(self, principal: Principal) -> int:
        """How many names of producers the principal's quota allows; 0: any number."""
        return self._metadata().quotas.get(principal.quota_class, {}).get("producers", 0)

    def closed(self, connection: ServerConnection) -> None:
        """A connection has ended."""
        spender = self._principals.pop(connection, None)
        if spender is not None:
            self.quotas.left(spender)

    def image_changed(self) -> None:
        """The metadata may have changed."""
        metadata = self._metadata()
        self._tenants.clear()
        self.quotas.learn(metadata.quotas)
        if self.quotas.has_many_tenants:
            self.quotas.keep_tenants({tenant_of(log.name) for log in metadata.logs.values()})

    def applied(self, range_id: int, records: int, size: int) -> None:
        """An entry that was proposed here was applied, with so many new records."""
        tenant = self._tenant(range_id)
        if tenant is not None:
            tenant.used[APPEND_RECORDS] += records
            tenant.used[APPEND_BYTES] += size

    def admit(self, request: Request) -> Payer | None:
        """Who pays for the request; None for one of a node, for which nobody pays.

        Raises Overloaded with `quota` and `retry_after`.
        """
        connection = request.connection
        principal, share = self._principals.get(connection), connection.share
        if principal is None or share is None:
            return None
        operation, body = request.operation, request.body
        range_id = body.get("range")
        tenant = None if range_id is None else self._tenant(range_id)
        payer = principal.payers.get(tenant) or self.quotas.payer(principal, tenant)
        if payer.is_limited:
            refusal = payer.refusal(_kinds(operation))
            if refusal is not None:
                payer.used[REFUSED] += 1
                raise _refused(refusal, share)
        payer.use(REQUESTS, 1)
        if operation is APPEND:
            if tenant is not None and tenant.is_full:
                payer.used[REFUSED] += 1
                tenant.check_full()
            payer.use(APPEND_BYTES, sum(map(len, body["batches"])))
        elif operation in _READS:
            if payer.is_limited:
                reserved = min(request.weight, limits.answer_reserved_bytes)
                request.on_sent = _Answer(payer, reserved).sent
            else:
                request.on_sent = partial(count_answer, payer)
        if share.on_spent is None:
            share.on_spent = self.quotas.payer(principal, None).ran
        return payer

    def _tenant(self, range_id: int) -> Spender | None:
        found = self._tenants.get(range_id)
        if found is None:
            metadata = self._metadata()
            range_ = metadata.ranges.get(range_id)
            log = None if range_ is None else metadata.logs.get(range_.log_id)
            if log is None:
                return None
            found = self._tenants[range_id] = self.quotas.tenant(tenant_of(log.name))
        return found


def _kinds(operation: Operation) -> tuple[int, ...]:
    """What an operation uses."""
    if operation is APPEND:
        return _APPEND
    return _READ if operation in _READS else _ANY


def _refused(refusal: Refusal, share: Share) -> Overloaded:
    """The error; the principal is held back meanwhile."""
    spender, wait_s = refusal.spender, refusal.retry_after_s
    share.hold_back(min(wait_s, _HELD_MAX_S))
    return Overloaded(
        f"{spender.label} {spender.name} has used its quota: {refusal.limit:,} {refusal.quota} a "
        f"second are allowed on each node. Send the request again in {wait_s:.3f} s.",
        retry_after=round(wait_s, 4), quota=refusal.quota,
    )  # fmt: skip
