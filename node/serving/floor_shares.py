"""Whose trims and deletes keep the floors of a range: what one principal keeps of them is bounded.

A range keeps a floor in memory for each key that was trimmed or deleted, until retention passes the
floor, and refuses further keys at `floors_max`. A principal that appends and deletes 100,000 keys
of its own would keep everybody else from deleting in the range, for ever where the log has no
retention.

So a principal may keep no more floors than are left for all others. Who keeps which floor is not in
the log: a new leader knows nobody's floors, and bounds those that come from then on. Each leader
leaves as many as it lets a principal take, so that no principal fills the range, however often the
leader changes.
"""

from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

from ...client.protocol import limits
from ...client.protocol.errors import Overloaded
from ..replicas.range_replica import RangeReplica

_RETRY_S: Final = 60.0
_PASSED_MAX: Final = 10_000
"""Keys of a range that are remembered here without a floor, besides as many as have one."""


class FloorShares:
    """Of all ranges that a node leads. All calls on the loop's thread."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[RangeReplica, dict[str, set[bytes]]] = WeakKeyDictionary()
        """Per range, the keys whose floors a principal keeps, and some that have none any more."""

    def take(self, replica: RangeReplica, owner: str, keys: Iterable[bytes]) -> None:
        """The principal is about to trim the keys. Raise Overloaded where it would keep more floors
        than are left for others.

        `owner` is the name of the principal, "" for nobody, who has no bound.
        """
        removal = replica.state.removal
        fresh = [key for key in keys if key not in removal.floors]
        if not owner or not fresh:
            return
        shares = self._kept.setdefault(replica, {})
        kept = shares.setdefault(owner, set())
        left = limits.floors_max - removal.rows
        if kept.issuperset(fresh):
            return  # a repetition: they are on their way
        if len(kept) + len(fresh) > left:
            kept.intersection_update(removal.floors)
        if len(kept) + len(fresh) > left:
            raise Overloaded(
                f"{owner!r} keeps the floors of {len(kept):,} trimmed or deleted keys in range "
                f"{replica.gid.range_id}, and {left:,} floors are left for everybody; retention "
                "frees them",
                retry_after=_RETRY_S,
            )
        kept.update(fresh)
        if sum(map(len, shares.values())) > 2 * removal.rows + _PASSED_MAX:
            self._forget_passed(replica)

    def _forget_passed(self, replica: RangeReplica) -> None:
        """Retention has passed many floors."""
        floors, shares = replica.state.removal.floors, self._kept[replica]
        for owner in list(shares):
            shares[owner].intersection_update(floors)
            if not shares[owner]:
                del shares[owner]
