"""A client's view of a log whose ranges have leaders of consumer groups, in this process.

The view is the SDK's own, with routing and retries; only the requests to nodes are answered here.
The leaders follow the protocol and hold nothing on disk.
"""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgpack

from lognode.client.cluster import Body, Cluster, LogRoutes
from lognode.client.consumer import AsyncConsumer, Options, begin_of_group
from lognode.client.group import AsyncGroup
from lognode.client.protocol import Operation
from lognode.client.protocol.appends import PRODUCER_NUMBER
from lognode.client.protocol.cluster import PRODUCER_OPEN
from lognode.client.protocol.errors import (
    Fenced,
    GenerationMismatch,
    LognodeError,
    NotFound,
    NotLeader,
    Unavailable,
    to_wire,
)
from lognode.client.protocol.groups import (
    GROUP_APPEND,
    GROUP_CREATE,
    GROUP_DELETE,
    GROUP_LIST,
    GROUP_SETTLE,
    GROUP_TAKE,
)
from lognode.client.protocol.records import decode_batch
from lognode.client.routing import Range
from lognode.partitions.groups import GroupRecord, options_of

Fault = Callable[[Operation, Body], LognodeError | None]


@dataclass
class Lease:
    token: int
    consumer: int
    first: int
    through: int
    claimed: bool = False
    """Whether another leader made the lease."""


@dataclass
class Leader:
    """The leader of a group in a range: entries by key, positions, leases."""

    start: bytes
    end: bytes | None
    range_id: int
    generation: int = 1
    node: int = 1
    fence: int = 1
    entries: dict[bytes, list[tuple[int, bytes]]] = field(default_factory=dict)
    positions: dict[bytes, int] = field(default_factory=dict)
    failures: dict[bytes, int] = field(default_factory=dict)
    parked: dict[bytes, str] = field(default_factory=dict)
    leases: dict[bytes, Lease] = field(default_factory=dict)
    unclaimed: dict[bytes, Lease] = field(default_factory=dict)
    """Leases of the leader before, which consumers may claim."""
    settled: dict[bytes, int] = field(default_factory=dict)
    """The token that settled a key last: its holder may repeat the request."""
    before: dict[bytes, int] = field(default_factory=dict)
    """The same of the leader before, whose tokens may be claimed though nothing is left to do."""
    outputs: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    """What was appended with acknowledgements."""
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    """By producer and number of such a record, its seq."""
    full: set[bytes] = field(default_factory=set)
    """Keys for whose position there is no room."""

    @property
    def known(self) -> Range:
        return Range(self.range_id, self.generation, 1, self.start, self.end, (1, 2, 3), self.node)

    def has(self, key: bytes) -> bool:
        return self.known.contains(key)

    def undone(self, key: bytes) -> list[tuple[int, bytes]]:
        at = self.positions.get(key, 1)
        return [entry for entry in self.entries.get(key, ()) if entry[0] >= at]


class GroupView(Cluster):
    """See the module. `asked` has the requests to leaders, in order."""

    def __init__(self, cuts: tuple[bytes, ...] = ()) -> None:
        super().__init__([])
        self._tokens = itertools.count(100)
        self._producers = itertools.count(5)
        self.leaders = [
            Leader(start, end, at)
            for at, (start, end) in enumerate(zip([b"", *cuts], [*cuts, None], strict=True), 1)
        ]
        self.routes: LogRoutes = self.log("orders")
        self.routes.begin(1)
        self.records: dict[str, GroupRecord] = {}
        self.asked: list[tuple[Operation, Body]] = []
        self.faults: list[Fault] = []
        """Each is asked before a request is served; an error that it returns is the answer."""
        self.lose: list[Fault] = []
        """Each is asked after a request was served; an error takes the place of the answer."""
        self.news = asyncio.Condition()
        self.learn()

    def learn(self) -> None:
        """Let the client know the present ranges."""
        self.routes.table.insert_all(leader.known for leader in self.leaders)

    def append(self, key: bytes, *values: bytes) -> None:
        (leader,) = (each for each in self.leaders if each.has(key))
        own = leader.entries.setdefault(key, [])
        for value in values:
            own.append((own[-1][0] + 1 if own else 1, value))

    async def wake(self) -> None:
        async with self.news:
            self.news.notify_all()

    def elect(self, leader: Leader, *, fence: int = 1) -> None:
        """Another node leads, which has no leases; consumers may claim theirs."""
        leader.node = leader.node % 3 + 1
        leader.fence += fence
        leader.unclaimed, leader.leases = leader.leases, {}
        leader.before, leader.settled = leader.settled, {}

    def split(self, at: bytes) -> None:
        (old,) = (each for each in self.leaders if each.has(at))
        right = Leader(at, old.end, len(self.leaders) + 10, 2, old.node, old.fence + 1)
        for mine, other in (
            (old.entries, right.entries), (old.positions, right.positions),
            (old.parked, right.parked), (old.leases, right.leases),
        ):  # fmt: skip
            moving = [key for key in mine if key >= at]
            other.update({key: mine.pop(key) for key in moving})  # type: ignore[attr-defined]
        right.numbers = dict(old.numbers)
        old.end, old.generation, old.fence = at, 2, old.fence + 1
        self.leaders.insert(self.leaders.index(old) + 1, right)

    # What the SDK uses.

    async def refresh(self, name: str, deadline: float, *, key: bytes | None = None) -> Body:
        self.learn()
        return {"ranges": [], "logs": []}

    async def call_any(
        self, operation: Operation, body: Body, *, deadline: float, waits: bool = True
    ) -> Body:
        asked = operation.request.check(body)
        answer: Body
        if operation is GROUP_LIST:
            found = [record for name, record in sorted(self.records.items())
                     if asked["name"] in (None, name)]  # fmt: skip
            answer = {"groups": [record.to_body() for record in found]}
        elif operation is PRODUCER_OPEN:
            answer = {"id": next(self._producers), "epoch": 1}
        elif operation is GROUP_CREATE:
            name = asked["name"]
            assert name not in self.records
            record = GroupRecord(len(self.records) + 7, 1, name, created_ms=5, **options_of(asked))
            self.records[name] = record
            answer = {**record.to_body(), "created": True}
        else:
            assert operation is GROUP_DELETE
            answer = {"id": self.records.pop(asked["name"]).group_id}
        return operation.check_answer(answer)

    async def ask(
        self, known: Range, operation: Operation, body: Body, deadline: float, *, node: int
    ) -> Body:
        await asyncio.sleep(0)
        full = {"range": known.range_id, "generation": known.generation, **body}
        checked = operation.request.check(full)
        self.asked.append((operation, checked))
        for fault in list(self.faults):
            error = fault(operation, checked)
            if error is not None:
                raise error
        leader = self._leader(known)
        if node != leader.node:
            raise NotLeader("another node leads", hint=leader.node)
        known_groups = {record.group_id for record in self.records.values()}
        if "group" in checked and checked["group"] not in known_groups:
            raise NotFound("the group was deleted", group=str(checked["group"]))
        if operation is GROUP_TAKE:
            answer = await self._take(leader, checked)
        elif operation is GROUP_SETTLE:
            answer = self._settle(leader, checked)
            await self.wake()
        elif operation is GROUP_APPEND:
            answer = self._append(leader, checked)
            await self.wake()
        elif operation is PRODUCER_NUMBER:
            wanted = checked["producer"], checked["number"]
            answer = {"applied": wanted in leader.numbers, "seq": leader.numbers.get(wanted)}
        else:
            raise AssertionError(operation)
        for fault in list(self.lose):
            error = fault(operation, checked)
            if error is not None:
                raise error
        return operation.check_answer(msgpack.unpackb(msgpack.packb(answer), strict_map_key=False))

    def _leader(self, known: Range) -> Leader:
        for leader in self.leaders:
            if (leader.range_id, leader.generation) == (known.range_id, known.generation):
                return leader
        raise GenerationMismatch("another generation", ranges=[])

    # Leaders.

    async def _take(self, leader: Leader, body: Body) -> Body:
        (group,) = (each for each in self.records.values() if each.group_id == body["group"])
        answer: Body = {
            "fence": leader.fence, "lease_ms": group.lease_ms, "refused": [], "keys": [],
            "tokens": [], "deliveries": [], "counts": [], "seqs": [], "timestamps": [],
            "values": [],
        }  # fmt: skip
        if body["fence"] != leader.fence and body["holds"] != []:
            return answer
        if body["holds"] is not None:
            answer["refused"] = self._claim(leader, body["consumer"], body["holds"])
        self._give(leader, body, answer)
        if not answer["keys"] and body["wait_ms"]:
            node, generation = leader.node, leader.generation

            def ready() -> bool:
                self._give(leader, body, answer)
                return bool(answer["keys"]) or (leader.node, leader.generation) != (
                    node, generation,
                )  # fmt: skip

            try:
                async with asyncio.timeout(body["wait_ms"] / 1000), self.news:
                    await self.news.wait_for(ready)
            except TimeoutError:
                return answer
            if leader.node != node:
                raise NotLeader("another node leads now", hint=leader.node)
            if leader.generation != generation:
                raise GenerationMismatch("another generation", ranges=[])
        return answer

    def _claim(self, leader: Leader, consumer: int, holds: list[Any]) -> list[bytes]:
        named = dict(map(tuple, holds))
        for key, lease in list(leader.leases.items()):
            if lease.consumer == consumer and named.get(key) != lease.token:
                del leader.leases[key]
        for key, token in named.items():
            if key in leader.unclaimed and leader.unclaimed[key].token == token:
                lease = leader.leases[key] = leader.unclaimed.pop(key)
                lease.first, lease.claimed = leader.positions.get(key, lease.first), True
            elif leader.before.get(key) == token:
                at = leader.positions[key]
                leader.leases[key] = Lease(token, consumer, at, at, claimed=True)
        return [key for key, token in named.items()
                if (lease := leader.leases.get(key)) is None or lease.token != token]  # fmt: skip

    def _give(self, leader: Leader, body: Body, answer: Body) -> None:
        for key in sorted(leader.entries):
            undone = leader.undone(key)
            if len(answer["keys"]) >= body["count"]:
                return
            taken = key in leader.leases or key in leader.unclaimed or key in leader.parked
            if taken or not undone:
                continue
            token = next(self._tokens)
            leader.leases[key] = Lease(token, body["consumer"], undone[0][0], undone[-1][0] + 1)
            answer["keys"].append(key)
            answer["tokens"].append(token)
            answer["deliveries"].append(1 + leader.failures.get(key, 0))
            answer["counts"].append(len(undone))
            answer["seqs"] += [seq for seq, _ in undone]
            answer["timestamps"] += [5 * seq for seq, _ in undone]
            answer["values"] += [value for _, value in undone]

    def _settle(self, leader: Leader, body: Body) -> Body:
        refused: list[Any] = []

        def held(key: bytes, token: int) -> Lease | None:
            if not leader.has(key):
                raise GenerationMismatch("a key is elsewhere", ranges=[])
            lease = leader.leases.get(key)
            if lease is not None and (lease.token, lease.consumer) == (token, body["consumer"]):
                return lease
            if leader.settled.get(key) == token:
                return None
            refused.append([key, "lease", leader.positions.get(key, 1)])
            return None

        for key, token, through in body["acks"]:
            lease = held(key, token)
            if key in leader.full:
                refused.append([key, "full", leader.positions.get(key, 1)])
            elif lease is not None and (
                through > lease.through or (lease.claimed and through <= lease.first)
            ):
                refused.append([key, "position", leader.positions.get(key, 1)])
            elif lease is not None:
                leader.positions[key] = through
                leader.failures.pop(key, None)
                if through == lease.through:
                    leader.settled[key] = leader.leases.pop(key).token
        for key, token, _, error in body["releases"]:
            if held(key, token) is not None:
                leader.settled[key] = leader.leases.pop(key).token
                self._failed(leader, key, error)
        for key, token, error in body["rejects"]:
            if held(key, token) is not None:
                leader.settled[key] = leader.leases.pop(key).token
                leader.parked[key] = error
        for key, token in body["extends"]:
            held(key, token)
        if body["leave"]:
            for key, lease in list(leader.leases.items()):
                if lease.consumer == body["consumer"]:
                    del leader.leases[key]
        return {"refused": refused}

    def _append(self, leader: Leader, body: Body) -> Body:
        batch = decode_batch(body["batch"])
        assert batch.atomic
        if not all(map(leader.has, (*batch.keys, *(row[0] for row in body["acks"])))):
            raise GenerationMismatch("a key is elsewhere", ranges=[])
        if (batch.producer, batch.numbers[0]) in leader.numbers:
            seqs = [leader.numbers[batch.producer, number] for number in batch.numbers]
            result = {"status": "ok", "seqs": seqs, "duplicates": list(range(batch.count))}
            return {"result": result, "refused": []}
        refused = []
        for key, token, first, through in body["acks"]:
            lease, position = leader.leases.get(key), leader.positions.get(key, 1)
            if lease is None or (lease.token, lease.consumer) != (token, body["consumer"]):
                refused.append([key, "lease", position])
            elif position > first or through > lease.through:
                refused.append([key, "position", position])
        if refused:
            error = Fenced("the consumer has lost a key", key=refused[0][0])
            return {"result": {"status": "error", "error": to_wire(error)}, "refused": refused}
        for key, _, _, through in body["acks"]:
            leader.positions[key] = through
            leader.settled[key] = leader.leases.pop(key).token
        first_seq = 100 + len(leader.outputs)
        for at, (key, value) in enumerate(zip(batch.keys, batch.values(), strict=True)):
            leader.outputs.append((key, value))
            leader.numbers[batch.producer, batch.numbers[at]] = first_seq + at
        return {"result": {"status": "ok", "first_seq": first_seq, "timestamp_ms": 9},
                "refused": []}  # fmt: skip

    def _failed(self, leader: Leader, key: bytes, error: str) -> None:
        (group,) = self.records.values()
        if error:
            leader.failures[key] = leader.failures.get(key, 0) + 1
            if leader.failures[key] >= group.max_deliveries:
                leader.parked[key] = error

    # What tests use.

    def consumer(self, name: str = "billing", **options: Any) -> AsyncConsumer:
        """A consumer, as `AsyncLog.consume` makes one."""
        given = {"prefix": None, "pattern": None, "keys_max": 64, "bytes_max": 1 << 20,
                 "hold_s": 600.0, "timeout": 5.0}  # fmt: skip
        group = {"lease_ms": 1_000, **begin_of_group(options.pop("start", None))}
        for field_ in ("max_deliveries", "on_dead", "lease_ms", "waits"):
            if field_ in options:
                group[field_] = options.pop(field_)
        return AsyncConsumer(self, self.routes, name, Options(group, **{**given, **options}))

    def group(self, name: str = "billing") -> AsyncGroup:
        return AsyncGroup(self, self.routes, name, timeout=5.0)

    def count(self, operation: Operation) -> int:
        return sum(op is operation for op, _ in self.asked)


def once(operation: Operation, error: LognodeError) -> Fault:
    """A fault of the next request of an operation."""
    left = [error]

    def fault(asked: Operation, _: Body) -> LognodeError | None:
        return left.pop() if asked is operation and left else None

    return fault


def lost() -> Unavailable:
    """The error of a connection that ends before the answer."""
    return Unavailable("the connection has ended", outcome="unknown")
