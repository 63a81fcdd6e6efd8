"""A client of lognode that knows nothing of lognode: it was written from docs/protocol.md alone.

It uses the standard library, msgpack and zstandard, and imports nothing of lognode. It blocks, it
is of one thread, and it is short: a model for clients in other languages, and the test that the
page is complete. `foreign_wire` has connections, `foreign_reads` pages and snapshots,
`foreign_appends` producers, `foreign_follow` follows; here is what knows where ranges are.
"""

import random
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from foreign_wire import ONCE, RETRIED, Body, Connection, Refused, Seen, lost


@dataclass
class Range:
    """A generation of a range. `leader` is a hint."""

    id: int
    generation: int
    start: bytes
    end: bytes | None
    members: Sequence[int]
    leader: int | None

    @classmethod
    def of(cls, row: Body) -> "Range":
        """What a descriptor says."""
        return cls(row["id"], row["generation"], row["start"], row.get("end"), row["members"],
                   row.get("leader"))  # fmt: skip

    def has(self, key: bytes) -> bool:
        """Whether the key is the range's."""
        return self.start <= key and (self.end is None or key < self.end)

    def overlaps(self, other: "Range") -> bool:
        """Whether any key is in both."""
        return (other.end is None or self.start < other.end) and (
            self.end is None or other.start < self.end
        )


@dataclass
class Log:
    """What the client knows of a log: its ranges, and what its prefix reads have seen of each."""

    name: str
    id: int = 0
    ranges: list[Range] = field(default_factory=list)
    applied: dict[tuple[int, int], int] = field(default_factory=dict)

    def learn(self, rows: Sequence[Body]) -> bool:
        """Take descriptors that are newer than what they overlap; whether any was."""
        news = False
        for new in (Range.of(row) for row in rows if row["log"] == self.id):
            old = [known for known in self.ranges if known.overlaps(new)]
            if all(known.generation < new.generation for known in old):
                self.ranges = [known for known in self.ranges if known not in old] + [new]
                news = True
            elif new.leader is not None:
                for known in old:
                    if (known.id, known.generation) == (new.id, new.generation):
                        known.leader = new.leader
        return news

    def find(self, key: bytes) -> Range | None:
        """The range that has the key, as far as known."""
        return next((known for known in self.ranges if known.has(key)), None)


class Retries:
    """Of one call: how long to wait before the next attempt, and what its outcome is by now."""

    def __init__(self, operation: str, seconds: float) -> None:
        self.once = operation in ONCE
        self.deadline = time.monotonic() + seconds
        self.unknown = False
        self.failures = 0
        self._hints, self._sealed, self._pause = 0, 0.01, 0.05

    def attempt(self) -> float:
        """By when the next attempt has to be answered."""
        return min(self.deadline, time.monotonic() + 2.0 * 2 ** min(self.failures, 4))

    def failed(self, error: Refused, *, news: bool = False) -> float:
        """Seconds to wait. Raises the error of the call when it is the end."""
        self.unknown = self.unknown or error.outcome == "unknown"
        self.failures += 1
        final = error.code not in RETRIED or (self.once and self.unknown)
        delay = 0.0 if final else self._delay(error, news)
        if final or time.monotonic() + delay > self.deadline:
            if self.unknown and error.outcome == "not_applied":
                error.outcome = "unknown"
            raise error
        return delay

    def _delay(self, error: Refused, news: bool) -> float:
        if error.code == "NOT_LEADER" and error.fields.get("hint") and self._hints < 2:
            self._hints += 1
            return 0.0
        self._hints = 0
        if error.code == "OVERLOADED":
            return min(5.0, error.fields.get("retry_after") or 0.05)
        if error.code == "SEALED" and not news:
            delay, self._sealed = self._sealed, min(0.2, self._sealed * 2)
            return delay
        if news or (self.failures == 1 and error.code not in ("NOT_LEADER", "GENERATION_MISMATCH")):
            return 0.0
        delay, self._pause = self._pause, min(1.0, self._pause * 2)
        return delay * random.uniform(0.75, 1.25)


class Client:
    """`addresses`: some nodes, `host:port`. `timeout`: seconds of each call, retries included."""

    def __init__(
        self, addresses: Sequence[str], *, token: str | None = None,
        tls: ssl.SSLContext | None = None, timeout: float = 20.0,
        seen: Seen = lambda what, operation, body: None,
    ) -> None:  # fmt: skip
        self.timeout = timeout
        self.version = 0
        self.cluster: str | None = None
        self.nodes: dict[int, str] = {}
        self._seeds = list(addresses)
        self._options: Body = {"token": token, "tls": tls, "seen": seen}
        self._connections: dict[str, Connection] = {}
        self._logs: dict[str, Log] = {}

    def close(self) -> None:
        """End all connections."""
        for connection in self._connections.values():
            connection.close()

    def connect(self, address: str) -> Connection:
        """A connection to that address, an open one if there is one."""
        known = self._connections.get(address)
        if known is None or known.ended is not None:
            known = Connection(address, cluster=self.cluster, **self._options)
            self.cluster = self.cluster or known.cluster
            self._connections[address] = known
        return known

    def at(self, node: int) -> Connection:
        """A connection to a node of the metadata."""
        if node not in self.nodes:
            raise lost(f"node {node}the metadata has no address", "not_applied")
        return self.connect(self.nodes[node])

    def ask_any(self, operation: str, body: Body, *, first: int = 0) -> Body:
        """A request that any node takes; `first`: which of them is asked first."""
        retries = Retries(operation, self.timeout)
        addresses = list(dict.fromkeys((*self.nodes.values(), *self._seeds)))
        at, strangers = first, 0
        while True:
            try:
                connection = self.connect(addresses[at % len(addresses)])
                return connection.ask(operation, body, retries.attempt())
            except Refused as error:
                at += 1
                if (operation, error.code) == ("metadata", "LOG_NOT_FOUND"):
                    strangers += 1
                    if strangers < len(addresses):
                        continue  # the node may not have heard of a new log
                hint = self.nodes.get(error.fields.get("hint") or 0)
                if hint in addresses:
                    at = addresses.index(hint)
                time.sleep(retries.failed(error))

    def metadata(self, name: str) -> Log:
        """Ask for all ranges of a log. Raises Refused with LOG_NOT_FOUND."""
        for _ in range(20):
            rows: list[Body] = []
            start, logs = b"", None
            while start is not None:
                page = self._fresh({"log": name, "start_key": start})
                if logs is not None and (
                    page["logs"] != logs or page["ranges"][0]["start"] != start
                ):
                    break  # the ranges have changed in between
                rows, logs = rows + page["ranges"], page["logs"]
                start = page.get("next_key")
            else:
                log = self._logs.get(name)
                if log is None or log.id != logs[0]["id"]:
                    log = self._logs[name] = Log(name, logs[0]["id"])
                log.learn(rows)
                return log
        raise lost("the ranges change all the time", "not_applied")

    def logs(self) -> list[Body]:
        """All logs that the client may see."""
        found: list[Body] = []
        after: int | None = 0
        while after is not None:
            page = self._fresh({"after": after})
            found, after = found + page["logs"], page.get("next")
        return found

    def _fresh(self, body: Body) -> Body:
        """A page of metadata that is not older than what was seen."""
        for first in range(20):
            page = self.ask_any("metadata", {**body, "at_least": self.version}, first=first)
            if page["version"] >= self.version:
                break
        else:
            raise lost("no node has metadata as new as what was seen", "not_applied")
        self.version = page["version"]
        for node in page["nodes"]:
            if node["state"] == "REMOVED":
                self.nodes.pop(node["id"], None)
            else:
                self.nodes[node["id"]] = node["address"]
        return page

    def locate(self, name: str, key: bytes) -> tuple[Log, Range]:
        """The range that has the key."""
        log = self._logs.get(name) or self.metadata(name)
        found = log.find(key) or self.metadata(name).find(key)
        if found is None:
            raise lost("no range has the key at present", "not_applied")
        return log, found

    def ask(
        self, name: str, key: bytes, operation: str, body: Body, *, retries: Retries | None = None,
        prefix: bool = False,
    ) -> tuple[Body, Range]:  # fmt: skip
        """A request to the range that has the key, wherever it is; and that range."""
        retries = retries or Retries(operation, self.timeout)
        while True:
            log: Log | None = None
            try:
                log, known = self.locate(name, key)
                node = random.choice(known.members) if prefix else known.leader or known.members[0]
                full = {"range": known.id, "generation": known.generation, **body}
                if prefix:
                    seen = log.applied.get((known.id, known.generation), 0)
                    full = {**full, "consistency": "prefix", "applied": seen}
                answer = self.at(node).ask(operation, full, retries.attempt())
                if type(answer.get("applied")) is int:
                    last = log.applied.get((known.id, known.generation), 0)
                    log.applied[known.id, known.generation] = max(last, answer["applied"])
                return answer, known
            except Refused as error:
                if log is None:
                    time.sleep(retries.failed(error))
                else:
                    self.heed(log, known, node, error, retries)

    def heed(self, log: Log, known: Range, node: int, error: Refused, retries: Retries) -> None:
        """Learn from a failed attempt, and wait as long as the page says."""
        news = error.code == "GENERATION_MISMATCH" and log.learn(error.fields.get("ranges") or ())
        delay = retries.failed(error, news=news)
        if error.code == "NOT_LEADER" and error.fields.get("hint"):
            known.leader = error.fields["hint"]
        elif error.lost or error.code in ("NOT_LEADER", "UNAVAILABLE", "GENERATION_MISMATCH"):
            members = list(known.members)
            known.leader = members[(members.index(node) + 1) % len(members)]
        if error.code == "RANGE_NOT_FOUND":
            log.ranges = [each for each in log.ranges if each is not known]
        time.sleep(delay)
        if error.code in ("SEALED", "RANGE_NOT_FOUND") or error.lost or retries.failures % 3 == 0:
            hinted = known.leader
            self.metadata(log.name)
            if error.lost:
                known.leader = hinted  # the metadata may name the one that is gone

    def spans(self, name: str, start: bytes = b"", end: bytes | None = None) -> Iterator[Range]:
        """The ranges that have keys of a span, in order, as they are when each is reached."""
        at: bytes | None = start
        while at is not None and (end is None or at < end):
            _, known = self.locate(name, at)
            yield known
            at = known.end
