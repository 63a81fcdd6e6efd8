"""Leases of a group without an order: a consumer names an entry by its key and its token alone."""

from .leases import Lease, Leases


class EntryLeases(Leases):
    """Leases that also know the unit of each token which a consumer may still settle or repeat."""

    def __init__(self, fence: int) -> None:
        super().__init__(fence)
        self._by_token: dict[int, bytes] = {}

    def unit(self, token: int) -> bytes | None:
        """Return the unit of a token, unless it was settled long ago, or another consumer has had
        the unit since."""
        return self._by_token.get(token)

    def begin(self, key: bytes, consumer: int, first: int, through: int, deadline_ms: int) -> Lease:
        """Lease a unit, which nobody has, by a new token."""
        lease = super().begin(key, consumer, first, through, deadline_ms)
        self._by_token[lease.token] = key
        return lease

    def claim(
        self, key: bytes, token: int, consumer: int, first: int, through: int, deadline_ms: int
    ) -> Lease:
        """Continue a lease of the leader before."""
        self._by_token[token] = key
        return super().claim(key, token, consumer, first, through, deadline_ms)

    def end(self, lease: Lease, through: int) -> None:
        """End a lease that was settled up to `through`, or GIVEN_BACK."""
        before = self._settled.get(lease.key)
        oldest = next(iter(self._settled), None)
        oldest_token = self._settled[oldest][0] if oldest is not None else 0
        super().end(lease, through)
        if before is not None:
            self._by_token.pop(before[0], None)
        if oldest is not None and oldest not in self._settled:
            self._by_token.pop(oldest_token, None)
        self._by_token[lease.token] = lease.key

    def drop(self, lease: Lease) -> None:
        """End a lease whose consumer shall be told so."""
        self._by_token.pop(lease.token, None)
        super().drop(lease)
