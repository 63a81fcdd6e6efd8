"""Leases: which consumer has a key, until when, and by which token.

A token has the fence of the leader that made it. So a leader knows the tokens of the leader before
it, with the fence below its own, and lets their holders claim the keys. The token stays, so a
holder also says by which leader it was last let keep the key: otherwise two changes of leader in
one lease would end the lease. A reset raises the fence once more, so that no lease outlives a reset
(x30).
"""

from collections import OrderedDict
from typing import Final

from ...client.protocol import limits
from .settling import Settling

_COUNTER_BITS: Final = 40
_FENCE_MASK: Final = (1 << 22) - 1
_SETTLED_MAX: Final = limits.group_rows_max
GIVEN_BACK: Final = 0
_BUSY_MS: Final = 50
"""How long a lease that ended lasts at least while a command about the key is under way."""


class Lease:
    """The right of a consumer to settle the next entries of a key."""

    __slots__ = (
        "busy", "claimed", "consumer", "deadline_ms", "first", "key", "through", "token", "waiting",
        "wanted",
    )  # fmt: skip

    def __init__(
        self, key: bytes, token: int, consumer: int, first: int, through: int, deadline_ms: int,
        *, claimed: bool = False,
    ) -> None:  # fmt: skip
        self.key = key
        self.token = token
        self.consumer = consumer
        self.first = first
        """The first entry that is not acknowledged."""
        self.through = through
        """The position behind the last entry that the consumer has."""
        self.deadline_ms = deadline_ms
        self.claimed = claimed
        """Whether another leader made the lease: which entries the consumer has is not known."""
        self.busy = False
        """Whether a command about the key is proposed and not applied. The lease stays till then.
        """
        self.wanted = 0
        """The position that the consumer has asked for; 0: none."""
        self.waiting: list[tuple[int, Settling]] = []
        """The requests that wait for acknowledgements of the key, each with its position."""

    def wants(self, through: int, settling: Settling | None = None) -> None:
        """Note an acknowledgement that is not applied yet, and the request that waits for it."""
        if through > self.wanted:
            self.wanted = through
        if settling is not None:
            self.waiting.append((through, settling))

    def answered(self, through: int) -> list[Settling]:
        """Return the requests that waited for a position up to `through`. They wait no longer."""
        waiting, self.waiting = self.waiting, []
        if len(waiting) == 1 and waiting[0][0] <= through:
            return [waiting[0][1]]
        self.waiting = [each for each in waiting if each[0] > through]
        return [settling for wanted, settling in waiting if wanted <= through]

    def acked(self, through: int) -> None:
        """Note an applied acknowledgement."""
        if through > self.first:
            self.first = through
        self.busy = False

    def begins_command(self) -> None:
        """Note that a command about the key is proposed."""
        self.busy = True

    def rests(self) -> None:
        """Note that no command is under way, and that the consumer has not settled all."""
        self.busy, self.wanted = False, 0


class Leases:
    """All leases of a group in a range."""

    def __init__(self, fence: int) -> None:
        self.fence = fence
        self._fence = fence & _FENCE_MASK
        self._counter = 0
        self.of: dict[bytes, Lease] = {}
        """By key, the one that ends first before the others: all leases last equally long from
        their begin or extension on, and time never goes back."""
        self._of_consumer: dict[int, dict[bytes, None]] = {}
        """The keys of each consumer, in the order in which it got them."""
        self._again_ms = 0
        """When to look again at leases that have ended while a command is under way."""
        self._settled: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        """The last settled token of keys, and the position that it reached."""

    def begin(self, key: bytes, consumer: int, first: int, through: int, deadline_ms: int) -> Lease:
        """Lease a key, which nobody has, by a new token."""
        self._counter += 1
        token = self._fence << _COUNTER_BITS | self._counter
        lease = self.of[key] = Lease(key, token, consumer, first, through, deadline_ms)
        own = self._of_consumer.get(consumer)
        if own is None:
            own = self._of_consumer[consumer] = {}
        own[key] = None
        return lease

    def is_of_the_leader_before(self, token: int, fence: int | None) -> bool:
        """Whether the holder of a token had the key from the leader just before this one: with the
        fence by which the holder last was let keep the key, if not with the token."""
        last = token >> _COUNTER_BITS if fence is None else fence
        return last & _FENCE_MASK == (self._fence - 1) & _FENCE_MASK

    def claim(
        self, key: bytes, token: int, consumer: int, first: int, through: int, deadline_ms: int
    ) -> Lease:
        """Continue a lease of the leader before."""
        lease = self.of[key] = Lease(
            key, token, consumer, first, through, deadline_ms, claimed=True
        )
        self._of_consumer.setdefault(consumer, {})[key] = None
        return lease

    def held(self, key: bytes, token: int, consumer: int) -> Lease | None:
        """Return the lease of a key if it has this token and consumer."""
        lease = self.of.get(key)
        if lease is None or lease.token != token or lease.consumer != consumer:
            return None
        return lease

    def extend(self, lease: Lease, deadline_ms: int) -> None:
        """Let a lease begin again."""
        lease.deadline_ms = deadline_ms
        self.of[lease.key] = self.of.pop(lease.key)

    def keys_of(self, consumer: int) -> list[bytes]:
        """Return the keys that a consumer has."""
        return list(self._of_consumer.get(consumer, ()))

    def end(self, lease: Lease, through: int) -> None:
        """End a lease that was settled up to `through`, or GIVEN_BACK."""
        self.drop(lease)
        self._settled[lease.key] = lease.token, through
        self._settled.move_to_end(lease.key)
        if len(self._settled) > _SETTLED_MAX:
            self._settled.popitem(last=False)

    def drop(self, lease: Lease) -> None:
        """End a lease whose consumer shall be told so."""
        del self.of[lease.key]
        own = self._of_consumer[lease.consumer]
        own.pop(lease.key, None)
        if not own:
            del self._of_consumer[lease.consumer]

    def was_settled(self, key: bytes, token: int, through: int) -> bool:
        """Whether this very token has reached the position: the request is a repetition."""
        settled = self._settled.get(key)
        return settled is not None and settled[0] == token and through <= settled[1]

    def was_given_back(self, key: bytes, token: int) -> bool:
        """Whether this very token has given the key back: the request is a repetition."""
        return self._settled.get(key) == (token, GIVEN_BACK)

    def due(self, now_ms: int) -> list[Lease]:
        """Return the leases that have ended, except those whose command is under way."""
        found = []
        for lease in self.of.values():
            if lease.deadline_ms > now_ms:
                break
            if lease.busy or lease.wanted:
                self._again_ms = now_ms + _BUSY_MS
            else:
                found.append(lease)
        return found

    def next_deadline_ms(self) -> int | None:
        """Return when to look for ended leases next."""
        for lease in self.of.values():
            return max(lease.deadline_ms, self._again_ms)
        return None
