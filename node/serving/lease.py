"""Take, renew and release leases on a range, for readers of a snapshot. The leader does it.

`statemachine/leases.py` says what a lease holds. A lease is a command like any other removal, so
that every member holds the same entries from the same entry of the Raft log on (x14).
"""

from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

from ...client.protocol import limits
from ...client.protocol.errors import GenerationMismatch, LimitExceeded, from_wire
from ...statemachine import commands
from ...statemachine.spans import common
from ..replicas.range_replica import RangeReplica

Body = dict[str, Any]


class Leases:
    """Takes leases and remembers the principal of each. The leases that one principal holds of a
    range are bounded, so that others can read snapshots too.

    The log does not record who has taken a lease: a new leader bounds only the leases that are
    taken after it became leader.
    """

    def __init__(self) -> None:
        self._owners: WeakKeyDictionary[RangeReplica, dict[str, str]] = WeakKeyDictionary()
        """The owners of a range's leases, by range and lease id."""
        self._under_way: Counter[tuple[RangeReplica, str]] = Counter()

    async def take(self, replica: RangeReplica, body: Body) -> Body:
        """Take or renew a lease for the owner in the body ("" for no owner); see `take`.

        Raises the errors of `take`, and LimitExceeded when the owner holds too many of the range.
        """
        owner, lease_id = body["owner"], body["lease"]
        if not owner or body["renew"]:
            return await take(replica, body)
        self._check(replica, owner, lease_id)
        self._under_way[replica, owner] += 1
        try:
            answer = await take(replica, body)
        finally:
            self._under_way[replica, owner] -= 1
            self._under_way += Counter()  # drops the zero counts
        self._owners.setdefault(replica, {})[lease_id] = owner
        return answer

    def _check(self, replica: RangeReplica, owner: str, lease_id: str) -> None:
        live = {name for name, _ in replica.state.removal.leases}
        known = self._owners.get(replica, {})
        for ended in known.keys() - live:
            del known[ended]
        held = sum(who == owner for who in known.values()) + self._under_way[replica, owner]
        if lease_id not in known and held >= limits.leases_per_principal_max:
            raise LimitExceeded(
                f"{owner!r} would have {held + 1} leases of range {replica.gid.range_id}; "
                f"at most {limits.leases_per_principal_max} are allowed. Close snapshots "
                "that are not in use",
                limit="leases_per_principal_max", value=held + 1,
                allowed=limits.leases_per_principal_max,
            )  # fmt: skip


async def take(replica: RangeReplica, body: Body) -> Body:
    """Hold the visible entries up to `through` of the range's part of the span.

    The span begins at `start_key`; `end_key` in the answer is where the held part ends. The same
    request again renews the lease; with `renew`, a lease is only renewed.

    Raises InvalidArgument; LimitExceeded when the range has too many leases; GenerationMismatch
    when the first key is outside the range; Conflict when the lease holds other entries; NotFound
    when the lease to renew has ended.
    """
    asked = body["start_key"], body["end_key"]
    own = replica.descriptor.span
    span = common(asked, (own.start, own.end))
    if span is None or span[0] != asked[0]:
        raise GenerationMismatch(
            f"the span is outside of range {replica.gid.range_id}",
            ranges=[replica.descriptor.to_wire()],
        )
    if not body["renew"]:
        _check_room(replica, body["lease"])
    expires_ms = replica.services.stamp_ms() + body["lease_ms"]
    payload = [body["lease"], *span, body["through"], expires_ms]
    kind = commands.RENEW_LEASE if body["renew"] else commands.TAKE_LEASE
    await _propose(replica, kind, payload)
    return {"end_key": span[1], "expires_ms": expires_ms, "applied": replica.applied_index}


def _check_room(replica: RangeReplica, lease_id: str) -> None:
    """Refuse at once a lease beyond the limit, which every member would refuse. That refusal
    asks the client to wait, but leases may last for days."""
    removal, now_ms = replica.state.removal, replica.services.stamp_ms()
    live = {held.lease_id for held in removal.leases.values() if held.lives(now_ms)}
    allowed = removal.rules.leases_max
    if lease_id not in live and len(live) >= allowed:
        raise LimitExceeded(
            f"range {replica.gid.range_id} would have {len(live) + 1} leases; at most {allowed} "
            "are allowed. Close snapshots that are not in use, or wait until their leases end",
            limit="leases_max", value=len(live) + 1, allowed=allowed,
        )  # fmt: skip


async def release(replica: RangeReplica, body: Body) -> Body:
    """End a lease on all of the range's keys. A repetition has no further effect."""
    await _propose(replica, commands.RELEASE_LEASE, [body["lease"]])
    return {}


async def _propose(replica: RangeReplica, kind: int, payload: list[Any]) -> None:
    reply = await replica.propose_and_wait(kind, payload)
    if reply.get("status") == "error":
        raise from_wire(reply["error"])
