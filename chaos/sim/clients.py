"""Clients of the simulated cluster: idempotent producers that retry, readers, and removals.

The clients follow the SDK (docs/design/ranges.md#producers). Records are numbered once, `prev` is
the previous unsettled number of the same key, `low` the smallest unsettled number. A request that
is refused or not answered is sent again with the same numbers, to the reported leader. Sometimes a
client gives a request up. The SDK's own rule (`client.retry`) then says the outcome of the request:
surely not applied, or perhaps applied once. Removals and leases are repeated until they succeed.
Reads go to any member. They are linearizable, or prefix reads with the position that the session
has seen.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from ...client.protocol import records
from ...client.protocol.errors import LognodeError, NotLeader, Timeout
from ...client.retry import Attempts
from ...partitions.model import Span
from .clock import Scheduler
from .history import History
from .options import Options
from .removed import Lease, Removal, draw
from .trace import Trace
from .violation import Violation

TIMEOUT_S: Final = 1.2
GIVE_UP_S: Final = (2.0, 6.0)
_GIVES_UP: Final = 0.3
"""Share of the appends that are given up, after one of two times."""
BACKOFF_S: Final = (0.02, 0.15)
_REMOVALS: Final = 0.06
"""Share of the clients' requests that are removals, in runs with removals."""
_LEASES: Final = 0.3
"""Share of the removals that are leases instead."""

Reply = dict[str, Any]


class Door(Protocol):
    """The way of a request to a node; `answer` is called once, several times, or never."""

    def request(self, node: int, body: dict[str, Any], answer: Callable[[Reply], None]) -> None: ...


@dataclass(slots=True)
class _Record:
    number: int
    prev: int
    key: bytes
    value: bytes
    expect: int = records.EXPECT_ANY


@dataclass(slots=True)
class _Append:
    batch: list[_Record]
    atomic: bool
    attempts: Attempts
    """The known outcomes of the attempts, and the deadline."""
    parts: list[int]
    """The number of unsettled parts of this append, shared by all parts."""
    attempt: int = 0
    node: int = 0
    """Where the newest attempt went."""
    open: bool = True

    @property
    def key(self) -> bytes:
        """The key that decides the range of the request."""
        return self.batch[0].key


@dataclass(slots=True)
class Client:
    """One producer with an id of its own, which also reads."""

    client_id: int
    options: Options
    door: Door
    scheduler: Scheduler
    rng: random.Random
    trace: Trace
    history: History
    hints: dict[bytes, int] = field(default_factory=dict)
    """Per key, the presumed leader of its range."""
    open_requests: int = 0
    waits_since: float = 0.0
    """The time of the oldest open request since the last answer."""
    answers: int = 0
    refusals: int = 0
    on_ack: Callable[[bytes, int], None] | None = None
    """Is told of each record that was acknowledged with its seq."""
    _seen: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Per key, the (generation, applied index) that this client's reads have seen."""
    _shown: dict[bytes, int] = field(default_factory=dict)
    """Per key, the highest seq that this client's reads have shown."""
    _acked_by: dict[bytes, int] = field(default_factory=dict)
    """Per group of keys, the member that acknowledged the last append."""
    _number: int = 0
    _leases: int = 0
    _unsettled: dict[int, bytes] = field(default_factory=dict)
    _pauses: random.Random = field(default_factory=lambda: random.Random(0))
    _stopped: bool = False

    @property
    def name(self) -> str:
        return f"c{self.client_id}"

    def start(self) -> None:
        """Open the window: each slot does one thing after another."""
        for _ in range(self.options.window):
            self._later(self._think(), self._next)

    def stop(self) -> None:
        """Start nothing new; open requests go on until they are answered."""
        self._stopped = True

    def _think(self) -> float:
        return self.rng.expovariate(1.0 / self.options.think_seconds)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.scheduler.after(delay_s, action)

    def _next(self) -> None:
        if self._stopped:
            return
        lull = self.options.lull_seconds
        if lull and int(self.scheduler.clock.now / lull) % 2:
            self._later(lull - self.scheduler.clock.now % lull + self._think(), self._next)
            return
        if not self.open_requests:
            self.waits_since = self.scheduler.clock.now
        self.open_requests += 1
        group = self.rng.randrange(self.options.groups)
        if self.options.removals and self.rng.random() < _REMOVALS:
            self._remove(group)
        elif self.rng.random() < 0.25:
            self._read(self._key(group))
        else:
            self._append(group)

    def _finished(self, *, answered: bool = True, goes_on: bool = True) -> None:
        """Note the end of a request; its slot of the window goes on with another."""
        self.open_requests -= 1
        self.answers += answered
        if goes_on:
            self._later(self._think(), self._next)

    def _node(self, key: bytes) -> int:
        hint = self.hints.get(key)
        if hint is None or self.rng.random() < 0.1:
            return self.rng.randint(1, self.options.nodes)
        return hint

    def _reader_node(self, key: bytes) -> int:
        """Return any member: every member serves linearizable reads."""
        if self.rng.random() < 0.5:
            return self.rng.randint(1, self.options.nodes)
        return self._node(key)

    def _key(self, group: int) -> bytes:
        return b"%d/k%d" % (group, self.rng.randrange(self.options.keys))

    # Appends.

    def _append(self, group: int) -> None:
        batch: list[_Record] = []
        conditional = self.rng.random() < 0.15
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            self._number += 1
            key, value = self._key(group), b"%d.%d" % (self.client_id, self._number)
            prev = max((n for n, k in self._unsettled.items() if k == key), default=0)
            self._unsettled[self._number] = key
            record = _Record(self._number, prev, key, value)
            if conditional:
                record.expect = self.history.expected(key)
            batch.append(record)
            self.history.invoke(key, value, producer=self.client_id, number=self._number,
                                expect=record.expect)  # fmt: skip
        append = _Append(
            batch,
            atomic=self.rng.random() < 0.2,
            attempts=self._attempts(self._patience()),
            parts=[1],
        )
        self.trace(self.name, "invoke", f"append {batch[0].number}+{len(batch)}")
        self._send_append(append)

    def _patience(self) -> float:
        """Return the time until which an append that begins now is tried."""
        drawn = self.rng.random()
        if drawn >= _GIVES_UP:
            return math.inf
        return self.scheduler.clock.now + GIVE_UP_S[drawn < _GIVES_UP / 2]

    def _attempts(self, deadline: float) -> Attempts:
        # Its pauses are not used, and must not draw from the shared source.
        return Attempts("append", deadline, writes=True, rng=self._pauses)

    def _send_append(self, append: _Append) -> None:
        if not append.open:
            return
        append.attempt += 1
        expects = [record.expect for record in append.batch]
        data = records.encode_batch(
            [record.key for record in append.batch],
            [record.value for record in append.batch],
            producer=self.client_id,
            epoch=1,
            low=min(self._unsettled),
            numbers=[record.number for record in append.batch],
            prevs=[record.prev for record in append.batch],
            expects=expects if any(e != records.EXPECT_ANY for e in expects) else None,
            atomic=append.atomic,
            each=not append.atomic,
            compress=False,
        )
        body = {"op": "append", "key": append.key, "batch": data}
        attempt = append.attempt
        append.node = self._node(append.key)
        self.door.request(append.node, body, partial(self._answered, append, attempt))
        self._later(TIMEOUT_S, partial(self._timed_out, append, attempt))

    def _failed(self, append: _Append, error: LognodeError) -> bool:
        """Note a failed attempt; return whether the client gives up now, by the SDK's rule."""
        try:
            append.attempts.failed(error, self.scheduler.clock.now)
        except LognodeError as final:
            self._give_up(append, final)
            return True
        return False

    def _give_up(self, append: _Append, error: LognodeError) -> None:
        self.trace(self.name, "give-up", f"{append.batch[0].number} {error.outcome}")
        for record in append.batch:
            if error.outcome == "not_applied":
                self.history.refuse(record.value)
            else:
                self.history.give_up(record.value)
        self._settle(append, answered=False)

    def _answered(self, append: _Append, attempt: int, reply: Reply) -> None:
        if not append.open:
            return
        if reply["status"] == "ok":
            first = reply.get("first_seq", 0)
            seqs = reply.get("seqs") or range(first, first + len(append.batch))
            self.trace(self.name, "ack", f"{append.batch[0].number} seqs={list(seqs)}")
            refused = reply.get("refused") or ()
            for at, (record, seq) in enumerate(zip(append.batch, seqs, strict=True)):
                if at in refused:
                    self.history.refuse(record.value)
                else:
                    self.history.ack(record.value, seq)
                    if self.on_ack is not None and seq is not None:
                        self.on_ack(record.key, seq)
            if attempt == append.attempt:
                self._read_at_the_leader_before(append.key, append.node)
            self._settle(append)
        elif reply["status"] == "mismatch":
            self.trace(self.name, "mismatch", f"{append.batch[0].number} {reply['detail']}")
            for record in append.batch:
                self.history.refuse(record.value)
            self._settle(append)
        elif attempt == append.attempt and reply["status"] == "spans":
            append.attempt += 1
            if "outcome" in reply:
                append.attempts.outcome = reply["outcome"]
            self._spans(append, reply["span"])
        elif attempt == append.attempt:
            self._refused(append.key, reply)
            append.attempt += 1  # the timeout of this attempt is void
            error = NotLeader("refused", outcome=reply.get("outcome"), hint=reply.get("hint"))
            if not self._failed(append, error):
                self._later(self.rng.uniform(*BACKOFF_S), partial(self._send_append, append))

    def _timed_out(self, append: _Append, attempt: int) -> None:
        if append.open and attempt == append.attempt:
            self.hints.pop(append.key, None)
            if not self._failed(append, Timeout("no answer")):
                self._send_append(append)

    def _settle(self, append: _Append, *, answered: bool = True) -> None:
        append.open = False
        for record in append.batch:
            del self._unsettled[record.number]
        append.parts[0] -= 1
        if not append.parts[0]:
            self._finished(answered=answered)

    def _refused(self, key: bytes, reply: Reply) -> None:
        self.refusals += 1
        hint = reply.get("hint")
        if hint is None:
            self.hints.pop(key, None)
        else:
            self.hints[key] = hint

    # The range of an append was split.

    def _spans(self, append: _Append, span: Span) -> None:
        """Send each record to its key's present range, with the same number.

        An atomic append stays together: it was applied whole before the split or not at all (x17).
        """
        if append.atomic:
            body = {"op": "number", "key": append.key, "producer": self.client_id,
                    "number": append.batch[0].number}  # fmt: skip
            self._insist(self._node(append.key), body, partial(self._told, append))
            return
        inside = [record for record in append.batch if record.key in span]
        outside = [record for record in append.batch if record.key not in span]
        append.open = False
        parts = [
            replace(append, batch=batch, attempts=self._attempts_on(append), attempt=0, open=True)
            for batch in (inside, outside)
            if batch
        ]
        append.parts[0] += len(parts) - 1
        self.trace(self.name, "regroup", f"{append.batch[0].number} into {len(parts)}")
        for part in parts:
            self._send_append(part)

    def _attempts_on(self, append: _Append) -> Attempts:
        """Return the attempts for a part of the append, with what is known of the whole append."""
        attempts = self._attempts(append.attempts.deadline)
        attempts.outcome = append.attempts.outcome
        return attempts

    def _told(self, append: _Append, reply: Reply) -> None:
        """Note whether an atomic append was applied, by its first number."""
        if not append.open:
            return
        if reply["seq"] is not None and append.attempts.outcome == "not_applied":
            raise Violation("S11", "applied, although no attempt can have been",
                            value=append.batch[0].value)  # fmt: skip
        self.trace(self.name, "number", f"{append.batch[0].number} seq={reply['seq']}")
        for at, record in enumerate(append.batch):
            if reply["seq"] is None:
                self.history.refuse(record.value)
            else:
                self.history.ack(record.value, reply["seq"] + at)
        self._settle(append)

    # Removals.

    def _remove(self, group: int) -> None:
        if self.rng.random() < _LEASES:
            self._take_lease(group)
            return
        key = self._key(group)
        last = self.history.floors.get(key, 0)
        removal = draw(self.rng, group, self.options.keys, last, key)
        self.trace(self.name, "invoke", f"{removal.how} {key!r} before={removal.before}")
        self.history.removed.asked(removal)
        self._ask_removal(removal, removal.first)

    def _ask_removal(self, removal: Removal, key: bytes) -> None:
        body = {"op": "remove", "key": key, "command": removal.command}
        self._insist(self._node(key), body, partial(self._removed, removal, key))

    def _removed(self, removal: Removal, key: bytes, reply: Reply) -> None:
        end, before = reply["end"], min(removal.before, reply["next_seq"])
        self.trace(self.name, "removed", f"{removal.how} before={before}")
        self.history.removed.done(removal.part(key, end, before))
        if removal.spans and end is not None and end < removal.span[1]:
            self._ask_removal(removal, end)  # the range ends within the span
        else:
            self._finished()

    def insist(self, body: dict[str, Any], done: Callable[[Reply], None]) -> None:
        """Repeat a request of someone who has no requests of its own, as `_insist` does."""
        self._insist(self._node(body["key"]), body, done)

    def _insist(self, node: int, body: dict[str, Any], done: Callable[[Reply], None]) -> None:
        """Repeat the request until it succeeds; a second application changes nothing.

        `done` is called once with the result.
        """
        settled = [False]
        key = body["key"]

        def again() -> None:
            self._insist(self._node(key), body, done)

        def answered(reply: Reply) -> None:
            if settled[0]:
                return
            settled[0] = True
            if reply["status"] == "error":
                self._refused(key, reply)
                self._later(self.rng.uniform(*BACKOFF_S), again)
            else:
                done(reply)

        def timed_out() -> None:
            if not settled[0]:
                settled[0] = True
                self.hints.pop(key, None)
                again()

        self.door.request(node, body, answered)
        self._later(TIMEOUT_S, timed_out)

    # Leases: entries that existed when the lease was taken are read through it, despite removals.

    def _take_lease(self, group: int) -> None:
        key = self._key(group)
        through = self.history.floors.get(key, 0)
        if not through:
            self._finished()
            return
        self._leases += 1
        lease = Lease(f"{self.name}.{self._leases}", group, key, through)
        self.trace(self.name, "invoke", f"lease {lease.name} through={through}")
        body = {"op": "remove", "key": key, "command": lease.take}
        self._insist(self._node(key), body, partial(self._leased, lease))

    def _leased(self, lease: Lease, reply: Reply) -> None:
        if reply["status"] == "conflict":  # see `client.snapshot.take`: another name is taken
            self.trace(self.name, "leased", f"{lease.name} conflict")
            body = {"op": "remove", "key": lease.key, "command": lease.release}
            self._insist(self._node(lease.key), body, lambda _: self._take_lease(lease.group))
            return
        owed = self.history.owed(lease.key, lease.through)
        self._later(2.0 * self._think(), partial(self._read_leased, lease, owed))

    def _read_leased(self, lease: Lease, owed: list[tuple[int, bytes]]) -> None:
        body = {"op": "read", "key": lease.key, "as_of": lease.name}
        done = partial(self._leased_read, lease, owed)
        self._insist(self._reader_node(lease.key), body, done)

    def _leased_read(self, lease: Lease, owed: list[tuple[int, bytes]], reply: Reply) -> None:
        self.trace(self.name, "leased", f"{lease.name} {reply['status']}")
        if reply["status"] != "ok" and "clock" not in self.options.faults:
            raise Violation("x14", "a lease ended before its time", lease=lease.name)
        if reply["status"] == "ok":
            self.history.complete_leased(lease.key, lease.through, owed, reply["entries"])
        body = {"op": "remove", "key": lease.key, "command": lease.release}
        self._insist(self._node(lease.key), body, lambda _: self._finished())

    # Reads.

    def _read(self, key: bytes) -> None:
        op = self.rng.choice(("read", "read", "prefix"))
        self.trace(self.name, "invoke", f"{op} {key!r}")
        self._send_read(key, op)

    def _read_at_the_leader_before(self, key: bytes, node: int) -> None:
        """After an append at another leader than before, read at the leader before: that member may
        not know yet that it does not lead."""
        group = key.partition(b"/")[0]
        before, self._acked_by[group] = self._acked_by.get(group, node), node
        if before != node and not self._stopped:
            self.trace(self.name, "invoke", f"read {key!r} at n{before}")
            self.open_requests += 1
            self._send_read(key, "read", before)

    def _send_read(self, key: bytes, op: str, before: int = 0) -> None:
        """Send a read to any member until one answers; or once to the leader before, beside what
        else the client does."""
        is_extra = before > 0
        seen = self._shown.get(key, 0) if op == "prefix" else None
        read = self.history.invoke_read(key, seen)
        settled = [False]
        body = {"op": op, "key": key, "seen": self._seen.get(key, (0, 0))}

        def answered(reply: Reply) -> None:
            if settled[0]:
                return
            settled[0] = True
            if reply["status"] == "ok":
                self.trace(self.name, op, f"{key!r} last={reply['last']}")
                self.history.complete_read(read, reply["last"], reply["entries"])
                self._seen[key] = max(self._seen.get(key, (0, 0)), tuple(reply["seen"]))
                self._shown[key] = max(self._shown.get(key, 0), reply["last"])
                self._finished(goes_on=not is_extra)
            elif is_extra:
                self._finished(goes_on=False)
            else:
                self._refused(key, reply)
                self._later(self.rng.uniform(*BACKOFF_S), partial(self._send_read, key, op))

        def timed_out() -> None:
            if not settled[0]:
                settled[0] = True
                if is_extra:
                    self._finished(answered=False, goes_on=False)
                    return
                self.hints.pop(key, None)
                self._send_read(key, op)

        self.door.request(before or self._reader_node(key), body, answered)
        self._later(TIMEOUT_S, timed_out)
