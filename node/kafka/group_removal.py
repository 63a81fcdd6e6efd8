"""Remove consumer groups, and committed offsets of groups.

Only a group without members is removed, by the node that coordinates the group. The node first
forgets the group, and then appends the tombstones with the claim that it has: a member that joins
meanwhile makes a new claim, and either finds the group removed, or the removal is refused.
`group_store` says what is appended, and what a crash leaves.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from ...client.protocol import limits, log_names
from ...client.protocol.errors import Fenced, InvalidArgument, LognodeError
from . import codes
from .admin_answers import Forgotten
from .admin_requests import Forget
from .coordinator import Coordinator, is_fit
from .group_store import Ledger, Row, pieces
from .refused import Refused
from .session import Asker

_TIMEOUT_S: Final = 10.0


class GroupRemoval:
    """Serves requests that remove. All calls run on the loop's thread, and raise nothing."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._groups = coordinator

    async def delete(self, names: Sequence[str], asker: Asker) -> list[tuple[str, int]]:
        """Remove groups, one after another; return each with its error, or 0."""
        return [(name, await self._delete(name, asker)) for name in dict.fromkeys(names)]

    async def _delete(self, group: str, asker: Asker) -> int:
        try:
            ledger = await self._taken_out(group, asker)
            await self._remove_all(group, ledger)
        except Refused as refusal:
            return refusal.code
        return codes.NONE

    async def forget(self, asked: Forget, asker: Asker) -> tuple[int, list[Forgotten]]:
        """Remove committed offsets of a group without members; return an error, and the outcome
        of each partition."""
        deadline = self._deadline()
        try:
            ledger = await self._taken_out(asked.group, asker)
            store = self._groups.store
            named = list(dict.fromkeys(each for each in asked.partitions if _may_be(*each)))
            found = await store.offsets(asked.group, named, deadline)
            there = [each for each, offset in zip(named, found, strict=True) if offset is not None]
            keys = [await store.offset_key(asked.group, *each, deadline) for each in there]
            await _append(ledger, [(key, None) for key in keys], deadline)
        except Refused as refusal:
            if refusal.code == codes.NON_EMPTY_GROUP:
                busy = codes.GROUP_SUBSCRIBED_TO_TOPIC
                return codes.NONE, [Forgotten(*each, busy) for each in asked.partitions]
            return refusal.code, []
        except LognodeError:
            return codes.COORDINATOR_NOT_AVAILABLE, []
        unknown = codes.UNKNOWN_TOPIC_OR_PARTITION
        return codes.NONE, [
            Forgotten(*each, codes.NONE if _may_be(*each) else unknown) for each in asked.partitions
        ]

    async def _taken_out(self, group: str, asker: Asker) -> Ledger:
        if not is_fit(group):
            raise Refused(codes.INVALID_GROUP_ID, f"the group id has {len(group)} characters")
        if not asker.may_remove(group):
            told = "the token does not allow admin on a log with the name of the group"
            raise Refused(codes.GROUP_AUTHORIZATION_FAILED, told)
        if not await self._groups.exists(group):
            raise Refused(codes.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
        return await self._groups.taken_out(group, asker)

    async def _remove_all(self, group: str, ledger: Ledger) -> None:
        """Append tombstones for all offsets and then for the head. Raises Refused."""
        store, deadline = self._groups.store, self._deadline()
        after: bytes | None = None
        try:
            while keys := await store.offset_keys(group, after, deadline):
                after = keys[-1]
                await _append(ledger, [(key, None) for key in keys], deadline)
                deadline = self._deadline()
            await ledger.end((), deadline)
        except LognodeError as error:
            raise _refused(error) from None

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + _TIMEOUT_S


def _may_be(topic: str, partition: int) -> bool:
    """Return whether there may be such a partition."""
    try:
        log_names.check(topic)
    except InvalidArgument:
        return False
    return 0 <= partition < limits.kafka_partitions_max


async def _append(ledger: Ledger, rows: Sequence[Row], deadline: float) -> None:
    """Append tombstones, in pieces that one append holds. Raises Refused."""
    try:
        for piece in pieces(rows):
            await ledger.commit(piece, deadline)
    except LognodeError as error:
        raise _refused(error) from None


def _refused(error: LognodeError) -> Refused:
    """Return the refusal after which the client tries again, at another node perhaps."""
    moved = codes.NOT_COORDINATOR
    code = moved if isinstance(error, Fenced) else codes.COORDINATOR_NOT_AVAILABLE
    return Refused(code, error.message)
