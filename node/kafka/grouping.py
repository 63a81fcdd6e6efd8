"""Requests about consumer groups: decoded, given to the coordinator, answered as bytes.

Members hold their metadata and assignments in memory that is bounded (`group`, `coordinator`). What
takes long without such a bound, the claim of a group and a commit, is done before `begin` returns:
a large request keeps its room at the port until then.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from . import api, codes, group_answers, group_requests
from .api import Head
from .coordinator import Coordinator, Guest
from .group import Joined
from .many import decoded, encoded
from .session import Asker

Answer = Callable[[], Awaitable[bytes]]
"""Waits for the answer to a request, and returns its body."""

APIS: Final = frozenset({
    api.OFFSET_COMMIT, api.OFFSET_FETCH, api.FIND_COORDINATOR, api.JOIN_GROUP, api.HEARTBEAT,
    api.LEAVE_GROUP, api.SYNC_GROUP, api.DESCRIBE_GROUPS, api.LIST_GROUPS,
})  # fmt: skip
"""The requests about groups."""
_GROUP: Final = 0


class Grouping:
    """Serves the requests about groups."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._groups = coordinator

    async def begin(self, data: bytes, head: Head, asker: Asker) -> Answer:
        """Decode a request; return what waits for its answer. Raises Malformed."""
        groups, version = self._groups, head.version
        if head.api == api.JOIN_GROUP:
            wish = await decoded(data, group_requests.join_group)
            guest = Guest(head.client or "", asker)
            # Once the group is claimed, its members hold the metadata, which are bounded.
            error = await groups.claim(wish.group, asker)

            async def join() -> bytes:
                refused = Joined(error, wish.member)
                joined = refused if error else await groups.join(wish, guest)
                return await encoded(len(joined.members), group_answers.join_group, joined, version)

            return join
        if head.api == api.SYNC_GROUP:
            sync = await decoded(data, group_requests.sync_group)

            async def synced() -> bytes:
                return group_answers.sync_group(await groups.sync(sync, asker), version)

            return synced
        if head.api == api.HEARTBEAT:
            beat = await decoded(data, group_requests.heartbeat)

            async def beaten() -> bytes:
                return group_answers.outcome(await groups.heartbeat(beat, asker), version)

            return beaten
        if head.api == api.LEAVE_GROUP:
            leave = await decoded(data, group_requests.leave_group)

            async def left() -> bytes:
                return group_answers.outcome(await groups.leave(leave, asker), version)

            return left
        return await self._offsets(data, head, asker)

    async def _offsets(self, data: bytes, head: Head, asker: Asker) -> Answer:
        groups, version = self._groups, head.version
        if head.api == api.OFFSET_COMMIT:
            commit = await decoded(data, group_requests.offset_commit)
            rows = await groups.commit(commit, asker)

            async def committed() -> bytes:
                return await encoded(len(rows), group_answers.offset_commit, rows, version)

            return committed
        if head.api == api.OFFSET_FETCH:
            positions = await decoded(data, group_requests.offset_fetch)

            async def positioned() -> bytes:
                error, rows = await groups.positions(positions, asker)
                return await encoded(len(rows), group_answers.offset_fetch, error, rows, version)

            return positioned
        return await self._descriptions(data, head, asker)

    async def _descriptions(self, data: bytes, head: Head, asker: Asker) -> Answer:
        groups, version = self._groups, head.version
        if head.api == api.FIND_COORDINATOR:
            lookup = await decoded(data, group_requests.find_coordinator)

            async def found() -> bytes:
                if lookup.kind != _GROUP:  # that of transactions, which do not exist here
                    return group_answers.find_coordinator(codes.INVALID_REQUEST, None, version)
                error, broker = await groups.find(lookup.group, asker)
                return group_answers.find_coordinator(error, broker, version)

            return found
        if head.api == api.DESCRIBE_GROUPS:
            names = await decoded(data, group_requests.describe_groups)

            async def described() -> bytes:
                rows = await groups.describe(names, asker)
                count = len(rows) + sum(len(row.members) for row in rows)
                return await encoded(count, group_answers.describe_groups, rows, version)

            return described

        async def listed() -> bytes:
            error, rows = await groups.list(asker)
            return await encoded(len(rows), group_answers.list_groups, error, rows, version)

        return listed
