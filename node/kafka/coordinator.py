"""The consumer groups that this node coordinates.

The coordinator of a group is the leader of the range with the group's committed offsets
(`group_store`). Every node can say which node this is, from its metadata. When the leader changes,
the earlier coordinator tells its members NOT_COORDINATOR; they look for the coordinator and join
anew there. Members and assignments are in memory alone.

Metadata may be old, so for a moment two nodes may believe that they coordinate a group. Members of
both are in two groups then, and get all partitions twice. Commits do not go back all the same: the
later coordinator has claimed the group before it answers a join, and no commit of the earlier one
is appended after that. The earlier coordinator learns of it with its next commit.

A member of the new generation asks for committed offsets after it has its assignment. The answer
waits for the commits that members of earlier generations had begun: no offset that a member was
told goes back by a commit that was late.
"""

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from ...client.cluster import Cluster, LogRoutes, retrieve
from ...client.protocol import limits
from ...client.protocol.address import split_address
from ...client.protocol.cluster import METADATA
from ...client.protocol.errors import (
    Fenced,
    InvalidArgument,
    LimitExceeded,
    LognodeError,
    LogNotFound,
    Unauthorized,
)
from ...client.protocol.key_partitions import prefix
from ..runtime.slices import in_slices, one_by_one
from . import codes
from .answers import Broker
from .group import Group, Joined, State, Synced, Wish
from .group_answers import Committed, GroupRow, MemberRow, Position
from .group_requests import Beat, Commit, Leave, Mark, Positions, Sync
from .group_store import (
    GROUP_BYTES_MAX,
    METADATA_BYTES_MAX,
    GroupStore,
    Ledger,
    Row,
    Stored,
    pieces,
)
from .refused import Refused
from .session import Asker
from .topics import GROUPS_LOG, Topics

GROUPS_MAX: Final = 10_000
BYTES_MAX: Final = 64 * limits.MIB
"""Memory of all members of this node's groups; a host has half of it. Assignments may have as much
besides."""
_TIMEOUT_S: Final = 10.0
_TICK_S: Final = 0.2
_LOOK_S: Final = 0.5
"""How often the node looks at which node coordinates its groups."""
_IDLE_S: Final = 60.0
"""How long the node remembers a group without members."""
_CLIENT_CHARS: Final = 100
_AT_ONCE: Final = 16
_MEMBER_ID_BYTES: Final = 12

log = logging.getLogger("lognode.kafka")


class Guest(NamedTuple):
    """A client that joins: its id, and who it is."""

    client: str
    asker: Asker


class _Held:
    """A group of this node, with its commits."""

    def __init__(
        self, name: str, host: str, key: bytes, ledger: Ledger, group: Group, now: float
    ) -> None:
        self.name = name
        self.host = host
        """The host of the client for which the group was claimed."""
        self.key = key
        """The front of the keys of the group, which says the range."""
        self.ledger = ledger
        self.group = group
        self.used_at = now


class Coordinator:
    """Serves requests about groups. All calls run on the loop's thread, and raise nothing.

    `brokers` returns the address for Kafka clients of each node that serves them; `node_id` is that
    of this node.
    """

    def __init__(
        self, cluster: Cluster, topics: Topics, *, node_id: int,
        brokers: Callable[[], Mapping[int, str]],
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._store = GroupStore(cluster, topics)
        self._node_id = node_id
        self._brokers = brokers
        self._groups: dict[str, _Held] = {}
        self._loading: dict[str, asyncio.Task[_Held]] = {}
        self._bytes: Counter[str] = Counter()
        """Memory of the members of each host."""
        self._claims: Counter[str] = Counter()
        """Groups that were claimed, or are being claimed, for clients of each host."""
        self._tickets = 0
        self._waiting: dict[int, asyncio.Future[Joined | Synced]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")

    # Which node coordinates a group.

    async def find(self, group: str, asker: Asker) -> tuple[int, Broker | None]:
        """Return the coordinator of a group, or an error. The first call makes the log."""
        if not is_fit(group):
            return codes.INVALID_GROUP_ID, None
        if not asker.may_see(group):
            return codes.GROUP_AUTHORIZATION_FAILED, None
        deadline = self._deadline()
        try:
            try:
                await self._cluster.refresh(GROUPS_LOG, deadline, key=b"")
            except LogNotFound:
                await self._store.create(len(self._brokers()) or 1, deadline)
                await self._cluster.refresh(GROUPS_LOG, deadline, key=b"")
            node = await self._node_of(group, deadline)
        except LognodeError as error:
            _told("the coordinator of a group is unknown", error)
            return codes.COORDINATOR_NOT_AVAILABLE, None
        address = self._brokers().get(node)
        if address is None:
            return codes.COORDINATOR_NOT_AVAILABLE, None
        return codes.NONE, Broker(node, *split_address(address, "kafka"))

    async def _node_of(self, group: str, deadline: float) -> int:
        """Return the node that coordinates a group, 0 if unknown. Raises the errors of metadata."""
        routes = (await self._store.topic(deadline)).routes
        return await self._node_at(routes, self._store.prefix(routes, group), deadline)

    async def _node_at(self, routes: LogRoutes, key: bytes, deadline: float) -> int:
        known = routes.table.find(key)
        if known is None or known.leader is None:
            await self._cluster.refresh(GROUPS_LOG, deadline, key=key)
            known = routes.table.find(key)
        if known is None or known.leader is None:
            return 0
        serving = self._brokers()
        if known.leader in serving:
            return known.leader
        # The leader serves no Kafka clients, or is lost; then another node will lead soon.
        return next((node for node in (*known.members, *sorted(serving)) if node in serving), 0)

    async def _check_own(self, group: str, deadline: float) -> None:
        """Raise Refused unless this node coordinates the group."""
        if not is_fit(group):
            raise Refused(codes.INVALID_GROUP_ID, f"the group id has {len(group)} characters")
        try:
            node = await self._node_of(group, deadline)
            if node != self._node_id and self._cluster.now() - self._looked_at > _LOOK_S:
                # The client may have heard of a new leader before this node.
                self._looked_at = self._cluster.now()
                await self._cluster.refresh(GROUPS_LOG, deadline)
                node = await self._node_of(group, deadline)
        except LogNotFound as error:
            raise Refused(codes.NOT_COORDINATOR, error.message) from None
        except LognodeError as error:
            raise Refused(codes.COORDINATOR_NOT_AVAILABLE, error.message) from None
        if not node:
            raise Refused(codes.COORDINATOR_NOT_AVAILABLE, "the group has no coordinator now")
        if node != self._node_id:
            raise Refused(codes.NOT_COORDINATOR, f"node {node} coordinates the group")

    async def _member_group(self, group: str, asker: Asker) -> _Held:
        """Return the group of a request of a member. Raises Refused."""
        _check_may_use(group, asker)
        held = self._groups.get(group)
        if held is None:
            await self._check_own(group, self._deadline())
            held = self._groups.get(group)
        if held is None:  # the members of an earlier coordinator join anew
            raise Refused(codes.UNKNOWN_MEMBER_ID, "this node has no member of the group")
        held.used_at = self._cluster.now()
        return held

    async def _claimed(self, group: str, asker: Asker) -> _Held:
        """Return a group of this node, claimed. Raises Refused."""
        _check_may_use(group, asker)
        return await self._claim(group, asker)

    async def _claim(self, group: str, asker: Asker) -> _Held:
        deadline = self._deadline()
        held = self._groups.get(group)
        if held is None:
            await self._check_own(group, deadline)
            held = self._groups.get(group)  # another request may have claimed the group meanwhile
        if held is None:
            task = self._loading.get(group)
            if task is None:
                host, most = asker.host, GROUPS_MAX
                if self._claims.total() >= most or self._claims[host] >= most // 2:
                    raise Refused(
                        codes.COORDINATOR_NOT_AVAILABLE,
                        f"the node has {most:,} groups, or half as many of this host",
                    )
                self._claims[host] += 1
                task = asyncio.create_task(self._load(group, host, deadline))
                self._loading[group] = task
                task.add_done_callback(partial(self._loaded, group, host))
            try:
                held = await asyncio.shield(task)
            except LognodeError as error:
                _told("a group cannot be claimed", error)
                raise Refused(codes.COORDINATOR_NOT_AVAILABLE, error.message) from None
        held.used_at = self._cluster.now()
        return held

    async def _load(self, group: str, host: str, deadline: float) -> _Held:
        ledger = Ledger(self._store, group)
        await ledger.open(deadline)
        key = self._store.prefix((await self._store.topic(deadline)).routes, group)
        members = Group(ledger.generation, self._grew)
        now = self._cluster.now()
        held = self._groups[group] = _Held(group, host, key, ledger, members, now)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        return held

    def _loaded(self, group: str, host: str, task: "asyncio.Task[_Held]") -> None:
        del self._loading[group]
        retrieve(task)
        if task.cancelled() or task.exception() is not None:
            self._unclaimed(host)

    def _unclaimed(self, host: str) -> None:
        self._claims[host] -= 1
        if not self._claims[host]:
            del self._claims[host]

    def _grew(self, host: str, by: int) -> None:
        self._bytes[host] += by
        if not self._bytes[host]:
            del self._bytes[host]

    def _has_room(self, size: int, host: str, most: int) -> bool:
        """Whether the members of a host may have so many bytes more. A host has half of all at
        most: otherwise one host could keep the members of others out for as long as its sessions
        last."""
        return self._bytes.total() + size <= most and self._bytes[host] + size <= most // 2

    # Members.

    async def claim(self, group: str, asker: Asker) -> int:
        """Claim a group of this node before a member joins; return the error, or 0."""
        try:
            await self._claimed(group, asker)
        except Refused as refusal:
            return refusal.code
        return codes.NONE

    async def join(self, wish: Wish, guest: Guest) -> Joined:
        """Join a group; the answer comes when all members have joined."""
        try:
            held = await self._claimed(wish.group, guest.asker)
            growth = held.group.growth(wish)
            if growth > 0 and not self._has_room(growth, guest.asker.host, BYTES_MAX):
                raise Refused(codes.GROUP_MAX_SIZE_REACHED, "the members have too many bytes")
        except Refused as refusal:
            return Joined(refusal.code, wish.member)
        client = guest.client[:_CLIENT_CHARS]
        name = f"{client}-{os.urandom(_MEMBER_ID_BYTES).hex()}"

        def begin(ticket: int) -> None:
            held.group.join(wish, ticket, self._cluster.now(), name=name, client=client,
                            host=guest.asker.host)  # fmt: skip

        answer = await self._answered(held, begin)
        assert isinstance(answer, Joined)
        return answer

    async def sync(self, asked: Sync, asker: Asker) -> Synced:
        """Return the assignment of a member, once the leader has sent the assignments."""
        try:
            held = await self._member_group(asked.group, asker)
            size = sum(map(len, asked.assignments.values()))
            if not self._has_room(size, asker.host, 2 * BYTES_MAX):
                raise Refused(codes.COORDINATOR_NOT_AVAILABLE, "the members have too many bytes")
        except Refused as refusal:
            return Synced(refusal.code)

        def begin(ticket: int) -> None:
            held.group.sync(
                asked.member, asked.generation, asked.assignments, ticket, self._cluster.now()
            )
            asked.assignments.clear()  # only the members keep them while this request waits

        answer = await self._answered(held, begin)
        assert isinstance(answer, Synced)
        return answer

    async def heartbeat(self, beat: Beat, asker: Asker) -> int:
        """Take a heartbeat; return the error, or 0."""
        try:
            held = await self._member_group(beat.group, asker)
        except Refused as refusal:
            return refusal.code
        return held.group.heartbeat(beat.member, beat.generation, self._cluster.now())

    async def leave(self, asked: Leave, asker: Asker) -> int:
        """Remove a member; return the error, or 0."""
        try:
            held = await self._member_group(asked.group, asker)
        except Refused as refusal:
            return refusal.code
        error = held.group.leave(asked.member, self._cluster.now())
        self._deliver(held)
        return error

    async def _answered(self, held: _Held, begin: Callable[[int], None]) -> Joined | Synced:
        """Begin a request that may wait, and return its answer."""
        self._tickets += 1
        ticket = self._tickets
        future: asyncio.Future[Joined | Synced] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        begin(ticket)
        self._deliver(held)
        try:
            return await future
        finally:
            if self._waiting.pop(ticket, None) is not None:  # the client has left
                held.group.gone(ticket, self._cluster.now())
                self._deliver(held)

    def _deliver(self, held: _Held) -> None:
        """Hand the answers of a group to the requests that wait."""
        held.ledger.note(held.group.generation)
        for ticket, answer in held.group.replies():
            future = self._waiting.pop(ticket, None)
            if future is not None and not future.done():
                future.set_result(answer)

    # Offsets.

    async def commit(self, asked: Commit, asker: Asker) -> list[Committed]:
        """Commit offsets; return the outcome of each partition."""
        deadline = self._deadline()
        try:
            as_member = asked.generation >= 0 or asked.member
            find = self._member_group if as_member else self._claimed
            held = await find(asked.group, asker)
            rows, errors = await self._rows(asked, asker, deadline)
            # From here on nothing waits until the commit is in line: no generation begins between.
            self._check_here(held)
            error = held.group.commit(asked.member, asked.generation, self._cluster.now())
            if error:
                raise Refused(error, "the group refuses the commit")
            await self._append(held, rows, deadline)
        except Refused as refusal:
            return [Committed(each.topic, each.partition, refusal.code) for each in asked.marks]
        return [
            Committed(each.topic, each.partition, error)
            for each, error in zip(asked.marks, errors, strict=True)
        ]

    def _check_here(self, held: _Held) -> None:
        """Raise Refused for a group that has moved to another node."""
        if self._groups.get(held.name) is not held:
            raise Refused(codes.NOT_COORDINATOR, "another node coordinates the group")

    async def _append(self, held: _Held, rows: Sequence[Row], deadline: float) -> None:
        """Append offsets, in pieces that one append holds. Raises Refused."""
        try:
            # `submit` takes the commit in this step of the loop; a coroutine would begin later.
            await asyncio.gather(*(held.ledger.submit(each, deadline) for each in pieces(rows)))
        except Fenced as error:
            self._drop(held)
            raise Refused(codes.NOT_COORDINATOR, error.message) from None
        except LognodeError as error:
            _told("a commit of offsets failed", error)
            raise Refused(codes.COORDINATOR_NOT_AVAILABLE, error.message) from None

    async def _rows(
        self, asked: Commit, asker: Asker, deadline: float
    ) -> tuple[list[Row], list[int]]:
        """Return the entries of a commit, and the error of each partition. Raises Refused."""
        try:
            routes = (await self._store.topic(deadline)).routes
        except LognodeError as error:
            raise Refused(codes.COORDINATOR_NOT_AVAILABLE, error.message) from None
        ids = await _log_ids((each.topic for each in asked.marks), asker, deadline)

        def entries() -> Iterator[tuple[int, Row | None]]:
            for each in asked.marks:
                log_id, partitions, unknown = ids[each.topic]
                error = unknown or _refusal(each, partitions)
                value = Stored(log_id, each.offset, max(each.epoch, -1), each.metadata)
                if error:
                    yield error, None
                else:
                    named = each.topic, each.partition
                    yield error, self._store.row(routes, asked.group, *named, value)

        made = await in_slices(entries())
        return [row for _, row in made if row is not None], [error for error, _ in made]

    async def positions(self, asked: Positions, asker: Asker) -> tuple[int, list[Position]]:
        """Return an error, and the committed offsets.

        "No offset" makes a consumer begin anew, so it is said only when it is known. Otherwise the
        error is NOT_COORDINATOR, after which every client asks again: clients before Kafka 3 give
        up after COORDINATOR_NOT_AVAILABLE.
        """
        deadline = self._deadline()
        wanted = asked.partitions
        held: _Held | None = None
        try:
            _check_may_use(asked.group, asker)
            await self._check_own(asked.group, deadline)
            held = self._groups.get(asked.group)
            if held is not None:
                await held.ledger.settled(deadline)
            if wanted is None:
                wanted = await self._store.partitions(asked.group, deadline)
            found = await self._store.offsets(asked.group, wanted, deadline)
            ids = await _log_ids((topic for topic, _ in wanted), asker, deadline)
            if any(each is not None and each.log_id > ids[topic][0] > 0
                   for each, (topic, _) in zip(found, wanted, strict=True)):  # fmt: skip
                # Ids of logs rise. So this node does not know the newest topic of that name yet, or
                # the offset is from another cluster.
                await self._cluster.look(METADATA, {"limit": 1}, deadline, newer=True)
                ids = await _log_ids((topic for topic, _ in wanted), asker, deadline)
            if any(error == codes.COORDINATOR_NOT_AVAILABLE for _, _, error in ids.values()):
                raise Refused(codes.NOT_COORDINATOR, "a topic cannot be looked up now")
        except Refused as refusal:
            unknown = refusal.code == codes.COORDINATOR_NOT_AVAILABLE
            code = codes.NOT_COORDINATOR if unknown else refusal.code
            return code, [Position(*each) for each in wanted or ()]
        except LognodeError as error:
            _told("committed offsets are not available", error)
            if isinstance(error, Fenced) and held is not None:
                self._drop(held)
            many = isinstance(error, LimitExceeded)
            code = codes.INVALID_REQUEST if many else codes.NOT_COORDINATOR
            return code, [Position(*each) for each in wanted or ()]

        def rows() -> Iterator[Position]:
            for each, stored in zip(wanted, found, strict=True):
                log_id, _, error = ids[each[0]]
                if error == codes.TOPIC_AUTHORIZATION_FAILED:
                    if asked.partitions is not None:
                        yield Position(*each, error=error)
                elif stored is not None and stored.log_id == log_id:
                    yield Position(*each, stored.offset, stored.epoch, stored.metadata)
                elif asked.partitions is not None:
                    yield Position(*each)

        return codes.NONE, await in_slices(rows())

    # Removal.

    async def exists(self, group: str) -> bool:
        """Return whether a group of this node exists. Raises Refused."""
        deadline = self._deadline()
        await self._check_own(group, deadline)
        try:
            head = await self._store.head(group, deadline)
        except LognodeError as error:
            raise Refused(codes.COORDINATOR_NOT_AVAILABLE, error.message) from None
        return head is not None and bool(head.claim)

    async def taken_out(self, group: str, asker: Asker) -> Ledger:
        """Return the ledger of a group without members, and forget the group: who joins from now on
        claims the group anew. Raises Refused."""
        held = await self._claim(group, asker)
        try:
            await held.ledger.settled(self._deadline())
        except LognodeError as error:
            raise Refused(codes.COORDINATOR_NOT_AVAILABLE, error.message) from None
        # From here on nothing waits: nobody joins between.
        self._check_here(held)
        if held.group.members or not held.ledger.is_idle:
            raise Refused(codes.NON_EMPTY_GROUP, "the group has members, or commits under way")
        self._drop(held)
        return held.ledger

    @property
    def store(self) -> GroupStore:
        """Where the groups are."""
        return self._store

    # Descriptions.

    async def describe(self, names: Sequence[str], asker: Asker) -> list[GroupRow]:
        """Return groups by name, each with its members."""
        return [await self._described(name, asker) async for name in one_by_one(names)]

    async def _described(self, name: str, asker: Asker) -> GroupRow:
        if not asker.may_see(name):
            return GroupRow(name, codes.GROUP_AUTHORIZATION_FAILED)
        deadline = self._deadline()
        try:
            await self._check_own(name, deadline)
            held = self._groups.get(name)
            if held is None:
                known = await self._store.head(name, deadline)
                state = State.DEAD if known is None or not known.claim else State.EMPTY
                return GroupRow(name, state=state.value)
        except Refused as refusal:
            return GroupRow(name, refusal.code)
        except LognodeError:
            return GroupRow(name, codes.COORDINATOR_NOT_AVAILABLE)
        group = held.group
        is_stable = group.state is State.STABLE
        rows = [
            MemberRow(each.name, each.client, f"/{each.host}",
                      each.metadata(group.protocol) if is_stable else b"", each.assignment)
            for each in group.members.values()
        ]  # fmt: skip
        protocol = group.protocol if is_stable else ""
        return GroupRow(name, codes.NONE, group.state.value, group.kind, protocol, rows)

    async def list(self, asker: Asker) -> tuple[int, "list[tuple[str, str]]"]:
        """Return an error, and the groups of this node with the types of their protocols."""
        deadline = self._deadline()
        try:
            routes = (await self._store.topic(deadline)).routes
            ranges = await self._cluster.all_ranges(routes, deadline)
            own = [
                partition for partition in range(routes.partitions or 0)
                if any(each.leader == self._node_id and each.contains(prefix(partition))
                       for each in ranges)
            ]  # fmt: skip
            stored = await self._store.groups(own, self._groups.keys(), deadline)
        except LogNotFound:
            return codes.NONE, []
        except LognodeError as error:
            _told("groups cannot be listed", error)
            return codes.COORDINATOR_NOT_AVAILABLE, []
        kinds = dict.fromkeys(stored, "")
        kinds |= {held.name: held.group.kind for held in self._groups.values()}
        seen = await in_slices(each for each in kinds.items() if asker.may_see(each[0]))
        return codes.NONE, await asyncio.to_thread(sorted, seen)

    def numbers(self) -> Mapping[str, int]:
        """Return the number of groups that this node coordinates, and of their members."""
        members = sum(len(held.group.members) for held in self._groups.values())
        return {"groups": len(self._groups), "members": members}

    # Time.

    async def _watch(self) -> None:
        """Look at the groups again and again while the node has any."""
        looking: asyncio.Task[None] | None = None
        look_at = self._cluster.now() + _LOOK_S
        try:
            while self._groups:
                await asyncio.sleep(_TICK_S)
                await _logged(self._tick)
                if self._cluster.now() >= look_at and (looking is None or looking.done()):
                    look_at = self._cluster.now() + _LOOK_S
                    looking = asyncio.create_task(_logged(self._look))
        finally:
            if looking is not None:
                looking.cancel()

    async def _tick(self) -> None:
        """Let time pass in the groups."""
        async for held in one_by_one(list(self._groups.values())):
            now = self._cluster.now()
            held.group.tick(now)
            self._deliver(held)
            is_empty = held.group.state is State.EMPTY and held.ledger.is_idle
            if is_empty and now - held.used_at > _IDLE_S:
                self._drop(held)

    async def _look(self) -> None:
        """Drop the groups that another node coordinates."""
        with contextlib.suppress(LognodeError):
            await self._cluster.refresh(GROUPS_LOG, self._deadline())
            routes = (await self._store.topic(self._deadline())).routes
            nodes: dict[bytes, int] = {}
            async for held in one_by_one(list(self._groups.values())):
                if held.key not in nodes:
                    nodes[held.key] = await self._node_at(routes, held.key, self._deadline())
                if held.ledger.is_fenced or nodes[held.key] not in (0, self._node_id):
                    self._drop(held)

    def _drop(self, held: _Held) -> None:
        """Forget a group; its members look for the coordinator."""
        if self._groups.get(held.name) is held:
            del self._groups[held.name]
            self._unclaimed(held.host)
        held.group.end()
        self._deliver(held)

    def _deadline(self) -> float:
        return self._cluster.now() + _TIMEOUT_S

    async def close(self) -> None:
        """End all waits; returns at once."""
        ended: list[asyncio.Task[_Held] | asyncio.Task[None]] = [*self._loading.values()]
        if self._watching is not None:
            ended.append(self._watching)
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        for held in list(self._groups.values()):
            self._drop(held)
            await held.ledger.close()


def is_fit(group: str) -> bool:
    """Return whether a text can be the id of a group."""
    return 0 < len(group.encode()) <= GROUP_BYTES_MAX and "\0" not in group


def _refusal(mark: Mark, partitions: int) -> int:
    """Return why the offset of a partition cannot be committed, or 0."""
    if not 0 <= mark.partition < partitions:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    if len((mark.metadata or "").encode()) > METADATA_BYTES_MAX:
        return codes.OFFSET_METADATA_TOO_LARGE
    return codes.INVALID_REQUEST if mark.offset < 0 else codes.NONE


def _check_may_use(group: str, asker: Asker) -> None:
    """Raise Refused for an asker that may not be a member of the group."""
    if not asker.may_use(group):
        told = "the token does not allow read on a log with the name of the group"
        raise Refused(codes.GROUP_AUTHORIZATION_FAILED, told)


async def _log_ids(
    names: Iterable[str], asker: Asker, deadline: float
) -> dict[str, tuple[int, int, int]]:
    """Return the id, the number of partitions and an error for each topic, as its asker sees it."""
    found: dict[str, tuple[int, int, int]] = {}
    wanted = list(dict.fromkeys(names))

    async def look(name: str) -> None:
        try:
            topic = await asker.topics.as_of_now(name, deadline)
        except LognodeError as error:
            if isinstance(error, LogNotFound):
                asker.topics.gone(name)
            found[name] = 0, 0, _topic_error(error)
        else:
            refused = codes.NONE if asker.may_read(name) else codes.TOPIC_AUTHORIZATION_FAILED
            found[name] = topic.log_id or 0, topic.partitions, refused

    for at in range(0, len(wanted), _AT_ONCE):
        await asyncio.gather(*map(look, wanted[at : at + _AT_ONCE]))
    return found


def _topic_error(error: LognodeError) -> int:
    """Return the error of a partition whose topic cannot be looked up."""
    if isinstance(error, Unauthorized):
        return codes.TOPIC_AUTHORIZATION_FAILED
    if isinstance(error, (LogNotFound, InvalidArgument)):
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    return codes.COORDINATOR_NOT_AVAILABLE


async def _logged(step: Callable[[], Awaitable[None]]) -> None:
    """Run a step; an error in it does not end the steps after it."""
    try:
        await step()
    except Exception:
        log.exception("a look at consumer groups failed")


def _told(what: str, error: LognodeError) -> None:
    log.info(what, extra={"fields": {"error": str(error)}})
