"""A made-up test in a store folder, for the report: clients, faults, an outage, a lost write.

Nothing of lognode runs. The model is one list of entries that is appended to; what makes it look
like a cluster is drawn: latencies, elections, a time without a majority, refusals and timeouts.
"""

import bisect
import heapq
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lognode.chaos.history import CLUSTER, Recorder
from lognode.chaos.verdict import Anomaly, Result

SECOND = 1_000_000_000
LOST_KEY = "k3"


@dataclass
class Shape:
    """What is made up."""

    seconds: int = 60
    rate: float = 60.0
    producers: int = 6
    pollers: int = 4
    keys: int = 8
    nodes: int = 5
    seed: int = 1
    valid: bool = False
    nemesis: tuple[str, ...] = ("partition", "kill", "packet", "range")


@dataclass
class Fault:
    number: int
    package: str
    what: str
    nodes: list[int]
    began: int
    ended: int


@dataclass
class _Cluster:
    """What was appended, by key; `hidden` was acknowledged and is not there any more."""

    entries: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)
    seq: int = 0
    hidden: tuple[str, int, str] | None = None


WORDS = {
    "partition": ["one-way, requests of node {}", "majorities ring", "isolates node {}", "bridge"],
    "kill": ["kill of a minority", "kill of the leader"],
    "packet": ["latency 80 ms with jitter", "slicer", "bandwidth 64 KiB/s"],
    "range": ["split at a hot key", "merge", "move to node {}", "transfer"],
}


def make(folder: Path, shape: Shape | None = None) -> Path:
    """Write `test.json`, `history.jsonl` and `results.json` into the folder; returns it."""
    return _Maker(folder, shape or Shape()).run()


class _Maker:
    def __init__(self, folder: Path, shape: Shape) -> None:
        self.shape, self.folder = shape, folder
        self.rng = random.Random(shape.seed)
        folder.mkdir(parents=True, exist_ok=True)
        self.now = 0
        self.recorder = Recorder(folder / "history.jsonl", lambda: self.now)
        self.cluster = _Cluster()
        self.faults = list(self._faults())
        self.outage = self._moment(0.55), self._moment(0.55) + min(6 * SECOND, self._moment(0.1))
        self.next_process = 0
        self.numbers: Counter[int] = Counter()
        self.positions: dict[int, dict[str, int]] = {}
        self.lost: list[int] = []
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.steps = 0

    def _moment(self, part: float) -> int:
        return int(self.shape.seconds * SECOND * part)

    def _faults(self) -> Iterator[Fault]:
        at, number = 4 * SECOND, 0
        while at < self._moment(0.9):
            length = int(self.rng.uniform(2.5, 5) * SECOND)
            count = self.rng.choice([0, 1, 1, 2]) if self.shape.nemesis else 0
            for package in self.rng.sample(self.shape.nemesis, min(count, len(self.shape.nemesis))):
                node = self.rng.randint(1, self.shape.nodes)
                what = self.rng.choice(WORDS.get(package, [package])).format(node)
                yield Fault(number, package, what, [node], at, at + length)
                number += 1
            at += 5 * SECOND

    def at(self, time: int, what: Callable[[], None]) -> None:
        self.steps += 1
        heapq.heappush(self.queue, (time, self.steps, what))

    def run(self) -> Path:
        for fault in self.faults:
            begin = {"id": fault.number, "what": fault.what, "nodes": fault.nodes}
            self.at(fault.began, partial(self.nemesis, fault.package, begin))
            self.at(fault.ended, partial(self.nemesis, fault.package, {"id": fault.number}))
        self._elections()
        for _ in range(self.shape.producers):
            self.client(self.append)
        for _ in range(self.shape.pollers):
            self.client(self.poll)
        while self.queue:
            self.now, _, what = heapq.heappop(self.queue)
            what()
        self.now += SECOND
        self._finals()
        self.recorder.close()
        self._write()
        return self.folder

    def nemesis(self, package: str, value: dict[str, Any]) -> None:
        self.recorder.record(None, "info", package, value)

    def _elections(self) -> None:
        leaders = {"1": 1, "2": 2, "3": 3}
        self.at(0, lambda: self.nemesis(CLUSTER, {"leaders": dict(leaders)}))
        for fault in self.faults:
            if fault.package in ("kill", "partition", "range"):
                name, node = self.rng.choice(sorted(leaders)), self.rng.randint(1, self.shape.nodes)
                value = {"leaders": {name: node}}
                self.at(fault.began + SECOND, partial(self.nemesis, CLUSTER, value))

    def client(self, step: Callable[[int], None]) -> None:
        process = self.next_process
        self.next_process += 1
        clients = self.shape.producers + self.shape.pollers
        pause = clients / self.shape.rate * SECOND
        begin = self.now + int(self.rng.random() * pause)
        if begin < self._moment(1):
            self.at(begin, lambda: step(process))

    def took(self) -> int:
        slow = sum(f.began <= self.now < f.ended for f in self.faults)
        return int(self.rng.lognormvariate(1.0 + 0.8 * slow, 0.5) * 1e6)

    def again(self, process: int, step: Callable[[int], None]) -> None:
        pause = (self.shape.producers + self.shape.pollers) / self.shape.rate * SECOND
        at = self.now + int(self.rng.expovariate(1 / pause))
        if at < self._moment(1):
            self.at(at, lambda: step(process))

    def append(self, process: int) -> None:
        key = f"k{self.rng.randrange(self.shape.keys)}"
        self.numbers[process] += 1
        value = f"p{process}-{self.numbers[process]}"
        asked = {"producer": f"p{process}", "records": [[key, value]]}
        event = self.recorder.record(process, "invoke", "append", asked)
        if self.outage[0] <= self.now < self.outage[1]:
            late = self.rng.random() < 0.6
            self.at(
                self.now + (1 * SECOND if late else 200_000_000),
                lambda: self.refused(process, late),
            )
            return
        self.at(self.now + self.took(), lambda: self.appended(process, event.index, key, value))

    def refused(self, process: int, late: bool) -> None:
        if late:
            self.recorder.record(process, "info", "append", error="TIMEOUT: no answer within 1 s")
            self.client(self.append)
        else:
            error = "UNAVAILABLE: range 2 has no leader that a majority follows"
            self.recorder.record(process, "fail", "append", error=error)
            self.again(process, self.append)

    def appended(self, process: int, index: int, key: str, value: str) -> None:
        self.cluster.seq += self.rng.randint(1, 3)
        seq = self.cluster.seq
        self.recorder.record(process, "ok", "append", {"seqs": [seq]})
        lose = not self.shape.valid and not self.lost and key == LOST_KEY
        if lose and self.now > self.outage[0] - 2 * SECOND:
            self.lost.append(index)
            self.cluster.hidden = key, seq, value
        else:
            self.cluster.entries.setdefault(key, []).append((self.now, seq, value))
        self.again(process, self.append)

    def poll(self, process: int) -> None:
        key = f"k{self.rng.randrange(self.shape.keys)}"
        after = self.positions.setdefault(process, {}).get(key, 0)
        asked = {"key": key, "after": after, "consistency": "linearizable"}
        self.recorder.record(process, "invoke", "poll", asked)
        if self.outage[0] <= self.now < self.outage[1]:
            self.at(self.now + 1 * SECOND, lambda: self.unpolled(process))
        else:
            self.at(self.now + self.took() // 2, lambda: self.polled(process, key, after))

    def unpolled(self, process: int) -> None:
        self.recorder.record(process, "fail", "poll", error="UNAVAILABLE: nobody leads range 2")
        self.again(process, self.poll)

    def polled(self, process: int, key: str, after: int) -> None:
        own = self.cluster.entries.get(key, [])
        first = bisect.bisect_right(own, after, key=lambda entry: entry[1])
        got: list[list[Any]] = [[seq, value] for _, seq, value in own[first : first + 50]]
        if got:
            self.positions[process][key] = got[-1][0]
        self.recorder.record(process, "ok", "poll", {"entries": got})
        self.again(process, self.poll)

    def _finals(self) -> None:
        keys = {k: [[s, v] for _, s, v in own] for k, own in self.cluster.entries.items()}
        for node in [None, *range(1, self.shape.nodes + 1)]:
            process = self.next_process
            self.next_process += 1
            self.recorder.record(process, "invoke", "final", {}, node=node)
            self.now += 30_000_000
            held = dict(keys)
            if node == 2 and not self.shape.valid:
                held[LOST_KEY] = held[LOST_KEY][:-1]
            self.recorder.record(process, "ok", "final", {"keys": held}, node=node)

    def _results(self) -> list[Result]:
        lost, enough = Result("append", counts={"keys": self.shape.keys}), Result("enough")
        if not self.lost or self.cluster.hidden is None:
            return [lost, enough]
        finals = [e for e in self.recorder.events if e.f == "final" and e.type == "invoke"]
        key, seq, value = self.cluster.hidden
        lost.anomalies.append(Anomaly(
            "lost-write", f"{value} was acknowledged at seq {seq} of {key}, and no final read has "
            f"it (middle: there are later entries)", key,
            (self.lost[0], finals[0].index), "S2",
        ))  # fmt: skip
        _, last_seq, last_value = self.cluster.entries[LOST_KEY][-1]
        lost.anomalies.append(Anomaly(
            "lost-on-node", f"node 2 lacks seq {last_seq} of {key} ({last_value}), which all "
            "others hold", key, (finals[2].index, finals[0].index), "L2",
        ))  # fmt: skip
        return [lost, enough]

    def _write(self) -> None:
        shape = self.shape
        test: dict[str, Any] = {
            "workload": "append", "nemesis": list(shape.nemesis), "nodes": shape.nodes,
            "rate": shape.rate, "time_limit_s": float(shape.seconds), "nemesis_interval_s": 5.0,
            "seed": shape.seed, "commit": "0123abc", "version": "0.1.0", "proxy": "embedded",
            "began": "2026-01-02T03:04:05Z", "source": None, "options": {},
        }  # fmt: skip
        results = self._results()
        wrong = [one for result in results for one in result.anomalies]
        counts = Counter(e.type for e in self.recorder.events if e.process is not None)
        del counts["invoke"]
        told: dict[str, Any] = {
            "verdict": "invalid" if wrong else "valid",
            "why": f"{len(wrong)} anomalies; the first: {wrong[0].message}" if wrong
            else "All answers to clients agree with all reads.",
            "checkers": {one.checker: one.to_json() for one in results},
            "counts": dict(counts), "duration_s": round(self.now / 1e9, 1),
        }  # fmt: skip
        (self.folder / "test.json").write_text(json.dumps(test))
        (self.folder / "results.json").write_text(json.dumps(told))
