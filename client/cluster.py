"""The client's view of the cluster, and the one loop that every routed call uses.

`Cluster` knows nodes and logs from the newest metadata it has seen, and asks for newer metadata
when a node's answer shows that the client is behind. Metadata comes in pages: for a log with many
ranges the client asks for the ranges around the key that it needs.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .connection import Connection, Stream
from .poll_turns import PollTurns
from .pool import Pool, Token, shared
from .protocol import Operation, limits
from .protocol.address import Address, split_address
from .protocol.cleanups import compacts
from .protocol.cluster import METADATA, RANGE, RANGES
from .protocol.errors import (
    IDLE,
    OVERTAKEN,
    GenerationMismatch,
    InvalidArgument,
    LognodeError,
    LogNotFound,
    NodeNotFound,
    NotLeader,
    OperationInProgress,
    RemoteProtocolError,
    Sealed,
    Timeout,
    Unauthorized,
    Unavailable,
)
from .protocol.key_spans import EVERY_KEY, KeySpans, Span
from .protocol.kinds import INTEGER_MAX, Array
from .protocol.tls import ClientTls
from .retry import Attempts, Next
from .routing import Range, RangeTable
from .session import Session
from .stored_keys import of_request

if TYPE_CHECKING:
    from .follow_ends import RangeEnds
    from .follow_shared import SharedFollows
    from .group_pulls import GroupPulls

T = TypeVar("T")
Body = dict[str, Any]
_RANGES: Final = Array(RANGE, limits.frame_array_max)
metadata_timeout_s: Final = 1.0
_RANGE_FIELDS: Final = ("id", "start", "end", "generation", "members", "leader", "state")
_PAGES_BEGUN_MAX: Final = 20
"""Restarts of a log's pages, after its ranges changed between two pages, before the client gives
up."""


class LogRoutes:
    """The client's knowledge of one log: its id and ranges."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.begin(None)
        self.shared_follows: SharedFollows | None = None
        """The streams that follows of few keys share, if there were any such follows."""
        self.range_ends: RangeEnds | None = None
        """The questions for the ends of ranges, if a follow of keys has asked."""
        self.locating: asyncio.Task[Body] | None = None
        """The request under way for the range of a key; requests for other keys wait for it
        first."""
        self.views_changed_at = float("-inf")
        """When this client last changed the views of the log, or deleted what they go with."""
        self.pulls: GroupPulls | None = None
        """The pulls of consumer groups of the log, if there were any."""

    def begin(self, log_id: int | None) -> None:
        """Forget everything known: the log was deleted, and maybe created again with that id."""
        self.log_id = log_id
        self.table = RangeTable()
        self.session = Session()
        """The positions that reads of the log have seen."""
        self.hierarchy = b""
        """The separator of the levels of keys; empty: no hierarchy. Known with the log's id."""
        self.partitions: int | None = None
        """The number of Kafka partitions; None: no partitions. Known with the log's id."""
        self.compacts = False
        """Whether the log is compacted by keys, as of the newest metadata that name the log."""
        self.spans: KeySpans | None = None
        """The keys that this client may use, from a node's newest answer; None: every key. Nodes
        do not report the ranges of other keys, so the table has holes there."""

    def check_may(self, start: bytes, end: bytes | None) -> None:
        """Raise Unauthorized where the client may not use every key of `[start, end)`."""
        if self.spans is not None and not self.spans.covers(start, end):
            raise self._not_allowed()

    def check_keys(self, keys: Sequence[bytes]) -> None:
        """Raise Unauthorized where the client may not use every one of the keys."""
        if self.spans is not None and not self.spans.has_all(keys):
            raise self._not_allowed()

    def _not_allowed(self) -> Unauthorized:
        return Unauthorized(
            f"keys of the request to log {self.name!r} are outside of the keys that the "
            "token allows; use keys or a prefix within the token's scopes, or another token"
        )


class Cluster:
    """The nodes, logs and connections of one client. All calls run on one loop."""

    def __init__(
        self,
        seeds: Sequence[Address],
        tls: ClientTls | None = None,
        token: Token = None,
        follow_bytes_max: int = limits.follow_credit_bytes_max,
    ) -> None:
        self.seeds = tuple(seeds)
        self.follow_bytes_max = follow_bytes_max
        """Bytes that a follow reads ahead of its caller."""
        self.version = 0
        self._since = 0
        """The newest version of the metadata that an answer to a change, or its refusal, named."""
        self.nodes: dict[int, Address] = {}
        self.pool = Pool(tls, token)
        self.polls = PollTurns()
        self._preferred = random.randrange(1 << 16)
        """The member for prefix reads. Each client draws its own number, which spreads the
        reads, and stays with that member: another member may lag behind the session, which costs
        a wait, and does not have the newest reads in its cache."""
        self._logs: dict[str, LogRoutes] = {}
        self._refreshing: dict[tuple[str, bytes | None], asyncio.Task[Body]] = {}

    def now(self) -> float:
        """Return the time of the clock that all deadlines use."""
        return asyncio.get_running_loop().time()

    def log(self, name: str) -> LogRoutes:
        """Return the routes of a log, empty until first used."""
        return self._logs.setdefault(name, LogRoutes(name))

    def forget(self, name: str) -> None:
        """Forget a deleted log. Handles to the log stay usable: a new log may get the same name."""
        self.log(name).begin(None)
        self.log(name).views_changed_at = self.now()

    async def close(self) -> None:
        """Close all connections."""
        for task in self._refreshing.values():
            task.cancel()
        await self.pool.close()

    # Metadata.

    async def refresh(self, name: str, deadline: float, *, key: bytes | None = None) -> Body:
        """Ask for metadata of a log at least as new as the known metadata: of all its ranges, or
        with `key` of those from the key's range on that fit an answer. Concurrent calls with the
        same question share the answer.

        Raises LogNotFound, Unavailable when no node answers, Timeout.
        """
        task = self._refreshing.get((name, key))
        if task is None:
            asked = self._log_page(name, key) if key is not None else self._whole_log(name)
            task = asyncio.create_task(asked)
            self._refreshing[name, key] = task
            task.add_done_callback(lambda done: self._refreshed((name, key), done))
        return await self._before(deadline, shared(task))

    async def overview(self, deadline: float) -> Body:
        """Return nodes and logs from the newest metadata. Raises Unavailable, Timeout."""

        async def pages() -> Body:
            answer = await self._fetch(METADATA, {})
            logs, after = list(answer["logs"]), answer.get("next")
            while after is not None:
                page = await self._fetch(METADATA, {"after": after, "nodes": False})
                logs += page["logs"]
                after = page.get("next")
            return {**answer, "logs": logs}

        return await self._before(deadline, pages())

    async def every_range(self, deadline: float) -> list[Body]:
        """Return the ranges of all logs, by id. Raises Unavailable, Timeout."""

        async def pages() -> list[Body]:
            found: list[Body] = []
            after: int | None = 0
            while after is not None:
                page = await self._fetch(RANGES, {"after": after})
                found += page["ranges"]
                after = page.get("next")
            return found

        return await self._before(deadline, pages())

    async def look(self, operation: Operation, body: Body, deadline: float, *, newer: bool) -> Body:
        """Return one page of metadata. With `newer` the node answers once it has newer metadata
        than the client, or after half a second with the same metadata. Raises Unavailable,
        Timeout."""
        at_least = self.version + newer
        return await self._before(deadline, self._fetch(operation, body, at_least=at_least))

    async def _before(self, deadline: float, asked: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout_at(deadline):
                return await asked
        except TimeoutError:
            raise Timeout(
                "no node has answered with metadata; check the addresses and the network",
                outcome="not_applied",
            ) from None

    def _refreshed(self, asked: tuple[str, bytes | None], task: "asyncio.Task[Body]") -> None:
        self._refreshing.pop(asked, None)
        retrieve(task)

    async def _log_page(self, name: str, key: bytes) -> Body:
        return await self._fetch(METADATA, {"log": name, "start_key": key}, name)

    async def _whole_log(self, name: str) -> Body:
        """Return all pages of a log. Start again when two pages do not fit together, because the
        ranges changed in between."""
        for _ in range(_PAGES_BEGUN_MAX):
            answer = await self._log_page(name, b"")
            ranges, following = list(answer["ranges"]), answer.get("next_key")
            while following is not None:
                page = await self._log_page(name, following)
                begins = [row["start"] for row in page["ranges"][:1]]
                if page["logs"] != answer["logs"] or begins != [following]:
                    break
                ranges += page["ranges"]
                following = page.get("next_key")
            else:
                return {**answer, "ranges": ranges}
        raise Unavailable(
            f"the ranges of log {name!r} changed during every attempt to read them",
            reason="no range",
        )

    async def _fetch(
        self, operation: Operation, body: Body, name: str | None = None, *, at_least: int = 0
    ) -> Body:
        """Ask the nodes in turn, until one answers with metadata that is at least as new as
        `at_least` and as the metadata of this client."""
        loop = asyncio.get_running_loop()
        last: LognodeError | None = None
        for address in self._candidates():
            deadline = loop.time() + metadata_timeout_s
            try:
                connection = await self.pool.get(address, deadline)
                full = {**body, "at_least": max(at_least, self.version)}
                answer = await connection.request(operation, full, deadline=deadline)
            except (Timeout, Unavailable) as error:
                if not error.is_answer:
                    self.pool.suspect(address)
                if last is None or (error.is_answer and not last.is_answer):
                    last = error  # an answer says more than the silence of other nodes
                continue
            except LogNotFound as error:
                last = error  # or that node does not know the log yet: ask the others too
                continue
            if answer["version"] < self.version:
                continue
            self._learn(name, answer)
            return answer
        raise last or Unavailable(
            "no node has metadata as new as this client's", reason="stale metadata"
        )

    def _candidates(self) -> list[Address]:
        known = dict.fromkeys((*self.nodes.values(), *self.seeds))
        return sorted(known, key=self.pool.rank)

    def _learn(self, name: str | None, answer: Mapping[Any, Any]) -> None:
        """Learn the nodes from a page, and with `name` the ranges of that log."""
        rows = {log["name"]: log for log in answer.get("logs", ())}
        ranges = [Range.from_wire(body) for body in answer["ranges"]]
        self.version = max(self.version, answer["version"])
        for node in answer.get("nodes", ()):
            address = _address_of(node)
            if address is None:
                self.nodes.pop(node["id"], None)
            else:
                self.nodes[node["id"]] = address
        if self.pool.cluster is None:
            self.pool.cluster = answer.get("cluster")
        if name is None or name not in rows:
            return
        log, log_id = self.log(name), rows[name]["id"]
        if log.log_id != log_id:
            log.begin(log_id)
        log.hierarchy = rows[name].get("hierarchy") or b""
        log.partitions = rows[name]["policy"].get("kafka_partitions")
        log.compacts = compacts(rows[name]["policy"].get("cleanup"))
        told = answer.get("keys")
        log.spans = None if told is None else KeySpans(map(_span_of, told))
        log.table.insert_all(
            self._without_suspect(known) for known in ranges if known.log_id == log_id
        )

    def _without_suspect(self, known: Range) -> Range:
        """Drop a leader that metadata names and that has just failed to answer this client."""
        if known.leader is None or not self._is_suspect(known.leader):
            return known
        return Range(
            known.range_id, known.generation, known.log_id, known.start, known.end, known.members
        )

    def _is_suspect(self, node: int) -> bool:
        address = self.nodes.get(node)
        return address is not None and self.pool.is_suspect(address)

    # Calls.

    async def locate(self, log: LogRoutes, key: bytes, deadline: float) -> Range:
        """Return the range of a key. Raises LogNotFound, Unavailable, and Unauthorized for a key
        that the client may not use."""
        found = log.table.find(key)
        while found is None:
            task, own = log.locating, False
            if task is None or task.done():
                own, task = True, asyncio.create_task(self.refresh(log.name, deadline, key=key))
                log.locating = task
                task.add_done_callback(retrieve)
            await self._before(deadline, shared(task))
            found = log.table.find(key)
            if found is None and own:
                log.check_keys((key,))
                raise Unavailable(
                    f"no range of log {log.name!r} serves the key now; the range may be changing",
                    reason="no range",
                )
        return found

    async def routed(self, log: LogRoutes, deadline: float) -> None:
        """Wait until the ranges of the log are known. Raises LogNotFound, Unavailable, Timeout."""
        if not len(log.table):
            await self.refresh(log.name, deadline)

    async def all_ranges(
        self, log: LogRoutes, deadline: float, span: Span = EVERY_KEY
    ) -> list[Range]:
        """Return the ranges that cover the span, in order. Raises LogNotFound, Unavailable, and
        Unauthorized for keys that the client may not use."""
        if not log.table.covers(*span):
            await self.refresh(log.name, deadline)
            if not log.table.covers(*span):
                log.check_may(*span)
                raise Unavailable(
                    f"the metadata of log {log.name!r} has no range for some keys now",
                    reason="no range",
                )
        return log.table.overlapping(*span)

    async def ranges_of(
        self, log: LogRoutes, keys: Collection[bytes], deadline: float
    ) -> list[Range]:
        """Return the ranges that have the keys, in order, all at one moment. Raises the errors
        of `locate`."""
        while True:
            for key in keys:
                await self.locate(log, key, deadline)
            found = {known.start: known for known in map(log.table.find, keys) if known is not None}
            if all(map(log.table.find, keys)):
                return [found[start] for start in sorted(found)]

    def target(self, known: Range, node: int | None = None) -> int:
        """Return the node to ask about a range. Raises NodeNotFound when `node` has no replica."""
        if node is not None:
            if node not in known.members:
                raise NodeNotFound(
                    f"node {node} has no replica of {known}; its members are "
                    f"{', '.join(map(str, known.members))}. Give the number of a member",
                    node=node,
                )
            return node
        if known.leader is not None:
            return known.leader
        return min(known.members, key=self._is_suspect)

    async def ask(
        self, known: Range, operation: Operation, body: Body, deadline: float, *, node: int
    ) -> Body:
        """Make one attempt at one node. Raises the node's error, Timeout, Unavailable."""
        full = {"range": known.range_id, "generation": known.generation, **body}
        connection: Connection | None = None
        try:
            connection = await self._connect(node, deadline)
            return await connection.request(operation, full, deadline=deadline)
        except (Timeout, Unavailable) as error:
            # A node that answers Unavailable for another reason is not a suspect.
            silent = isinstance(error, Timeout) or connection is None or connection.lost
            idle = error.fields.get("reason") == IDLE  # the node answers on a new connection
            if silent and not idle and node in self.nodes:
                self.pool.suspect(self.nodes[node])
            raise

    async def stream(
        self,
        known: Range,
        operation: Operation,
        body: Body,
        deadline: float,
        *,
        node: int,
        credit_bytes: int,
    ) -> Stream:
        """Open a stream of pushes from one node. Raises Timeout, Unavailable; the stream raises
        the rest."""
        connection = await self._connect(node, deadline)
        full = {"range": known.range_id, "generation": known.generation, **body}
        return await connection.stream(operation, full, credit_bytes=credit_bytes)

    async def ask_node(self, node: int, operation: Operation, body: Body, deadline: float) -> Body:
        """Make one attempt at a node of the metadata. Raises the node's error, Timeout,
        Unavailable."""
        connection = await self._connect(node, deadline)
        return await connection.request(operation, body, deadline=deadline)

    async def _connect(self, node: int, deadline: float) -> Connection:
        address = self.nodes.get(node)
        if address is None:
            raise Unavailable(f"the metadata has no address of node {node}", reason="unknown node")
        return await self.pool.get(address, deadline)

    def tell(self, log: LogRoutes, range_id: int, operation: Operation, body: Body) -> None:
        """Send a one-way message to the leader of a range, if a connection to the leader is
        open."""
        for known in log.table:
            if known.range_id == range_id and known.leader is not None:
                address = self.nodes.get(known.leader)
                connection = None if address is None else self.pool.peek(address)
                if connection is not None:
                    where = {"range": range_id, "generation": known.generation}
                    connection.send(operation, {**where, **body})

    def heed(self, log: LogRoutes, known: Range, tried: int, error: LognodeError) -> bool:
        """Learn from a failed attempt; return whether the table has a newer range than `known` for
        its keys.

        When many calls fail at once, one brings the news, and the others need not wait for it.
        """
        if isinstance(error, NotLeader):
            hint = error.fields.get("hint")
            if type(hint) is int and hint != tried:
                log.table.lead(known, hint)
        elif isinstance(error, GenerationMismatch):
            log.table.insert_all(known for known in _told(error) if known.log_id == log.log_id)
        return isinstance(error, (GenerationMismatch, Sealed)) and log.table.is_newer(known)

    async def prepare(
        self, log: LogRoutes, known: Range, tried: int, step: Next, deadline: float
    ) -> None:
        """Take the steps that the retry policy wants before the next attempt. Raises
        LogNotFound."""
        if step.drop:
            log.table.drop(known)
        if step.elsewhere:
            current = log.table.find(known.start)
            if current is not None and current.leader in (None, tried):
                log.table.lead(known, _after(known.members, tried))
        if step.delay_s:
            await asyncio.sleep(step.delay_s)
        if step.refresh:
            try:
                await self.refresh(log.name, deadline, key=known.start)
            except (Unavailable, Timeout):
                return  # the next attempt shows whether this matters

    def attempts(self, log: LogRoutes, operation: Operation, deadline: float) -> Attempts:
        """Return the state of a call's attempts, for `call`."""
        return Attempts(f"{operation} of log {log.name!r}", deadline, writes=operation.writes)

    async def call(
        self,
        log: LogRoutes,
        key: bytes,
        operation: Operation,
        body: Body,
        *,
        deadline: float,
        node: int | None = None,
        any_replica: bool = False,
        waits: bool = False,
        is_shown: bool = False,
        attempts: Attempts | None = None,
    ) -> tuple[Body, Range]:
        """Ask the range of `key`, wherever it is; return the answer and the range that gave it.

        `any_replica`: a prefix read. It goes to the member that this client prefers until that
        member fails; other calls go to the leader, which answers with one hop less than the other
        members. `waits`: the answer may take until the deadline. `is_shown`: the key is as users
        see it (`stored_keys`).
        `attempts` of this call, for a caller that asks for their outcome afterwards.
        """
        loop = asyncio.get_running_loop()
        if attempts is None:
            attempts = self.attempts(log, operation, deadline)
        while True:
            known, tried = None, 0
            try:
                known = await self.locate(log, key, deadline)
                if is_shown and log.partitions is not None:
                    (key, body), is_shown = of_request(log, key, body), False
                    known = await self.locate(log, key, deadline)
                anyone = any_replica and node is None
                tried = self._any_member(known) if anyone else self.target(known, node)
                full = body
                if any_replica:
                    full = {**body, "applied": log.session.position(known)}
                until = deadline if waits else attempts.attempt_deadline(loop.time())
                answer = await self.ask(known, operation, full, until, node=tried)
                self.remember(log, known, answer)
                return answer, known
            except LognodeError as error:
                news = self.heed(log, known, tried, error) if known is not None else False
                step = attempts.failed(error, loop.time(), news=news)
            if any_replica:
                self._preferred += 1
            if known is not None:
                await self.prepare(log, known, tried, step, deadline)
            elif step.delay_s:
                await asyncio.sleep(step.delay_s)

    async def call_each(
        self, log: LogRoutes, operation: Operation, body: Body, deadline: float
    ) -> None:
        """Ask the ranges of all keys that this client may use, one after another."""
        await self.routed(log, deadline)
        for start, end in [EVERY_KEY] if log.spans is None else log.spans.rows:
            at: bytes | None = start
            while at is not None and (end is None or at < end):
                _, known = await self.call(log, at, operation, body, deadline=deadline)
                at = known.end

    async def call_any(
        self, operation: Operation, body: Body, *, deadline: float, waits: bool = True
    ) -> Body:
        """Ask any node; the node forwards the controller's operations to the controller.

        `waits`: wait for the end of an operation that is in the way; otherwise raise
        OperationInProgress. A request that has `since` is refused when it arrives after later
        changes of the same records; the next attempt then names the version of these changes.
        """
        if "since" in operation.request.shape and not max(self.version, self._since):
            # Without a version the first attempt would be refused.
            with contextlib.suppress(Unavailable, Timeout):
                await self.look(METADATA, {"limit": 1}, deadline, newer=False)
        loop = asyncio.get_running_loop()
        attempts = Attempts(operation.name, deadline, writes=operation.writes)
        hint: Address | None = None
        while True:
            address = hint or self._candidates()[0]
            hint = None
            since = max(self.version, self._since)
            began = loop.time()
            try:
                until = attempts.attempt_deadline(began)
                connection = await self.pool.get(address, until)
                answer = await connection.request(
                    operation, _stamped(operation, body, since), deadline=until
                )
            except LognodeError as error:
                if self._was_overtaken(error, since) and loop.time() < deadline:
                    continue
                if isinstance(error, (Timeout, Unavailable)):
                    self.pool.suspect(address)
                if isinstance(error, OperationInProgress) and not waits:
                    raise attempts.settle(error) from None
                if isinstance(error, NotLeader):
                    told = error.fields.get("hint")
                    hint = self.nodes.get(told) if type(told) is int else None
                step = attempts.failed(error, loop.time(), took_s=loop.time() - began)
            else:
                self._learn_since(answer.get("version"))
                return answer
            if step.delay_s:
                await asyncio.sleep(step.delay_s)

    def _was_overtaken(self, error: LognodeError, since: int) -> bool:
        """Whether the attempt was refused because its `since` is too old. The next attempt has the
        version that the error names."""
        if error.fields.get("reason") != OVERTAKEN:
            return False
        self._learn_since(error.fields.get("newer"))
        return self._since > since  # otherwise the client would ask for ever

    def _learn_since(self, version: object) -> None:
        if type(version) is int and self._since < version <= INTEGER_MAX:
            self._since = version

    def _any_member(self, known: Range) -> int:
        """Return the member that this client prefers: a follower, since the leader has the
        appends. Members that just failed to answer come last."""
        at = self._preferred % len(known.members)
        turn = (*known.members[at:], *known.members[:at])
        return min(turn, key=lambda node: (self._is_suspect(node), node == known.leader))

    def remember(self, log: LogRoutes, known: Range, answer: Body) -> None:
        """Note the position of a read for later prefix reads, and the leader if a follower named
        it."""
        applied, leader = answer.get("applied"), answer.get("leader")
        if type(applied) is int:
            log.session.saw(known, applied)
        if type(leader) is int and leader != known.leader and not self._is_suspect(leader):
            log.table.lead(known, leader)


def described(answer: Body, name: str) -> dict[str, Any]:
    """Return a log with its ranges from all pages of its metadata. Raises RemoteProtocolError."""
    log = next((each for each in answer["logs"] if each["name"] == name), None)
    if log is None:
        raise RemoteProtocolError(f"the metadata of log {name!r} does not contain the log")
    ranges = [
        {field: body.get(field) for field in _RANGE_FIELDS}
        for body in answer["ranges"]
        if body["log"] == log["id"]
    ]
    return {
        "id": log["id"],
        "name": name,
        "policy": log["policy"],
        "hierarchy": log["hierarchy"],
        "ranges": sorted(ranges, key=lambda row: bytes(row["start"])),
    }


def _stamped(operation: Operation, body: Body, since: int) -> Body:
    """Return the request with `since` where the operation has this field.

    `since` was known before the attempt is sent, so that every later change has a later version.
    """
    return {**body, "since": since} if "since" in operation.request.shape else body


def _address_of(node: Mapping[str, Any]) -> Address | None:
    """Return the address of a node from the metadata, or None: the node was removed, or it
    registered an address that nobody can dial. Calls then go to the other nodes."""
    if node.get("state") == "REMOVED":
        return None
    try:
        return split_address(node["address"])
    except InvalidArgument:
        return None


def _span_of(row: Sequence[Any]) -> Span:
    start, end = row
    return start, end


def retrieve(task: "asyncio.Task[Any]") -> None:
    """Retrieve the exception of a task on which nobody waits any more, to avoid asyncio's
    warning."""
    if not task.cancelled():
        task.exception()


def _told(error: GenerationMismatch) -> list[Range]:
    """Return the ranges that the node of the error knows; an empty list where the node describes
    them wrongly: the client then asks for metadata."""
    try:
        rows = _RANGES.check(error.fields.get("ranges") or [], "ranges")
        return list(map(Range.from_wire, rows))
    except (InvalidArgument, RemoteProtocolError):
        return []


def _after(members: Sequence[int], tried: int) -> int:
    position = members.index(tried) if tried in members else -1
    return members[(position + 1) % len(members)]
