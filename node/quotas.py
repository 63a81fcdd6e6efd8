"""How much principals and tenants use, and what their quotas leave them. No I/O, no clock.

A `Bucket` is a token bucket: it fills with the limit of its quota per second, and holds a second's
worth. A request may begin while the bucket is not empty, and takes what it costs, be it more than
is there: the bucket is in debt then, and fills up before the next request may begin. So a request
of any size goes through, and what is used over time is within the quota, although the cost of a
request may be known only after it.

`Quotas` remembers a bounded number of principals: those of whom it has not heard longest, and that
have no connection, are forgotten first. A forgotten principal begins with full buckets. Tenants are
as many as the logs allow; what a tenant without logs has used stays counted when it is forgotten.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from ..client import limits
from ..client.protocol.quotas import RATES

APPEND_BYTES, APPEND_RECORDS, READ_BYTES, READ_RECORDS, REQUESTS, CPU = range(len(RATES))
REFUSED: Final = len(RATES)
"""Requests that were refused for a quota; `requests` counts them too."""
COUNTERS: Final = (*RATES, "refused")
_COUNTERS: Final = len(COUNTERS)

Limits = Mapping[str, int]


class Bucket:
    """See the module. Times are seconds of one clock."""

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self._level = float(rate)
        self._at = now

    def take(self, amount: float, now: float) -> None:
        """Take so much, or give it back if it is below 0."""
        level = min(self._level + (now - self._at) * self.rate, self.rate)
        self._level, self._at = min(level - amount, self.rate), now

    def wait_s(self, now: float) -> float:
        """Seconds until something may begin; 0 now."""
        level = self._level + (now - self._at) * self.rate
        return 0.0 if level > 0 else (1e-3 * self.rate - level) / self.rate


class Refusal(NamedTuple):
    """Why a request may not begin, and when it may."""

    spender: "Spender"
    quota: str
    limit: int
    retry_after_s: float


class Spender:
    """A principal or a tenant. `used` counts by `COUNTERS`, and is exact."""

    __slots__ = ("buckets", "connections", "is_limited", "label", "name", "quota", "used")

    def __init__(self, label: str, name: str, quota: str) -> None:
        self.label = label
        """What it is, for messages."""
        self.name = name
        self.quota = quota
        """The name of its quota."""
        self.connections = 0
        """Those that are open."""
        self.used = [0.0] * _COUNTERS
        self.buckets: list[Bucket | None] = [None] * len(RATES)
        self.is_limited = False

    def limit(self, found: Limits, now: float) -> None:
        """The limits from now on. A limit that stays keeps the level of its bucket."""
        for at, kind in enumerate(RATES):
            bucket, rate = self.buckets[at], found.get(kind)
            if rate is None:
                self.buckets[at] = None
            elif bucket is None or bucket.rate != rate:
                self.buckets[at] = Bucket(rate, now)
        self.is_limited = any(self.buckets)

    def refusal(self, kinds: Iterable[int], now: float) -> Refusal | None:
        """Why nothing of these kinds may begin now: the bucket that takes longest to fill."""
        found = None
        for kind in kinds:
            bucket = self.buckets[kind]
            if bucket is not None:
                wait_s = bucket.wait_s(now)
                if wait_s > 0 and (found is None or wait_s > found.retry_after_s):
                    found = Refusal(self, RATES[kind], bucket.rate, wait_s)
        return found

    def use(self, kind: int, amount: float, now: float) -> None:
        """It has used so much: count that, and take it from the bucket."""
        self.used[kind] += amount
        bucket = self.buckets[kind]
        if bucket is not None:
            bucket.take(amount, now)

    def reserve(self, kind: int, amount: float, now: float) -> None:
        """Take so much from the bucket for what will be used; below 0: give it back."""
        bucket = self.buckets[kind]
        if bucket is not None:
            bucket.take(amount, now)


class Quotas:
    """The spenders of a node, and the quotas of the cluster. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float], spenders_max: int = limits.spenders_max) -> None:
        self.clock = clock
        self.principals: OrderedDict[str, Spender] = OrderedDict()
        self.tenants: dict[str, Spender] = {}
        self.others = [0.0] * _COUNTERS
        """What the tenants have used that were forgotten."""
        self._max = spenders_max
        self._known: Mapping[str, Limits] = {}

    def learn(self, known: Mapping[str, Limits]) -> None:
        """These are the quotas from now on, by name."""
        if known == self._known:
            return
        self._known, now = dict(known), self.clock()
        for spender in (*self.principals.values(), *self.tenants.values()):
            spender.limit(self._known.get(spender.quota, {}), now)

    def principal(self, name: str, quota: str) -> Spender:
        """The principal, whose class is `quota`."""
        found = self.principals.get(name)
        if found is not None:
            self.principals.move_to_end(name)
        else:
            found = self.principals[name] = Spender("principal", name, "")
            self._forget_one()
        if found.quota != quota:
            found.quota = quota
            found.limit(self._known.get(quota, {}), self.clock())
        return found

    def tenant(self, name: str) -> Spender:
        """The tenant; the empty name stands for the logs of no tenant, which have no quota."""
        found = self.tenants.get(name)
        if found is None:
            found = self.tenants[name] = Spender("tenant", name, name)
            found.limit(self._known.get(name, {}), self.clock())
        return found

    @property
    def has_many_tenants(self) -> bool:
        """Whether those without logs are to be forgotten."""
        return len(self.tenants) > self._max

    def keep_tenants(self, names: Collection[str]) -> None:
        """Forget the other tenants, but not what they have used."""
        for name in self.tenants.keys() - set(names):
            gone = self.tenants.pop(name)
            self.others = [a + b for a, b in zip(self.others, gone.used, strict=True)]

    def _forget_one(self) -> None:
        """Forget a principal without connections if there are too many."""
        for _ in range(len(self.principals) - self._max):
            for name, spender in self.principals.items():
                if not spender.connections:
                    del self.principals[name]
                    break
