"""Requests about consumer groups: decoded, given to the coordinator, answered as bytes.

Members hold their metadata and assignments in memory that is bounded (`group`, `coordinator`). What
takes long without such a bound, the claim of a group and a commit, is done before `begin` returns:
a large request keeps its room at the port until then.

A few bytes may ask for megabytes: descriptions of groups, or committed offsets with their metadata.
So a large answer has room of its own until the client has taken the answer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from ...client.protocol import limits
from . import admin_answers, admin_requests, api, codes, group_answers, group_requests
from .api import Head
from .coordinator import Coordinator, Guest
from .group import Joined
from .group_answers import GroupRow, Position
from .group_removal import GroupRemoval
from .group_store import LISTED_MAX, METADATA_BYTES_MAX
from .many import decoded, encoded
from .room import FREE, Room
from .session import Asker

Send = Callable[[bytes], Awaitable[None]]
Answer = Callable[[Send], Awaitable[None]]
"""Waits for the answer to a request, and sends its body."""

APIS: Final = frozenset({
    api.OFFSET_COMMIT, api.OFFSET_FETCH, api.FIND_COORDINATOR, api.JOIN_GROUP, api.HEARTBEAT,
    api.LEAVE_GROUP, api.SYNC_GROUP, api.DESCRIBE_GROUPS, api.LIST_GROUPS, api.DELETE_GROUPS,
    api.OFFSET_DELETE,
})  # fmt: skip
"""The requests about groups."""
ANSWERS_MAX: Final = 64 * limits.MIB
"""Bytes of large answers that clients have not taken yet; a host has half of them."""
_ROW_BYTES: Final = 300
"""What a row costs besides its bytes of any length, about."""
_GROUP: Final = 0


class Grouping:
    """Serves the requests about groups."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._groups = coordinator
        self._removal = GroupRemoval(coordinator)
        self._room = Room(ANSWERS_MAX, ANSWERS_MAX // 2)

    @asynccontextmanager
    async def _held(self, size: int, asker: Asker) -> AsyncIterator[Callable[[int], None]]:
        """Have room for an answer, as `Room.held`. An answer counts as half of all at most, which
        other hosts leave free."""
        if size <= FREE:
            yield lambda _: None
            return
        async with self._room.held(min(size, ANSWERS_MAX // 2), asker.host) as shrink:
            yield shrink

    async def begin(self, data: bytes, head: Head, asker: Asker) -> Answer:
        """Decode a request; return what waits for its answer. Raises Malformed."""
        groups, version = self._groups, head.version
        if head.api == api.JOIN_GROUP:
            wish = await decoded(data, group_requests.join_group)
            guest = Guest(head.client or "", asker)
            # Once the group is claimed, its members hold the metadata, which are bounded.
            error = await groups.claim(wish.group, asker)

            async def join(send: Send) -> None:
                refused = Joined(error, wish.member)
                joined = refused if error else await groups.join(wish, guest)
                count = len(joined.members)
                size = sum(len(name) + len(metadata) for name, metadata in joined.members)
                async with self._held(size + count * _ROW_BYTES, asker):
                    await send(await encoded(count, group_answers.join_group, joined, version))

            return join
        if head.api == api.SYNC_GROUP:
            sync = await decoded(data, group_requests.sync_group)

            async def synced(send: Send) -> None:
                answer = await groups.sync(sync, asker)
                async with self._held(len(answer.assignment), asker):
                    await send(group_answers.sync_group(answer, version))

            return synced
        if head.api == api.HEARTBEAT:
            beat = await decoded(data, group_requests.heartbeat)

            async def beaten(send: Send) -> None:
                await send(group_answers.outcome(await groups.heartbeat(beat, asker), version))

            return beaten
        if head.api == api.LEAVE_GROUP:
            leave = await decoded(data, group_requests.leave_group)

            async def left(send: Send) -> None:
                await send(group_answers.outcome(await groups.leave(leave, asker), version))

            return left
        return await self._offsets(data, head, asker)

    async def _offsets(self, data: bytes, head: Head, asker: Asker) -> Answer:
        groups, version = self._groups, head.version
        if head.api == api.OFFSET_COMMIT:
            size = len(data)
            commit = await decoded(data, group_requests.offset_commit)
            rows = await groups.commit(commit, asker)

            async def committed(send: Send) -> None:
                async with self._held(size, asker):
                    await send(await encoded(len(rows), group_answers.offset_commit, rows, version))

            return committed
        if head.api == api.OFFSET_FETCH:
            names = len(data)
            asked = await decoded(data, group_requests.offset_fetch)
            most = LISTED_MAX if asked.partitions is None else len(asked.partitions)

            async def positioned(send: Send) -> None:
                bound = names + most * (METADATA_BYTES_MAX + _ROW_BYTES)
                async with self._held(bound, asker) as shrink:
                    error, rows = await groups.positions(asked, asker)
                    shrink(names + _bytes_of_positions(rows))
                    count = len(rows)
                    await send(
                        await encoded(count, group_answers.offset_fetch, error, rows, version)
                    )

            return positioned
        if head.api in (api.DELETE_GROUPS, api.OFFSET_DELETE):
            return await self._removals(data, head, asker)
        return await self._descriptions(data, head, asker)

    async def _removals(self, data: bytes, head: Head, asker: Asker) -> Answer:
        size = len(data)
        if head.api == api.DELETE_GROUPS:
            names = await decoded(data, admin_requests.delete_groups)
            rows = await self._removal.delete(names, asker)
            body = await encoded(len(rows), admin_answers.delete_groups, rows)
        else:
            asked = await decoded(data, admin_requests.offset_delete)
            error, forgotten = await self._removal.forget(asked, asker)
            count = len(forgotten)
            body = await encoded(count, admin_answers.offset_delete, error, forgotten)

        async def removed(send: Send) -> None:
            async with self._held(size, asker):
                await send(body)

        return removed

    async def _descriptions(self, data: bytes, head: Head, asker: Asker) -> Answer:
        groups, version = self._groups, head.version
        if head.api == api.FIND_COORDINATOR:
            lookup = await decoded(data, group_requests.find_coordinator)

            async def found(send: Send) -> None:
                if lookup.kind != _GROUP:  # that of transactions, which do not exist here
                    # The code after which all clients give up at once; others make some try again.
                    refused = codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                    await send(group_answers.find_coordinator(refused, None, version))
                    return
                error, broker = await groups.find(lookup.group, asker)
                await send(group_answers.find_coordinator(error, broker, version))

            return found
        if head.api == api.DESCRIBE_GROUPS:
            names = await decoded(data, group_requests.describe_groups)

            async def described(send: Send) -> None:
                rows = await groups.describe(list(dict.fromkeys(names)), asker)
                count = len(rows) + sum(len(row.members) for row in rows)
                async with self._held(_bytes_of_groups(rows), asker):
                    await send(await encoded(count, group_answers.describe_groups, rows, version))

            return described

        async def listed(send: Send) -> None:
            error, rows = await groups.list(asker)
            size = sum(len(name) + len(kind) for name, kind in rows)
            async with self._held(size + len(rows) * _ROW_BYTES, asker):
                count = len(rows)
                await send(await encoded(count, group_answers.list_groups, error, rows, version))

        return listed


def _bytes_of_positions(rows: Sequence[Position]) -> int:
    """Return how many bytes an answer with these offsets has at most, with the offsets."""
    return sum(_ROW_BYTES + len(row.metadata or "") for row in rows)


def _bytes_of_groups(rows: Sequence[GroupRow]) -> int:
    """Return how many bytes an answer with these groups has, about."""
    members = [each for row in rows for each in row.members]
    return (len(rows) + len(members)) * _ROW_BYTES + sum(
        len(each.metadata) + len(each.assignment) for each in members
    )
