"""Count what principals and tenants use, and what their quotas leave them. No I/O, no clock.

A `Bucket` is a token bucket: it fills at its quota's limit per second, and holds the limit of one
second. A request may begin while the bucket is not empty, and takes its cost even if that exceeds
the level. The bucket is then in debt, and must fill up before the next request may begin. So a
request of any size passes, and the use over time stays within the quota, although the cost of a
request may be known only afterwards.

`Quotas` remembers a bounded number of principals. It forgets the least recently used principals
without connections first. A forgotten principal begins again with full buckets. There are as many
tenants as the logs allow; the use of a tenant without logs stays counted when it is forgotten.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from ...client.protocol import limits
from ...client.protocol.errors import Overloaded
from ...client.protocol.quotas import COUNTERS, COUNTS, RATES, STORED

APPEND_BYTES, APPEND_RECORDS, READ_BYTES, READ_RECORDS, REQUESTS, CPU = range(len(RATES))
REFUSED: Final = len(RATES)
"""Requests that were refused because of a quota; `requests` counts them too."""
APPLIED: Final = (APPEND_BYTES, APPEND_RECORDS)
MS_PER_S: Final = 1_000.0
_RETRY_S: Final = 1.0
_STORED_RETRY_S: Final = 5.0
_PEAK_S: Final = 10.0
_COUNTERS: Final = len(COUNTERS)

Limits = Mapping[str, int]


class Bucket:
    """A token bucket, see the module. Times are seconds of one clock."""

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self._level = float(rate)
        self._at = now

    def take(self, amount: float, now: float) -> None:
        """Take an amount; a negative amount is given back."""
        level = min(self._level + (now - self._at) * self.rate, self.rate)
        self._level, self._at = min(level - amount, self.rate), now

    def wait_s(self, now: float) -> float:
        """Return the seconds until a request may begin, 0 for now."""
        level = self._level + (now - self._at) * self.rate
        return 0.0 if level > 0 else (1e-3 * self.rate - level) / self.rate


class Refusal(NamedTuple):
    """Why a request may not begin, and when it may."""

    spender: "Spender"
    quota: str
    limit: int
    retry_after_s: float


class Spender:
    """A principal or a tenant. `used` has the counts by `COUNTERS`, without those that its payers
    still hold."""

    __slots__ = (
        "allowed", "buckets", "connections", "follows", "held", "held_in_all", "is_full",
        "is_limited", "label", "name", "payers", "quota", "used",
    )  # fmt: skip

    def __init__(self, label: str, name: str, quota: str) -> None:
        self.label = label
        """The word for messages: principal or tenant."""
        self.name = name
        self.quota = quota
        """The name of its quota."""
        self.connections = 0
        """The number of open connections."""
        self.follows = 0
        """The number of follows under way."""
        self.allowed: Limits = {}
        """The limits of its quota that are not rates."""
        self.payers: dict[Spender | None, Payer] = {}
        """The payers of a principal, by tenant."""
        self.used = [0.0] * _COUNTERS
        self.buckets: list[Bucket | None] = [None] * len(RATES)
        self.is_limited = False
        self.held = 0
        """Stored bytes of a tenant in ranges that this node leads."""
        self.held_in_all = 0
        """Stored bytes of a tenant in the cluster, if its quota limits them."""
        self.is_full = False
        """Whether these bytes reach the quota."""

    def limit(self, found: Limits, now: float) -> None:
        """Set the limits. A bucket whose limit stays keeps its level."""
        for at, kind in enumerate(RATES):
            bucket, rate = self.buckets[at], found.get(kind)
            if rate is None:
                self.buckets[at] = None
            elif bucket is None or bucket.rate != rate:
                self.buckets[at] = Bucket(rate, now)
        self.is_limited = any(self.buckets)
        self.allowed = {kind: found[kind] for kind in COUNTS if kind in found}
        self.hold(self.held_in_all)

    def hold(self, size: int) -> None:
        """Set the stored bytes in the cluster."""
        self.held_in_all = size
        self.is_full = size >= self.allowed.get(STORED, size + 1)

    def check_full(self) -> None:
        """Raise Overloaded if the tenant stores as much as its quota allows."""
        if self.is_full:
            raise Overloaded(
                f"tenant {self.name} stores {self.held_in_all:,} bytes, and its quota "
                f"allows {self.allowed[STORED]:,}: trim or delete keys, lower the retention "
                "of its logs, or ask for a higher quota (`lognode quota set`)",
                retry_after=_STORED_RETRY_S, quota=STORED,
            )  # fmt: skip

    def check(self, kind: str, count: int) -> None:
        """Raise Overloaded if the quota allows fewer than `count` of that kind at a time."""
        allowed = self.allowed.get(kind)
        if allowed is not None and count > allowed:
            raise Overloaded(
                f"{self.label} {self.name} would have {count} {kind} on this node, and its "
                f"quota allows {allowed}; end some, or ask for a higher quota (`lognode "
                "quota set`)",
                retry_after=_RETRY_S, quota=kind,
            )  # fmt: skip

    def refusal(self, kinds: Iterable[int], now: float) -> Refusal | None:
        """Return the refusal of the bucket that takes longest to fill, or None if all are free."""
        found = None
        for kind in kinds:
            bucket = self.buckets[kind]
            if bucket is not None:
                wait_s = bucket.wait_s(now)
                if wait_s > 0 and (found is None or wait_s > found.retry_after_s):
                    found = Refusal(self, RATES[kind], bucket.rate, wait_s)
        return found

    def take(self, kind: int, amount: float, now: float) -> None:
        """Take an amount from the bucket of a kind; a negative amount is given back."""
        bucket = self.buckets[kind]
        if bucket is not None:
            bucket.take(amount, now)

    def applied(self, records: int, size: int) -> None:
        """Count an entry of this tenant that was applied: its new records, its bytes."""
        self.used[APPEND_RECORDS] += records
        self.used[APPEND_BYTES] += size

    def total(self) -> list[float]:
        """Return what a principal has used, by `COUNTERS`."""
        used = (payer.used for payer in self.payers.values())
        return [sum(column) for column in zip(self.used, *used, strict=True)]


class Payer:
    """Pays for a request: a principal, and the tenant of the log that the request is about.

    Counting costs the same without quotas as with many.
    """

    __slots__ = ("_clock", "is_limited", "principal", "tenant", "used")

    def __init__(
        self, principal: Spender, tenant: Spender | None, clock: Callable[[], float]
    ) -> None:
        self.principal = principal
        self.tenant = tenant
        self.used = [0.0] * _COUNTERS
        """Use that the principal and the tenant have not counted themselves yet."""
        self._clock = clock
        self.is_limited = False
        """Whether the principal or the tenant has a quota."""
        self.look()

    def look(self) -> None:
        """Take the quotas, which may have changed."""
        tenant = self.tenant
        self.is_limited = self.principal.is_limited or (tenant is not None and tenant.is_limited)

    def use(self, kind: int, amount: float) -> None:
        """Count an amount that was used, and take it from the buckets."""
        self.used[kind] += amount
        if self.is_limited:
            self.take(kind, amount)

    def refused(self) -> None:
        """Count a request that was refused."""
        self.used[REFUSED] += 1

    @contextmanager
    def follows(self) -> Iterator[None]:
        """Count a follow for as long as the block lasts. Raises Overloaded."""
        spenders = [self.principal] if self.tenant is None else [self.principal, self.tenant]
        for spender in spenders:
            spender.check("follows", spender.follows + 1)
        for spender in spenders:
            spender.follows += 1
        try:
            yield
        finally:
            for spender in spenders:
                spender.follows -= 1

    def ran(self, seconds: float) -> None:
        """Charge a turn of the loop."""
        self.used[CPU] += seconds * MS_PER_S
        if self.is_limited:
            self.take(CPU, seconds * MS_PER_S)

    def take(self, kind: int, amount: float) -> None:
        """Take an amount from the buckets before it is used; a negative amount is given back."""
        now = self._clock()
        self.principal.take(kind, amount, now)
        if self.tenant is not None:
            self.tenant.take(kind, amount, now)

    def refusal(self, kinds: Iterable[int]) -> Refusal | None:
        """Return why nothing of these kinds may begin now, or None if it may."""
        now = self._clock()
        found = self.principal.refusal(kinds, now)
        if found is None and self.tenant is not None:
            found = self.tenant.refusal(kinds, now)
        return found

    def fold(self) -> None:
        """Add the counts to those of the principal and the tenant. A tenant's appends count only
        when they are applied: once, however often they were sent."""
        used, self.used = self.used, [0.0] * _COUNTERS
        for kind, amount in enumerate(used):
            self.principal.used[kind] += amount
            if self.tenant is not None and kind not in APPLIED:
                self.tenant.used[kind] += amount


class Quotas:
    """The spenders of a node, and the quotas of the cluster. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float], spenders_max: int = limits.spenders_max) -> None:
        self.clock = clock
        self.principals: OrderedDict[str, Spender] = OrderedDict()
        self.tenants: dict[str, Spender] = {}
        self.others = [0.0] * _COUNTERS
        """The use of forgotten tenants."""
        self._forgotten = [0.0] * _COUNTERS
        """The use of forgotten principals."""
        self._max = spenders_max
        self._peaks: list[dict[str, int]] = [{}, {}]
        """The largest stored bytes in the cluster, by tenant with such a quota: in the current
        period of `_PEAK_S` and in the period before."""
        self._peaks_since = clock()
        self._known: Mapping[str, Limits] = {}

    def learn(self, known: Mapping[str, Limits]) -> None:
        """Set the quotas, by name."""
        if known == self._known:
            return
        self._known, now = dict(known), self.clock()
        for spender in (*self.principals.values(), *self.tenants.values()):
            spender.limit(self._known.get(spender.quota, {}), now)
        for spender in self.principals.values():
            for payer in spender.payers.values():
                payer.look()

    def principal(self, name: str, quota: str) -> Spender:
        """Return the principal, whose quota class is `quota`."""
        found = self.principals.get(name)
        if found is not None:
            self.principals.move_to_end(name)
        else:
            found = self.principals[name] = Spender("principal", name, "")
            self._forget_one()
        if found.quota != quota:
            found.quota = quota
            found.limit(self._known.get(quota, {}), self.clock())
            for payer in found.payers.values():
                payer.look()
        return found

    def payer(self, principal: Spender, tenant: Spender | None) -> Payer:
        """Return the payer for the principal's requests on logs of the tenant."""
        found = principal.payers.get(tenant)
        if found is None:
            found = principal.payers[tenant] = Payer(principal, tenant, self.clock)
        return found

    def came(self, principal: Spender) -> None:
        """Count a connection of the principal."""
        principal.connections += 1

    def left(self, principal: Spender) -> None:
        """Count the end of a connection. For a principal without connections few counts stay."""
        principal.connections -= 1
        if not principal.connections:
            for payer in list(principal.payers.values()):
                payer.fold()
                if payer.tenant is not None:
                    del principal.payers[payer.tenant]

    def fold(self) -> None:
        """Bring the counters of all tenants up to date."""
        for principal in self.principals.values():
            for payer in principal.payers.values():
                payer.fold()

    def sum_of(self, kind: int) -> float:
        """Return the use of all principals together, forgotten ones included."""
        return self._forgotten[kind] + sum(
            spender.used[kind] + sum(payer.used[kind] for payer in spender.payers.values())
            for spender in self.principals.values()
        )

    def largest(self, count: int) -> list[Spender]:
        """Return the principals that have used the most time of the loop."""
        principals = self.principals.values()
        return heapq.nlargest(count, principals, key=lambda each: each.total()[CPU])

    def tenant(self, name: str) -> Spender:
        """Return the tenant; "" stands for the logs of no tenant, which have no quota."""
        found = self.tenants.get(name)
        if found is None:
            found = self.tenants[name] = Spender("tenant", name, name)
            found.held_in_all = self._peak(name)
            found.limit(self._known.get(name, {}), self.clock())
        return found

    def hold(self, sizes: Mapping[str, int]) -> None:
        """Set the stored bytes of each tenant in ranges that this node leads."""
        for name in sizes.keys() - self.tenants.keys():
            self.tenant(name)
        for name, tenant in self.tenants.items():
            tenant.held = sizes.get(name, 0)

    @property
    def limit_stored(self) -> bool:
        """Whether any quota limits stored bytes."""
        return any(STORED in found for found in self._known.values())

    def held_of_limited(self) -> dict[str, int]:
        """Return these bytes for the tenants that have any, and whose quota limits them."""
        named = (self.tenants.get(name) for name, found in self._known.items() if STORED in found)
        return {each.name: each.held for each in named if each is not None and each.held}

    def learn_held(self, totals: Mapping[str, int]) -> None:
        """Set the cluster's stored bytes of the tenants whose quota limits them.

        While ranges or the controller change their leaders the sums are too small. So the largest
        sum of the last seconds counts.
        """
        if self.clock() - self._peaks_since > _PEAK_S:
            self._peaks, self._peaks_since = [{}, self._peaks[0]], self.clock()
        for name, total in totals.items():
            self._peaks[0][name] = max(total, self._peaks[0].get(name, 0))
        for name, tenant in self.tenants.items():
            if STORED in tenant.allowed:
                tenant.hold(self._peak(name))

    def _peak(self, name: str) -> int:
        return max(peaks.get(name, 0) for peaks in self._peaks)

    @property
    def has_many_tenants(self) -> bool:
        """Whether tenants without logs are to be forgotten."""
        return len(self.tenants) > self._max

    def keep_tenants(self, names: Collection[str]) -> None:
        """Forget the tenants that are not in `names`, but keep the sum of their use."""
        self.fold()
        for name in self.tenants.keys() - set(names):
            gone = self.tenants.pop(name)
            self.others = [a + b for a, b in zip(self.others, gone.used, strict=True)]

    def _forget_one(self) -> None:
        """Forget a principal without connections if there are too many."""
        for _ in range(len(self.principals) - self._max):
            for name, spender in self.principals.items():
                if not spender.connections:
                    for kind, amount in enumerate(spender.total()):
                        self._forgotten[kind] += amount
                    del self.principals[name]
                    break
