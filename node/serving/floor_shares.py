"""Bound the floors of a range that one principal may keep by its trims and deletes.

A range keeps a floor in memory for each key that was trimmed or deleted, until retention passes the
floor, and refuses further keys at `floors_max`. Without a bound, a principal that appends and
deletes 100,000 keys would keep everybody else from deleting in the range; in a log without
retention, for ever.

So a principal may keep at most as many floors as are left for all others. The log does not record
which principal keeps which floor: a new leader bounds only the floors that it sees added. Each
leader leaves as many floors as a principal may take, so that no principal fills the range, however
often the leader changes.
"""

from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

from ...client.protocol.errors import Overloaded
from ..replicas.range_replica import RangeReplica

_RETRY_S: Final = 60.0
_PASSED_MAX: Final = 10_000
"""The most keys without a floor that a range remembers here, beyond as many as have a floor."""


class FloorShares:
    """The shares of all ranges that a node leads. Every call is on the loop's thread."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[RangeReplica, dict[str, set[bytes]]] = WeakKeyDictionary()
        """By range and principal, the keys whose floors the principal keeps, and some keys whose
        floors are gone."""

    def take(self, replica: RangeReplica, owner: str, keys: Iterable[bytes]) -> None:
        """Count the keys that the principal is about to trim. Raise Overloaded if it would keep
        more floors than are left for others.

        `owner` is the name of the principal; "" stands for no principal, which has no bound.
        """
        removal = replica.state.removal
        fresh = [key for key in keys if key not in removal.floors]
        if not owner or not fresh:
            return
        shares = self._kept.setdefault(replica, {})
        kept = shares.setdefault(owner, set())
        left = removal.rules.floors_max - removal.rows
        if kept.issuperset(fresh):
            return  # a repetition: these floors are already being added
        if len(kept) + len(fresh) > left:
            kept.intersection_update(removal.floors)
        if len(kept) + len(fresh) > left:
            raise Overloaded(
                f"{owner!r} has trimmed or deleted {len(kept):,} keys of range "
                f"{replica.gid.range_id}, and the range can remember {left:,} more for all "
                "principals. Try again when retention has removed the entries of these keys",
                retry_after=_RETRY_S,
            )
        kept.update(fresh)
        if sum(map(len, shares.values())) > 2 * removal.rows + _PASSED_MAX:
            self._forget_passed(replica)

    def _forget_passed(self, replica: RangeReplica) -> None:
        """Drop the keys whose floors retention has passed."""
        floors, shares = replica.state.removal.floors, self._kept[replica]
        for owner in list(shares):
            shares[owner].intersection_update(floors)
            if not shares[owner]:
                del shares[owner]
