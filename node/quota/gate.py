"""The gate of a node: requests of clients pass, or are refused because of a quota.

A request is charged to the principal of its connection, and to the tenant of the log whose range it
names. Either may have a quota. A request is refused before any of it is done, with the time after
which the client may send it again; the connection stays open. Requests of the cluster's nodes pass
free of charge.

What is charged, and when:

    requests, append_bytes     when the request passes
    stored_bytes               an append is refused while the tenant stores too much
    append_records             once the batches are opened
    read_bytes, read_records   when the answer is sent; with a quota, some of it in advance
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
from ...client.protocol.groups import GROUP_APPEND
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
    REQUESTS,
    Payer,
    Quotas,
    Refusal,
    Spender,
)
from .usage import Usage

_ANY = (REQUESTS, CPU)
_APPENDS = (APPEND, GROUP_APPEND)
_APPEND = (*_ANY, APPEND_BYTES, APPEND_RECORDS)
_READ = (*_ANY, READ_BYTES, READ_RECORDS)
_READS = frozenset(READS)
_HELD_MAX_S = 1.0
"""How long one refusal holds a principal's requests back, at most."""

Body = dict[str, Any]


class _Answer:
    """Charges an answer; with a quota, part of the charge is taken before the answer is made."""

    __slots__ = ("_payer", "_reserved")

    def __init__(self, payer: Payer, reserved: int) -> None:
        self._payer = payer
        self._reserved = reserved
        payer.take(READ_BYTES, reserved)

    def sent(self, size: int, body: Body) -> None:
        """Charge a frame of the answer that was sent; `size` 0 means that no more will be sent."""
        if self._reserved:
            self._payer.take(READ_BYTES, -self._reserved)
            self._reserved = 0
        if size:
            count_answer(self._payer, size, body)


def count_answer(payer: Payer, size: int, body: Body) -> None:
    """Charge a frame of an answer that was sent."""
    payer.use(READ_BYTES, size)
    records = len(body.get("page", body).get("seqs") or ())
    records += sum(chunk.rows for chunk in body.get("chunks") or ())
    if records:
        payer.use(READ_RECORDS, records)


def pause_s(payer: Payer) -> float:
    """Return the seconds to wait before the next part of a long answer is made."""
    found = payer.refusal(_READ) if payer.is_limited else None
    return 0.0 if found is None else found.retry_after_s


class Gate:
    """Admits requests and charges them. `metadata` returns the newest metadata of the node, `clock`
    returns seconds; the node started at `started_ms` of the wall clock."""

    def __init__(
        self, metadata: Callable[[], Metadata], clock: Callable[[], float], started_ms: int
    ) -> None:
        self.quotas = Quotas(clock)
        self.handlers = {USAGE: Usage(self.quotas, started_ms).serve}
        self._metadata = metadata
        self._principals: dict[ServerConnection, Spender] = {}
        self._tenants: dict[int, Spender] = {}
        """Tenants by range, cached until the metadata changes."""

    def opened(self, connection: ServerConnection, principal: Principal) -> None:
        """Count a connection of a client."""
        spender = self.quotas.principal(principal.name, principal.quota_class)
        self.quotas.came(spender)
        self._principals[connection] = spender

    def check_room(self, principal: Principal) -> None:
        """Raise Overloaded if the principal may not open another connection."""
        spender = self.quotas.principal(principal.name, principal.quota_class)
        spender.check("connections", spender.connections + 1)

    def names_allowed(self, principal: Principal) -> int:
        """Return how many producer names the principal's quota allows; 0 for any number."""
        return self._metadata().quotas.get(principal.quota_class, {}).get("producers", 0)

    def closed(self, connection: ServerConnection) -> None:
        """Count the end of a connection."""
        spender = self._principals.pop(connection, None)
        if spender is not None:
            self.quotas.left(spender)

    def image_changed(self) -> None:
        """Take the metadata, which may have changed."""
        metadata = self._metadata()
        self._tenants.clear()
        self.quotas.learn(metadata.quotas)
        if self.quotas.has_many_tenants:
            self.quotas.keep_tenants({tenant_of(log.name) for log in metadata.logs.values()})

    def applied(self, range_id: int, records: int, size: int) -> None:
        """Count an applied entry of `records` new records that this node proposed."""
        tenant = self._tenant(range_id)
        if tenant is not None:
            tenant.applied(records, size)

    def admit(self, request: Request) -> Payer | None:
        """Return who pays for the request, or None for a node's request, which is free.

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
                payer.refused()
                raise _refused(refusal, share)
        payer.use(REQUESTS, 1)
        if operation in _APPENDS:
            if tenant is not None and tenant.is_full:
                payer.refused()
                tenant.check_full()
            batches = body["batches"] if operation is APPEND else (body["batch"],)
            payer.use(APPEND_BYTES, sum(map(len, batches)))
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
    """Return the kinds of use that an operation is charged for."""
    if operation in _APPENDS:
        return _APPEND
    return _READ if operation in _READS else _ANY


def _refused(refusal: Refusal, share: Share) -> Overloaded:
    """Return the error, and hold back the principal until it may retry."""
    spender, wait_s = refusal.spender, refusal.retry_after_s
    share.hold_back(min(wait_s, _HELD_MAX_S))
    return Overloaded(
        f"{spender.label} {spender.name} has used its quota: {refusal.limit:,} {refusal.quota} a "
        f"second are allowed on each node. Send the request again in {wait_s:.3f} s.",
        retry_after=round(wait_s, 4), quota=refusal.quota,
    )  # fmt: skip
