"""Appends with acknowledgements: a batch and the positions of keys, applied together or not at all.

The dispatcher checks the tokens before the command is proposed, and takes the moved positions when
the command is applied. Until then the leases of the keys are busy: no other command about these
keys is proposed, and they do not end. A consumer whose answer is lost repeats the request; the
caller has looked for a repetition before, since the tokens of a repetition are settled.

The records of the batch were made from the entries that the consumer has. So an acknowledgement
names the first of these entries, and counts only from that entry on: another part of the entries
may be acknowledged already, together with the records that were made of that part.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...client.protocol.groups import FULL, LEASE, POSITION
from ...statemachine import commands as of_range
from ...statemachine.groups.group import Group
from .commands import AckFrom, Appending, Proposal
from .leases import Lease, Leases
from .settling import Refused


class Keys(NamedTuple):
    """What the dispatcher does with the leased keys of an append. Times are in ms."""

    expected: Callable[[Sequence[bytes]], list[int]]
    """Returns the positions that keys will have when the next command is applied."""
    acked: Callable[[list[tuple[Lease, int]], int], None]
    """The keys are acknowledged up to the positions, at this time."""
    goes_on: Callable[[Lease], None]
    """The consumer keeps the key: nothing was applied."""
    lost: Callable[[Lease, int], None]
    """Somebody else has moved the key, by this time."""
    parks: Callable[[Lease], None]
    """The key was parked."""


class Appends:
    """The appends of one group in a range, from the request until the command is applied."""

    def __init__(self, group_id: int, group: Group, leases: Leases, keys: Keys) -> None:
        self._group_id = group_id
        self._group = group
        self._leases = leases
        self._keys = keys
        self._waiting: list[Appending] = []

    def add(self, consumer: int, appending: Appending) -> None:
        """Take a request, or refuse it at once. The keys of the request differ from each other."""
        leases: list[Lease] = []
        for ack in appending.acks:
            lease = self._leases.held(ack.key, ack.token, consumer)
            if lease is None or ack.through > lease.through:
                self._refuse(appending, ack, LEASE if lease is None else POSITION)
            else:
                leases.append(lease)
        is_early = any(lease.busy or lease.wanted for lease in leases)
        if appending.refused or is_early:
            appending.done(is_early=is_early)
            return
        for lease, ack in zip(leases, appending.acks, strict=True):
            lease.begins_command()
            lease.wants(ack.through)
        self._waiting.append(appending)

    def repeated(self, consumer: int, acks: Sequence[AckFrom], now_ms: int) -> None:
        """Take a repetition of an applied request: leases that this leader has claimed may not show
        yet that their entries are done."""
        for ack in acks:
            lease = self._leases.held(ack.key, ack.token, consumer)
            is_free = lease is not None and not lease.busy and not lease.wanted
            if lease is not None and is_free and self._group.position(ack.key) >= ack.through:
                self._keys.acked([(lease, ack.through)], now_ms)

    def proposals(self, now_ms: int) -> list[Proposal]:
        """Return the commands to propose now, in this order."""
        waiting, self._waiting = self._waiting, []
        return [
            self._proposal(appending)
            for appending in waiting
            if self._still_fits(appending, now_ms)
        ]

    def _still_fits(self, appending: Appending, now_ms: int) -> bool:
        expected = self._keys.expected([ack.key for ack in appending.acks])
        passed = {
            ack.key for ack, seq in zip(appending.acks, expected, strict=True) if seq > ack.first
        }
        if not passed:
            return True
        for ack in appending.acks:
            lease = self._leases.of[ack.key]
            if ack.key in passed:
                self._refuse(appending, ack, POSITION)
                self._keys.lost(lease, now_ms)
            else:
                self._keys.goes_on(lease)
        appending.done()
        return False

    def _proposal(self, appending: Appending) -> Proposal:
        expected = self._keys.expected([ack.key for ack in appending.acks])
        rows = [
            [ack.key, seq, ack.through] for ack, seq in zip(appending.acks, expected, strict=True)
        ]
        payload = [self._group_id, self._leases.fence, rows, appending.data]
        return Proposal(of_range.GROUP_APPEND, payload, appending=appending)

    def applied(self, proposal: Proposal, reply: Mapping[str, Any], now_ms: int) -> None:
        """Take the reply to a command, which may have the places that do not fit."""
        appending = proposal.appending
        if appending is None:
            return
        actual = dict(zip(reply.get("refused", ()), reply.get("actual", ()), strict=True))
        for at, (ack, row) in enumerate(zip(appending.acks, proposal.payload[2], strict=True)):
            lease, state = self._leases.of[ack.key], self._group.rows.get(ack.key)
            is_acked = reply["status"] == "ok" and self._group.position(ack.key) >= ack.through
            if is_acked:
                self._keys.acked([(lease, ack.through)], now_ms)
            elif at not in actual:
                self._keys.goes_on(lease)
            elif state is not None and state.parked:
                self._refuse(appending, ack, LEASE)
                self._keys.parks(lease)
            elif actual[at] > ack.first:
                self._refuse(appending, ack, POSITION)
                self._keys.lost(lease, now_ms)
            else:
                if actual[at] == row[1]:
                    self._refuse(appending, ack, FULL)
                self._keys.goes_on(lease)
        appending.done(reply)

    def _refuse(self, appending: Appending, ack: AckFrom, reason: str) -> None:
        appending.refused.append(Refused(ack.key, reason, self._group.position(ack.key)))
