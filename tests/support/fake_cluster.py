"""A cluster of scripted nodes in one process, for the client's tests.

Ranges are lists in memory, deduplication is the state machine's own `Producers`, so that what the
client's retries do is judged by the real rules. `faults` are called at each append, before and
after it is applied: they may raise an error to answer, or `Drop` to lose the connection.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import fake_cursors

from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.listener import Listener
from lognode.client.accepting.request import Request
from lognode.client.protocol import Operation, by_number
from lognode.client.protocol.appends import (
    APPEND,
    DELETE_KEYS,
    FENCE,
    LEASE_RELEASE,
    LEASE_TAKE,
    PRODUCER_CLOSE,
    PRODUCER_NUMBER,
    TRIM,
)
from lognode.client.protocol.chunks import Chunk
from lognode.client.protocol.cluster import (
    ALTER_LOG,
    CREATE_LOG,
    METADATA,
    NODE_DRAIN,
    NODE_REMOVE,
    PRODUCER_OPEN,
    RANGE_MOVE,
    RANGE_RECOVER,
    RANGE_RECOVERY,
    RANGE_SPLIT,
    RANGES,
    STATUS,
)
from lognode.client.protocol.errors import (
    GenerationMismatch,
    LogExists,
    LognodeError,
    LogNotFound,
    NotFound,
    NotLeader,
    RangeNotFound,
    Sealed,
    SequenceMismatch,
    Unavailable,
    Unsupported,
    to_wire,
)
from lognode.client.protocol.key_spans import KeySpans
from lognode.client.protocol.reads import (
    COUNT_ENTRIES,
    EXPORT,
    FOLLOW,
    KEYS,
    LATEST,
    LAYOUT,
    READ_SPAN,
    RESOLVE,
)
from lognode.client.protocol.records import EXPECT_ANY, Batch, check_limits, decode_batch
from lognode.client.protocol.wire import Hello, Welcome
from lognode.statemachine.cursors import Cursors
from lognode.statemachine.producers import Producers


class Drop(Exception):
    """Lose the connection instead of answering."""


@dataclass
class Stored:
    key: bytes
    seq: int
    timestamp_ms: int
    headers: Any
    value: bytes | None
    snapshot: bool = False


@dataclass
class FakeRange:
    range_id: int
    generation: int
    log_id: int
    start: bytes
    end: bytes | None
    leader: int
    members: tuple[int, ...]
    entries: list[Stored] = field(default_factory=list)
    producers: Producers = field(default_factory=Producers)
    next_seq: int = 1
    state: str = "ACTIVE"
    operation: int = 0
    file_seqs: int = 8
    """Entries lie in files of so many seqs."""
    earliest: int = 1
    """What retention has left begins there."""
    cursors: Cursors = field(default_factory=fake_cursors.new)
    leases: dict[str, tuple[bytes, int, list[Stored]]] = field(default_factory=dict)
    """By name: start, through which seq, and what is held."""

    def contains(self, key: bytes) -> bool:
        return self.start <= key and (self.end is None or key < self.end)

    def to_wire(self) -> dict[str, Any]:
        return {
            "id": self.range_id, "generation": self.generation, "log": self.log_id,
            "start": self.start, "end": self.end, "members": list(self.members),
            "leader": self.leader, "operation": self.operation, "state": self.state,
        }  # fmt: skip

    def last_seq(self, key: bytes) -> int:
        return max((e.seq for e in self.entries if e.key == key), default=0)

    def apply(self, data: bytes) -> dict[str, Any]:
        batch: Batch = decode_batch(data)
        check_limits(batch)
        if not all(map(self.contains, batch.keys)):
            raise GenerationMismatch("outside", ranges=[])
        selected = self.producers.check(batch)
        if isinstance(selected, LognodeError):
            raise selected
        positions = list(range(batch.count)) if selected is None else selected
        first, values, headers = self.next_seq, batch.values(), batch.headers()
        refused: dict[int, int] = {}
        for i in positions:
            expected = batch.expects[i] if batch.expects is not None else EXPECT_ANY
            actual = EXPECT_ANY if expected == EXPECT_ANY else self.last_seq(batch.keys[i])
            if actual != expected:
                if not batch.each:
                    assert self.next_seq == first, "a batch with one fate is of one record here"
                    raise SequenceMismatch(
                        "mismatch", key=batch.keys[i], expected=expected, actual=actual
                    )
                refused[i] = actual
                continue
            self.entries.append(
                Stored(batch.keys[i], self.next_seq, 1000 + self.next_seq,
                       headers[i] if headers else None, values[i], i in batch.snapshots)
            )  # fmt: skip
            self.next_seq += 1
        fresh = [i for i in positions if i not in refused]
        self.producers.record(batch, [batch.numbers[i] for i in fresh], first, 1000)
        if len(fresh) == batch.count:
            return {"status": "ok", "first_seq": first, "timestamp_ms": 1000}
        return {
            "status": "ok", "seqs": self.producers.duplicate_seqs(batch), "timestamp_ms": 1000,
            "duplicates": [i for i in range(batch.count) if i not in {*fresh, *refused}],
            "refused": list(refused), "actual": list(refused.values()),
        }  # fmt: skip


Fault = Callable[["FakeNode", Request, str], None]


class FakeCluster:
    """Nodes 1..n and the ranges that they share, as if replication took no time."""

    def __init__(self) -> None:
        self.nodes: dict[int, FakeNode] = {}
        self.ranges: list[FakeRange] = []
        self.logs: dict[str, int] = {}
        self.policies: dict[str, dict[str, Any]] = {}
        self.hierarchy: bytes | None = None
        """The separator of all logs' hierarchies."""
        self.version = 1
        self.next_range = 1
        self.producers: dict[str, list[int]] = {}
        self.next_producer = 1
        self.faults: list[Fault] = []
        self.closed_producers: list[int] = []
        self.page_ranges = 1 << 20
        """How many ranges an answer about metadata has."""
        self.spans: KeySpans | None = None
        """The keys that clients may use; None: every key. Nodes show no bounds of other keys."""
        self.hide_leaders = False
        """Neither metadata nor refusals name the leader."""
        self.requests: list[tuple[int, Operation, dict[str, Any]]] = []
        self.changed = asyncio.Event()

    @property
    def address(self) -> str:
        return "lognode://" + ",".join(node.address for node in self.nodes.values())

    def create(self, name: str, split_at: tuple[bytes, ...] = ()) -> None:
        self.logs[name] = log_id = len(self.logs) + 1
        bounds = [b"", *split_at, None]
        members = tuple(self.nodes)
        for start, end in pairwise(bounds):
            self.ranges.append(
                FakeRange(self.next_range, 1, log_id, start or b"", end,
                          members[self.next_range % len(members)], members)
            )  # fmt: skip
            self.next_range += 1
        self.version += 1

    def range_of(self, key: bytes) -> FakeRange:
        return next(known for known in self.ranges if known.contains(key))

    def split(self, at: bytes, *, quietly: bool = False) -> None:
        """Seal the range that holds `at` and create its two children, state copied."""
        parent = self.range_of(at)
        self.ranges.remove(parent)
        for start, end in ((parent.start, at), (at, parent.end)):
            child = replace(
                parent, range_id=self.next_range, generation=parent.generation + 1, start=start,
                end=end, producers=Producers.from_wire(parent.producers.to_wire()),
            )  # fmt: skip
            child.entries = [e for e in parent.entries if child.contains(e.key)]
            child.cursors = fake_cursors.within(parent.cursors, start, end)
            child.leases = {
                name: (max(first, start), through, [e for e in held if child.contains(e.key)])
                for name, (first, through, held) in parent.leases.items()
            }
            self.ranges.append(child)
            self.next_range += 1
        if not quietly:
            self.version += 1
        self.notify()

    def move(self, body: dict[str, Any]) -> dict[str, Any]:
        """Begin one; a test ends it."""
        (known,) = (each for each in self.ranges if each.range_id == body["range"])
        known.operation = 7
        self.version += 1
        members = sorted({*known.members, body["to"]} - {body["from"]})
        return {"operation": 7, "generation": known.generation + 1, "members": members,
                "version": self.version}  # fmt: skip

    def plan_split(self, body: dict[str, Any]) -> dict[str, Any]:
        """Begin one; a test ends it."""
        known = self.range_of(body["at"])
        known.operation = 7
        self.version += 1
        return {"operation": 7, "range": known.range_id, "generation": known.generation + 1,
                "new_range": self.next_range, "version": self.version}  # fmt: skip

    def recover(self, body: dict[str, Any]) -> dict[str, Any]:
        """Begin one; a test ends it."""
        (known,) = (each for each in self.ranges if each.range_id == body["range"])
        known.operation = 7
        self.version += 1
        return {"operation": 7, "generation": known.generation + 1, "version": self.version}

    def leave(self, op: Operation, body: dict[str, Any]) -> dict[str, Any]:
        """A node drains or is removed; a test takes its replicas away."""
        node, self.version = self.nodes[body["node"]], self.version + 1
        left = "ACTIVE" if body.get("undo") else "DRAINING"
        node.state = left if op == NODE_DRAIN else "REMOVED"
        return {"node": node.node_id, "state": node.state, "replicas": node.replicas,
                "version": self.version}  # fmt: skip

    def lead(self, known: FakeRange, node: int) -> None:
        known.leader = node
        self.notify()

    def entries(self) -> list[Stored]:
        return [entry for known in self.ranges for entry in known.entries]

    def values(self, key: bytes) -> list[bytes | None]:
        return [e.value for e in self.range_of(key).entries if e.key == key]

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def count(self, op: Operation) -> int:
        return sum(1 for _, asked, _ in self.requests if asked == op)


class FakeNode:
    """One listener; serves what the ranges' leaders serve."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.listener: Listener | None = None
        self.connections: set[ServerConnection] = set()
        self.failures: list[Exception] = []
        self.refusals: list[LognodeError] = []
        self.address = ""
        self.state = "ACTIVE"
        self.replicas = 0

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, cluster="fake", node=self.node_id)

    def believe(self, connection: ServerConnection, hello: Hello) -> None:
        return

    def opened(self, connection: ServerConnection) -> None:
        self.connections.add(connection)

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        self.connections.discard(connection)

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        operation = by_number(number)
        if operation is None:
            raise Unsupported(f"no operation {number}")
        return operation

    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None:
        if operation == PRODUCER_CLOSE:
            self.cluster.closed_producers.append(body["id"])

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        self.refusals.append(error)

    def failed(self, number: int, error: Exception) -> None:
        self.failures.append(error)

    async def request(self, request: Request) -> dict[str, Any] | None:
        self.cluster.requests.append((self.node_id, request.operation, request.body))
        try:
            return await self.serve(request)
        except Drop:
            request.connection.abort(Unavailable("dropped by the test"))
            return None

    async def stop(self) -> None:
        if self.listener is not None:
            await self.listener.close()
            self.listener = None

    def fault(self, request: Request, when: str) -> None:
        for fault in list(self.cluster.faults):
            fault(self, request, when)

    async def serve(self, request: Request) -> dict[str, Any] | None:
        body, op, cluster = request.body, request.operation, self.cluster
        if op == METADATA:
            self.fault(request, "metadata")
            if body["log"] is not None and body["log"] not in cluster.logs:
                raise LogNotFound(f"no log {body['log']!r}", log=body["log"])
            return self.metadata() if body["log"] is None else self.log_page(body)
        if op == RANGES:
            self.fault(request, "metadata")
            return self.ranges_page(body)
        if op == CREATE_LOG:
            if body["name"] in cluster.logs:
                if body["exist_ok"]:
                    return {"log": 1}
                raise LogExists(f"log {body['name']!r} exists", log=body["name"])
            cluster.create(body["name"], tuple(body["split_at"] or ()))
            return {"log": 1}
        if op == ALTER_LOG:
            policy = cluster.policies.setdefault(body["name"], {})
            policy.update(body["changes"])
            return {"log": cluster.logs[body["name"]], "policy": policy}
        if op == PRODUCER_OPEN:
            self.fault(request, "producer")
            return self.open_producer(body["name"])
        if op == STATUS:
            return {"nodes": []}
        if op == RANGE_MOVE:
            self.fault(request, "move")
            return cluster.move(body)
        if op == RANGE_SPLIT:
            self.fault(request, "split")
            return cluster.plan_split(body)
        if op == RANGE_RECOVERY:
            return {"range": body["range"]}
        if op == RANGE_RECOVER:
            self.fault(request, "recover")
            return cluster.recover(body)
        if op in (NODE_DRAIN, NODE_REMOVE):
            self.fault(request, "node")
            return cluster.leave(op, body)
        known = self.find(body)
        if op == APPEND:
            return self.append(request, known)
        if op in (TRIM, DELETE_KEYS):
            return self.remove(request, known)
        if op == LEASE_TAKE:
            self.fault(request, "lease")
            return self.lease(known, body)
        if op == LEASE_RELEASE:
            known.leases.pop(body["lease"], None)
            return {}
        if op == FENCE:
            known.producers.fence(body["id"], body["epoch"], body["epoch"], 0)
            return {}
        if op == FOLLOW:
            self.fault(request, "follow")
            await self.follow(request, known)
            return None
        if op in fake_cursors.HANDLERS:
            self.fault(request, "cursor")
            return await fake_cursors.serve(op, body, known)
        return self.read(op, body, known)

    def metadata(self) -> dict[str, Any]:
        cluster = self.cluster
        return {
            "cluster": "fake", "version": cluster.version,
            "nodes": [{"id": n.node_id, "address": n.address, "state": n.state,
                       "replicas": n.replicas} for n in cluster.nodes.values()],
            "logs": [{"id": i, "name": name, "policy": cluster.policies.get(name, {}),
                      "hierarchy": cluster.hierarchy}
                     for name, i in cluster.logs.items()],
            "ranges": [self.describe(known) for known in cluster.ranges],
        }  # fmt: skip

    def log_page(self, body: dict[str, Any]) -> dict[str, Any]:
        """Ranges of a log, from the one on that has the key; all where they fit."""
        whole, size = self.metadata(), self.cluster.page_ranges
        log_id = self.cluster.logs[body["log"]]
        ranges = sorted(
            (known for known in self.cluster.ranges if known.log_id == log_id),
            key=lambda known: known.start,
        )
        first = 0
        if len(ranges) > size:
            before = [known for known in ranges if known.start <= body["start_key"]]
            first = len(before) - 1
        page, rest = ranges[first : first + size], ranges[first + size :]
        spans = self.cluster.spans
        if spans is not None:
            whole["keys"] = spans.rows
        return {
            **whole,
            "logs": [log for log in whole["logs"] if log["id"] == log_id],
            "ranges": self.shown(page),
            "next_key": rest[0].start if rest else None,
        }

    def ranges_page(self, body: dict[str, Any]) -> dict[str, Any]:
        """Ranges of all logs by id, or one of them."""
        cluster = self.cluster
        wanted, after = body.get("range"), body.get("after", 0)
        ranges = sorted(
            (r for r in cluster.ranges if wanted in (None, r.range_id) and r.range_id > after),
            key=lambda known: known.range_id,
        )
        page = ranges[: cluster.page_ranges]
        return {
            "version": cluster.version, "ranges": list(map(self.describe, page)),
            "next": page[-1].range_id if len(page) < len(ranges) else None,
        }  # fmt: skip

    def shown(self, ranges: list[FakeRange]) -> list[dict[str, Any]]:
        """The descriptors, cut to the keys that clients may use."""
        spans, rows = self.cluster.spans or KeySpans([(b"", None)]), []
        for known in ranges:
            bounds = spans.clipped(known.start, known.end)
            if bounds is not None:
                rows.append({**self.describe(known), "start": bounds[0], "end": bounds[1]})
        return rows

    def describe(self, known: FakeRange) -> dict[str, Any]:
        leader = None if self.cluster.hide_leaders else known.leader
        return {**known.to_wire(), "leader": leader}

    def open_producer(self, name: str | None) -> dict[str, Any]:
        cluster = self.cluster
        if name is None or name not in cluster.producers:
            identity = [cluster.next_producer, 1]
            cluster.next_producer += 1
            if name is not None:
                cluster.producers[name] = identity
        else:
            identity = cluster.producers[name]
            identity[1] += 1
        return {"id": identity[0], "epoch": identity[1]}

    def find(self, body: dict[str, Any]) -> FakeRange:
        for known in self.cluster.ranges:
            if known.range_id == body["range"]:
                if known.generation != body["generation"]:
                    raise GenerationMismatch("other generation", ranges=self.shown([known]))
                if known.state == "SEALING":
                    raise Sealed("sealed")
                elsewhere = body.get("node") is None and body.get("consistency") != "prefix"
                if elsewhere and known.leader != self.node_id:
                    hint = None if self.cluster.hide_leaders else known.leader
                    raise NotLeader("not the leader", hint=hint)
                return known
        children = self.shown(self.cluster.ranges)
        if body.get("generation") == 1:
            raise GenerationMismatch("split", ranges=children)
        raise RangeNotFound("unknown range", range=body["range"])

    def append(self, request: Request, known: FakeRange) -> dict[str, Any]:
        self.fault(request, "before")
        results = []
        for data in request.body["batches"]:
            try:
                results.append(known.apply(data))
            except LognodeError as error:
                results.append({"status": "error", "error": to_wire(error)})
        self.cluster.notify()
        self.fault(request, "after")
        return {"results": results}

    def remove(self, request: Request, known: FakeRange) -> dict[str, Any]:
        self.fault(request, "before")
        for key, before in request.body["keys"]:
            known.entries = [e for e in known.entries if e.key != key or e.seq >= before]
        self.fault(request, "after")
        return {}

    def lease(self, known: FakeRange, body: dict[str, Any]) -> dict[str, Any]:
        start, end, through = body["start_key"], body["end_key"], body["through"]
        until = min((e for e in (end, known.end) if e is not None), default=None)
        if body["lease"] not in known.leases:
            if body["renew"]:
                raise NotFound("the lease has ended")
            held = [e for e in known.entries if e.seq <= through]
            known.leases[body["lease"]] = (start, through, held)
        return {"end_key": until, "expires_ms": 1_000_000 + body["lease_ms"]}

    def read(self, op: Operation, body: dict[str, Any], known: FakeRange) -> dict[str, Any]:
        if op == PRODUCER_NUMBER:
            row = known.producers.rows.get(body["producer"])
            seq = row.seq_of(body["number"]) if row is not None else None
            return {"applied": seq is not None, "seq": seq}
        if op == KEYS:
            after = body["start_after"]
            keys = sorted({e.key for e in known.entries if e.key.startswith(body["prefix"])})
            left = [key for key in keys if after is None or key > after]
            some = left[: body["limit"]]
            return {"keys": some, "more": some != left, "after": some[-1] if some else after}
        if op == LAYOUT:
            sizes: dict[bytes, int] = {}
            for entry in known.entries:
                sizes[entry.key] = sizes.get(entry.key, 0) + len(entry.value or b"")
            first, last = body["start_key"], body["end_key"]
            return {"weights": [[key, size] for key, size in sorted(sizes.items())
                                if key >= first and (last is None or key < last)]}  # fmt: skip
        if op == RESOLVE:
            how = body["start"]
            if how == "earliest":
                return {"seq": known.earliest}
            if how == "latest":
                return {"seq": known.next_seq}
            if how == "snapshot":
                below = body.get("end") or known.next_seq
                history = [e for e in known.entries if e.key == body["key"] and e.seq < below]
                page_of = history[-3:]  # small pages, as below
                marked = [e.seq for e in page_of if e.snapshot]
                if marked:
                    return {"seq": marked[-1], "more": False}
                more = len(page_of) < len(history)
                return {"seq": page_of[0].seq if more else 1, "more": more}
            if how[0] == "ts":
                later = [e.seq for e in known.entries if e.timestamp_ms >= how[1]]
                return {"seq": min(later, default=known.next_seq)}
            own = [e.seq for e in known.entries if e.key == body["key"]]
            return {"seq": own[-how[1] :][0] if own else 1}
        end, entries = body.get("end"), known.entries
        if body.get("as_of") is not None:
            if body["as_of"] not in known.leases:
                raise NotFound("no lease of that name")
            entries = known.leases[body["as_of"]][2]
        if op == EXPORT:
            return export(entries, body, known.file_seqs)
        if op == READ_SPAN:
            first, last = body["start_key"], body["end_key"]
            behind = [
                e for e in entries
                if e.seq >= body["start"] and e.key >= first and (last is None or e.key < last)
            ]  # fmt: skip
            more = len(behind) > 3
            return page(behind[:3], behind[3].seq if more else 1, more)
        found = [
            e for e in entries
            if e.key == body["key"] and e.seq >= body.get("start", 1)
            and (end is None or e.seq < end)
        ]  # fmt: skip
        if op == COUNT_ENTRIES:
            return {"count": len(found)}
        if op == LATEST:
            return page(found[-1:], 1, False)
        if body["reverse"]:
            found.reverse()
        cut = found[: min(body["limit"], 3)]  # small pages, so that paging is tested
        at = cut[-1].seq + (0 if body["reverse"] else 1) if cut else 1
        return page(cut, at, len(cut) < len(found))

    async def follow(self, request: Request, known: FakeRange) -> None:
        body = request.body
        at, keys = body["from_seq"], dict(body["keys"] or {})
        first = True
        while known in self.cluster.ranges and known.leader == self.node_id:
            changed = self.cluster.changed
            if body["keys"] is not None:
                new = [e for e in known.entries if e.seq >= keys.get(e.key, 1 << 60)][:3]
                keys.update((e.key, e.seq + 1) for e in new)
            else:
                end = body["end_key"]
                new = [
                    e for e in known.entries
                    if e.seq >= at and e.key >= body["start_key"] and (end is None or e.key < end)
                ][:3]  # fmt: skip
            if new or first:
                at = new[-1].seq + 1 if new else at
                await request.wait_credit()
                caught_up = len(new) < 3
                part = page(new, at, not caught_up)
                request.push({"page": part, "caught_up": caught_up, "next": at})
                first = False
            else:
                await changed.wait()
        raise (
            NotLeader("no longer", hint=known.leader)
            if (known in self.cluster.ranges)
            else GenerationMismatch("split", ranges=[r.to_wire() for r in self.cluster.ranges])
        )


def export(entries: list[Stored], body: dict[str, Any], file_seqs: int) -> dict[str, Any]:
    """Pages of up to three, file by file in the order of key, as `BandReads` has them."""
    start, end = body["start_key"], body["end_key"]
    own = [e for e in entries if e.key >= start and (end is None or e.key < end)]
    bands, following = body["position"] or [[], 1]
    bands = [tuple(band) for band in bands]
    found: list[Stored] = []
    size = min(3, body["limit"])
    while len(found) < size:
        if not bands:
            first = min((e.seq for e in own if e.seq >= following), default=None)
            if first is None:
                return exported(found) | {"position": None}
            cut = first - first % file_seqs + file_seqs
            bands, following = [(following, cut, b"", 0)], cut
        first, last, key, seq = bands.pop(0)
        cut = first - first % file_seqs + file_seqs
        if cut < last:
            bands[:0] = [(first, cut, key, seq), (cut, last, key, seq)]
            continue
        rows = [e for e in own if first <= e.seq < last and (e.key, e.seq) >= (key, seq)]
        rows.sort(key=lambda e: (e.key, e.seq))
        room = size - len(found)
        found += rows[:room]
        if rows[room:]:
            bands.insert(0, (first, last, rows[room].key, rows[room].seq))
    return exported(found) | {"position": [list(map(list, bands)), following]}


def exported(entries: list[Stored]) -> dict[str, Any]:
    own = page(entries, 1, False)
    chunk = Chunk.of(
        [e.key for e in entries], own["seqs"], own["timestamps"], own["values"],
        own["headers"] or {}, own["snapshots"] or [],
    )  # fmt: skip
    return {"chunks": [chunk] if entries else []}


def page(entries: list[Stored], at: int, more: bool) -> dict[str, Any]:
    keys = {e.key for e in entries}
    return {
        "keys": keys.pop() if len(keys) == 1 else [e.key for e in entries],
        "seqs": [e.seq for e in entries],
        "timestamps": [e.timestamp_ms for e in entries],
        "values": [e.value for e in entries],
        "headers": {i: e.headers for i, e in enumerate(entries) if e.headers} or None,
        "snapshots": [i for i, e in enumerate(entries) if e.snapshot] or None,
        "next": at, "more": more,
    }  # fmt: skip


@asynccontextmanager
async def fake_cluster(nodes: int = 3) -> AsyncIterator[FakeCluster]:
    """Nodes that listen on free ports of the loopback; any bug in a handler fails the test."""
    cluster = FakeCluster()
    for node_id in range(1, nodes + 1):
        node = FakeNode(cluster, node_id)
        node.listener = await acceptor.serve(node, "127.0.0.1", 0)
        node.address = f"127.0.0.1:{node.listener.port}"
        cluster.nodes[node_id] = node
    try:
        yield cluster
    finally:
        for node in cluster.nodes.values():
            await node.stop()
    failures = [failure for node in cluster.nodes.values() for failure in node.failures]
    assert failures == []
