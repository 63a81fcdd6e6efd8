"""Clients that append and read while nodes die, each keeping what it was told.

`Load` runs them on a loop in a thread of its own; `cluster_history.check` says afterwards whether
what the cluster holds agrees with what it answered. What a reader sees wrong is a violation at
once.
"""

import asyncio
import contextlib
import random
import threading
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

import lognode
from lognode import testing
from lognode.client.protocol.types import Entry

OWN, SHARED, REGISTER, NAMED = b"own", b"shared", b"register", b"named"
REMOVED, AGED = b"removed", b"aged"
_NAMED_UNDER_WAY = 50
_READ_S = 5.0
"""A node that is named may be down for long: the client then reads elsewhere."""
_CONSISTENCIES: tuple[Literal["linearizable", "prefix"], ...] = (
    "linearizable", "linearizable", "prefix",
)  # fmt: skip
_NODES = (1, 2, 3)


@dataclass(slots=True)
class Attempt:
    """One append: what was asked, when, and what was answered."""

    key: bytes
    value: bytes
    expect: int | None
    """The last seq that was expected, 0 for ABSENT; None when nothing was."""
    began: float
    ended: float = float("inf")
    outcome: str = "unknown"
    seq: int | None = None


@dataclass(slots=True)
class Size:
    """How many clients of each kind, and how large their values are."""

    writers: int = 3
    conditional: int = 2
    named: int = 1
    readers: int = 2
    followers: int = 1
    value_bytes: int = 16
    removers: int = 0
    aged: str | None = None
    """A log with retention, of one range, to which somebody appends as well."""


@dataclass(slots=True)
class Told:
    """All that the clients were told."""

    attempts: list[Attempt] = field(default_factory=list)
    named_done: dict[str, int] = field(default_factory=dict)
    """Per named producer: every number up to it was acknowledged."""
    named_sent: dict[str, int] = field(default_factory=dict)
    acked_seq: dict[bytes, int] = field(default_factory=dict)
    """Per key the highest seq acknowledged so far."""
    gone: dict[bytes, int] = field(default_factory=dict)
    """Per key that is trimmed and deleted: entries below this seq were removed, as was answered."""
    maybe_gone: dict[bytes, float] = field(default_factory=dict)
    """And below this one they may be."""
    removals: int = 0
    followed: list[dict[bytes, list[Entry]]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    answers: int = 0
    """Reads of every kind."""
    reads: int = 0
    """Linearizable reads. The reads of named nodes and the prefix reads follow."""
    reads_of_nodes: int = 0
    reads_of_prefixes: int = 0


class Load:
    """A context manager: the clients run inside it."""

    def __init__(
        self, servers: str, log: str, seed: int, size: Size | None = None, *, timeout_s: float = 30
    ) -> None:
        self.told = Told()
        self._servers = servers
        self._log = log
        self._size = size or Size()
        self._rng = random.Random(seed)
        self._timeout_s = timeout_s
        self._tail = b"." * self._size.value_bytes
        self._stopping = False
        self._paused = False
        self._reads_allowed = 0
        """While the load is paused."""
        self._acked = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._done = threading.Event()
        print(f"load on {log}: seed {seed}, from {time.monotonic():.1f}")

    # From the test's thread.

    @property
    def count(self) -> int:
        """Appends acknowledged so far, but for those of named producers."""
        return self._acked

    def go_on(self, more: int, timeout_s: float = 30.0) -> None:
        """Return when that many more appends were acknowledged that began after this call."""
        since, first = time.monotonic(), len(self.told.attempts)

        def enough() -> bool:
            attempts = self.told.attempts[first:]
            return sum(a.outcome == "ok" and a.began > since for a in attempts) >= more

        testing.eventually(enough, timeout_s=timeout_s, what=f"{more} more appends")

    def read_on(self, least: int, timeout_s: float = 30.0) -> None:
        """Return when so many linearizable reads were answered since the load began."""
        told = self.told
        testing.eventually(lambda: told.reads >= least, timeout_s=timeout_s, what="reads")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is appended meanwhile, once what is under way is settled; reads are by `read`."""
        self._reads_allowed = 0
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def read(self, count: int) -> None:
        """Return when so many reads were answered while the load is paused."""
        told = self.told
        wanted = told.answers + count
        self._reads_allowed = count
        testing.eventually(lambda: told.answers >= wanted, what="reads while the load is paused")

    def slowest_s(self) -> float:
        """The longest that an acknowledged append took; those of named producers wait in a queue
        of their own and do not count."""
        acked = [a for a in self.told.attempts if a.outcome == "ok" and a.key[:5] != NAMED]
        slowest = max(acked, key=lambda a: a.ended - a.began)
        print(f"the slowest of {len(acked):,} appends: {slowest}")
        return slowest.ended - slowest.began

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping = True
        ended = self._done.wait(self._timeout_s + 15.0 if kind is None else 5.0)
        if kind is None and not ended:
            raise AssertionError("the clients did not end")

    # On the loop.

    async def _main(self) -> None:
        kinds: list[tuple[int, Callable[[lognode.AsyncLog, int, random.Random], Awaitable[None]]]]
        kinds = [
            (self._size.writers, self._write),
            (self._size.conditional, self._contend),
            (self._size.named, self._import),
            (self._size.readers, self._read),
            (self._size.removers, self._remove),
            (self._size.aged is not None, self._age),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                followers = [group.create_task(self._follow()) for _ in range(self._size.followers)]
                async with asyncio.TaskGroup() as clients:
                    for count, kind in kinds:
                        for number in range(count):
                            rng = random.Random(self._rng.random())
                            clients.create_task(self._client(kind, number, rng))
                await self._followers_caught_up()
                for follower in followers:
                    follower.cancel()
        except* Exception as failed:
            self.told.violations += [f"a client failed: {error!r}" for error in failed.exceptions]
        finally:
            self._done.set()

    async def _client(self, kind: Any, number: int, rng: random.Random) -> None:
        async with lognode.AsyncClient(self._servers, timeout=self._timeout_s) as client:
            log = self._size.aged if kind == self._age else None
            await kind(client.log(log or self._log), number, rng)

    async def _append(
        self, log: lognode.AsyncLog, key: bytes, value: bytes, expect: int | None = None
    ) -> Attempt:
        """One append, noted whatever becomes of it."""
        attempt = Attempt(key, value + self._tail, expect, time.monotonic())
        self.told.attempts.append(attempt)
        condition: Any = lognode.ANY if expect is None else expect or lognode.ABSENT
        try:
            ack = await log.append(key, attempt.value, expect=condition)
        except lognode.LognodeError as error:
            attempt.outcome = error.outcome
        else:
            attempt.outcome, attempt.seq = "ok", ack.seq
            self._acked += 1
            if ack.seq is not None and not key.startswith(AGED):  # that may go at any time
                self.told.acked_seq[key] = max(self.told.acked_seq.get(key, 0), ack.seq)
        attempt.ended = time.monotonic()
        return attempt

    async def _may_append(self) -> bool:
        """Waits while the load is paused. False: the client is to end."""
        while self._paused and not self._stopping:  # noqa: ASYNC110 (set by another thread)
            await asyncio.sleep(0.01)
        return not self._stopping

    async def _write(self, log: lognode.AsyncLog, number: int, rng: random.Random) -> None:
        """Plain appends, to keys of its own and to keys that all writers share."""
        count = 0
        while await self._may_append():
            count += 1
            kind = OWN + b"-%d" % number if rng.random() < 0.6 else SHARED
            # New keys now and then: a long run reads no key of endless length.
            key = kind + b"-%d-%d" % (rng.randrange(4), count // 1_000)
            await self._append(log, key, b"%d:%d:" % (number, count))

    async def _remove(self, log: lognode.AsyncLog, number: int, rng: random.Random) -> None:
        """Appends to keys of its own, which it trims and deletes now and then."""
        count, own = 0, [0]
        while await self._may_append():
            key = REMOVED + b"-%d-%d" % (number, count // 300)
            if count % 300 == 0:
                own = [0]
            count += 1
            attempt = await self._append(log, key, b"%d:%d:" % (number, count))
            if attempt.seq is None:
                continue
            own.append(attempt.seq)
            if self.told.maybe_gone.get(key) == float("inf"):
                self.told.maybe_gone[key] = attempt.seq  # behind all that was deleted
            if rng.random() < 0.1:
                await self._cut(log, key, own, delete=rng.random() < 0.3, rng=rng)

    async def _cut(
        self, log: lognode.AsyncLog, key: bytes, own: list[int], *, delete: bool, rng: random.Random
    ) -> None:
        told = self.told
        before = own[-1] + 1 if delete else rng.choice(own)
        # What is deleted ends where the key ends then: with what nobody was told of, too.
        may_go = float("inf") if delete else before
        told.maybe_gone[key] = max(told.maybe_gone.get(key, 0), may_go)
        with contextlib.suppress(lognode.LognodeError):
            await (log.delete_key(key) if delete else log.trim(key, before))
            told.gone[key] = max(told.gone.get(key, 0), before)
            told.removals += 1

    async def _age(self, log: lognode.AsyncLog, number: int, rng: random.Random) -> None:
        """Appends to a log whose oldest entries go by retention, and reads it: what is left of a
        key is what it had, from somewhere on, and that never goes back."""
        count, own, first = 0, {}, 0
        key = AGED + b"-%d" % number
        while await self._may_append():
            count += 1
            attempt = await self._append(log, key, b"%d:%d:" % (number, count) + self._tail * 8)
            if attempt.seq is not None:
                own[attempt.seq] = attempt.value
            if count % 50:
                continue
            with contextlib.suppress(lognode.LognodeError):
                found = {entry.seq: entry.value async for entry in log.scan(key, timeout=_READ_S)}
                lowest = min(found, default=first)
                if lowest < first:
                    self.told.violations.append(f"S6: {key!r} {lowest} shows again, below {first}")
                # Retention goes on between a scan's pages: what is no longer there may be missing
                # from a later page, though an earlier page has what went before it.
                left = [entry.seq async for entry in log.scan(key, limit=1, timeout=_READ_S)]
                first = max(first, lowest, *left)
                lost = [seq for seq in own if seq >= first and found.get(seq) != own[seq]]
                if found and left and lost:
                    self.told.violations.append(f"S2: {key!r} has no {lost[:5]} from {first} on")

    async def _contend(self, log: lognode.AsyncLog, number: int, rng: random.Random) -> None:
        """Conditional appends to registers; the value says what was expected."""
        count = 0
        while await self._may_append():
            key = REGISTER + b"-%d" % rng.randrange(2)
            with contextlib.suppress(lognode.LognodeError):
                entry = await log.latest(key)
                last = 0 if entry is None else entry.seq
                if rng.random() < 0.2:
                    last = max(0, last - 1)  # one that cannot hold
                count += 1
                value = b"%d:%d:%d:" % (last, number, count)
                await self._append(log, key, value, last)

    async def _import(self, log: lognode.AsyncLog, number: int, rng: random.Random) -> None:
        """A named producer with numbers, opened again with the same ones when it fails."""
        name = f"import-{number}"
        done = 0
        while await self._may_append():
            under_way: deque[tuple[Attempt, Any]] = deque()
            sent = done
            with contextlib.suppress(lognode.LognodeError):
                async with log.producer(name=name, timeout=10) as producer:
                    while under_way or await self._may_append():
                        held = self._stopping or self._paused
                        if not held and len(under_way) < _NAMED_UNDER_WAY:
                            sent += 1
                            self.told.named_sent[name] = max(
                                sent, self.told.named_sent.get(name, 0)
                            )
                            key = NAMED + b"-%d-%d" % (number, sent % 5)
                            attempt = Attempt(key, b"%d:" % sent, None, time.monotonic())
                            ticket = await producer.submit(key, attempt.value, number=sent)
                            under_way.append((attempt, ticket))
                            continue
                        attempt, ticket = under_way.popleft()
                        ack = await ticket
                        attempt.ended, attempt.outcome, attempt.seq = (
                            time.monotonic(), "ok", ack.seq,
                        )  # fmt: skip
                        self.told.attempts.append(attempt)
                        done += 1
                        self.told.named_done[name] = done

    async def _read(self, log: lognode.AsyncLog, number: int, rng: random.Random) -> None:
        """Reads of every consistency: none is older than what was acknowledged before it, or, of a
        prefix, than what this client saw (S7); none changes (S3, S5)."""
        seen: dict[bytes, dict[int, Entry]] = defaultdict(dict)
        newest: dict[bytes, int] = defaultdict(int)
        while not self._stopping:
            keys = list(self.told.acked_seq)
            if not keys or (self._paused and not self._reads_allowed):
                await asyncio.sleep(0.01)
                continue
            key = rng.choice(keys)
            consistency: Literal["linearizable", "prefix"] = rng.choice(_CONSISTENCIES)
            linearizable = consistency == "linearizable"
            node = rng.choice(_NODES) if rng.random() < 0.4 else None
            floor = self.told.acked_seq[key] if linearizable else newest[key]
            gone = self.told.gone.get(key, 0) if linearizable else 0
            with contextlib.suppress(lognode.LognodeError):
                if rng.random() < 0.5:
                    latest = await log.latest(
                        key, consistency=consistency, node=node, timeout=_READ_S
                    )
                    entries = [] if latest is None else [latest]
                    start = None
                else:
                    start = rng.choice(sorted(seen[key]) or [1])
                    scan = log.scan(
                        key, start=start, consistency=consistency, node=node, timeout=_READ_S
                    )
                    entries = [entry async for entry in scan]
                self._reads_allowed -= self._paused and self._reads_allowed > 0
                self.told.answers += 1
                self.told.reads += linearizable
                self.told.reads_of_nodes += node is not None
                self.told.reads_of_prefixes += not linearizable
                how = f"{consistency} of {node or 'any'}"
                self._look(seen[key], key, start, entries, floor, how)
                if entries and entries[0].seq < gone:
                    self.told.violations.append(
                        f"S6: {key!r} read ({how}) with seq {entries[0].seq}, removed below {gone}"
                    )
                newest[key] = max(newest[key], entries[-1].seq if entries else 0)

    def _look(
        self, seen: dict[int, Entry], key: bytes, start: int | None, entries: list[Entry],
        floor: int, how: str,
    ) -> None:  # fmt: skip
        wrong = self.told.violations
        kept = self.told.maybe_gone.get(key, 0)
        if floor >= max(kept, 1) and (not entries or entries[-1].seq < floor):
            wrong.append(f"S7: {key!r} read ({how}) without seq {floor}, told before")
        seqs = [entry.seq for entry in entries]
        if seqs != sorted(set(seqs)):
            wrong.append(f"S4: {key!r} read in the order {seqs}")
        wrong += [
            f"S3: {key!r} seq {e.seq} was {seen[e.seq]!r}, is {e!r}"
            for e in entries
            if seen.get(e.seq, e) != e
        ]
        if start is not None:
            gone = [seq for seq in seen if seq >= max(start, kept) and seq not in set(seqs)]
            wrong += [f"S5: {key!r} seq {seq} was seen and is gone" for seq in gone]
            late = [e.seq for e in entries if seen and start < e.seq < max(seen)]
            wrong += [f"S5: {key!r} seq {seq} came late" for seq in late if seq not in seen]
            seen.update((entry.seq, entry) for entry in entries)

    async def _follow(self) -> None:
        """The whole log as it is committed, resumed at the cursor after an error."""
        followed: dict[bytes, list[Entry]] = defaultdict(list)
        self.told.followed.append(followed)
        start: Any = "earliest"
        async with lognode.AsyncClient(self._servers, timeout=self._timeout_s) as client:
            while True:
                with contextlib.suppress(lognode.LognodeError):
                    async with client.log(self._log).follow(start=start) as feed:
                        async for batch in feed:
                            for entry in batch:
                                followed[entry.key].append(entry)
                            start = batch.cursor

    async def _followers_caught_up(self) -> None:
        """Until every follower has every key's acknowledged entries, for a while."""
        deadline = time.monotonic() + self._timeout_s
        for followed in self.told.followed:
            for key, seq in self.told.acked_seq.items():
                if seq < self.told.maybe_gone.get(key, 0):
                    continue
                while not followed[key] or followed[key][-1].seq < seq:
                    if time.monotonic() > deadline:
                        self.told.violations.append(f"L2: {key!r} seq {seq} reached no follower")
                        return
                    await asyncio.sleep(0.01)
