"""Random faults of a cluster of real processes, drawn from one seed.

Every kind comes once before any comes again, so that a short run has met all of them. At most one
node is damaged at a time: the next fault waits until its ranges have gone on to generations in
which it takes part again. What looks like the torn tail of a power cut costs a member what it
said to have; so nobody else dies until it has caught up.
"""

import contextlib
import json
import random
import shutil
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster_load import Load

import lognode
from lognode import testing
from lognode.partitions.leaving import DEAD_AFTER_S
from lognode.partitions.model import CONTROLLER_RANGE

Node = testing.LocalNode
_REPAIRED_S = 60.0
_READS_AT_REST = 12


class Faults:
    """Picks a fault, makes it, ends it."""

    def __init__(
        self, cluster: testing.LocalCluster, client: lognode.Client, log: str, load: Load, seed: int
    ) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._client = client
        self._log = log
        self._load = load
        self._rng = random.Random(seed)
        self._began = time.monotonic()
        self._deck: list[Callable[[], None]] = []
        self.count: Counter[str] = Counter()

    def one(self) -> None:
        """One fault, from its begin to its end; all nodes run before and after."""
        if not self._deck:
            self._deck = [
                self._kill, self._kill, self._pause, self._stop, self._transfer, self._rest,
                self._rest, self._flip_wal, self._truncate_wal, self._lose_wal,
                self._flip_segment, self._lose_segment, self._pause_until_dead, self._split,
                self._split, self._merge, self._merge,
            ]  # fmt: skip
            self._rng.shuffle(self._deck)
        self._deck.pop()()
        for node in self._nodes:
            node.wait_ready()

    def _say(self, what: str, victims: list[Node]) -> None:
        self.count[what] += 1
        at = time.monotonic() - self._began
        print(f"{at:6.1f} s: {what} {[node.number for node in victims]}", flush=True)

    def _victims(self) -> list[Node]:
        return self._rng.sample(self._nodes, self._rng.choice((1, 1, 1, 2, 3)))

    # Ranges.

    def _split(self) -> None:
        """At a key of the log; where a range begins there already, at none."""
        keys = list(self._client.log(self._log).keys())
        self._say("split", [])
        with contextlib.suppress(lognode.InvalidArgument, lognode.OperationInProgress):
            self._client.admin.split(self._log, at=self._rng.choice(keys))

    def _merge(self) -> None:
        """Of two neighbours, where there are any; it may be given up."""
        ranges = self._client.log(self._log).describe()["ranges"]
        self._say("merge", [])
        if len(ranges) > 1:
            at = self._rng.choice(ranges[1:])["start"]
            with contextlib.suppress(lognode.Conflict, lognode.OperationInProgress):
                self._client.admin.merge(self._log, at=at)

    # Processes.

    def _kill(self) -> None:
        victims = self._victims()
        self._say("kill", victims)
        for node in victims:
            node.kill()
        self._while_down(victims)
        for node in victims:
            node.start()

    def _stop(self) -> None:
        victims = self._victims()
        self._say("stop", victims)
        for node in victims:
            node.signal(signal.SIGTERM)
        for node in victims:
            assert node.wait_end() == 0, f"L4: node {node.number} did not stop in order"
        self._while_down(victims)
        for node in victims:
            node.start()

    def _pause(self) -> None:
        victims = self._victims()
        self._say("pause", victims)
        with _standing_still(victims):
            self._while_down(victims)

    def _pause_until_dead(self) -> None:
        victim = self._rng.choice(self._nodes)
        self._say("pause until dead", [victim])
        with _standing_still([victim]):
            testing.eventually(
                lambda: self._state_of(victim) == "DEAD", timeout_s=3 * DEAD_AFTER_S, what="DEAD"
            )
            self._load.go_on(50)
        testing.eventually(lambda: self._state_of(victim) == "ACTIVE", what="heard again")

    def _while_down(self, victims: list[Node]) -> None:
        """With a majority left: until appends go on. Without: until nothing more can be acked."""
        if len(victims) == 1:
            self._load.go_on(self._rng.choice((1, 50, 300)))
            return
        count = -1
        while count != self._load.count:
            count = self._load.count
            time.sleep(0.05)

    # The lead, and rest.

    def _transfer(self) -> None:
        """Moves the lead of random ranges, the controller's among them, under load."""
        self._say("transfer", [])
        for _ in range(self._rng.randrange(1, 6)):
            range_id = self._rng.choice([0, *(range_["id"] for range_ in self._ranges())])
            target = self._rng.choice(self._nodes).number
            try:
                self._client.admin.transfer(range_id, to_node=target, timeout=10)
                self.count["transferred"] += 1
            except lognode.LognodeError as error:
                print(f"         range {range_id} not to node {target}: {error}")

    def _rest(self) -> None:
        """Nothing is appended until all groups rest; they serve reads meanwhile, and wake when the
        load goes on, in half the cases without the node that led or followed."""
        self._say("rest", [])
        with self._load.paused():
            for _ in range(self._rng.randrange(1, 4)):
                self._until_all_rest()
                self._load.read(self._rng.randrange(1, _READS_AT_REST))
            self._until_all_rest()
            victim = self._rng.choice(self._nodes) if self._rng.random() < 0.5 else None
            if victim is not None:
                self._say("kill at rest", [victim])
                victim.kill()
        self._load.go_on(30)
        if victim is not None:
            victim.start()

    def _until_all_rest(self) -> None:
        ranges = self._client.status(timeout=20)["ranges"]
        groups = sum(range_["id"] != CONTROLLER_RANGE for range_ in ranges)
        testing.eventually(
            lambda: all(_idle(node) >= groups for node in self._nodes),
            timeout_s=30, what="all groups rest",
        )  # fmt: skip

    # Disks.

    def _flip_wal(self) -> None:
        def damage(node: Node) -> None:
            file = self._rng.choice(_files(node, "wal"))
            _flip(file, self._rng.randrange(file.stat().st_size))

        self._damage("flip in the WAL", damage)

    def _truncate_wal(self) -> None:
        def damage(node: Node) -> None:
            file = self._rng.choice(_files(node, "wal"))
            with open(file, "r+b") as wal:
                wal.truncate(self._rng.randrange(file.stat().st_size))

        self._damage("truncate the WAL", damage)

    def _lose_wal(self) -> None:
        self._damage("lose the WAL", lambda node: shutil.rmtree(node.data / "wal"), sure=True)

    def _flip_segment(self) -> None:
        def damage(node: Node) -> None:
            for file in self._segment(node):
                _flip(file, self._rng.randrange(file.stat().st_size))

        self._damage("flip in a segment", damage)

    def _lose_segment(self) -> None:
        def damage(node: Node) -> None:
            for file in self._segment(node):
                file.unlink()

        self._damage("lose a segment", damage)

    def _segment(self, node: Node) -> list[Path]:
        """One, or none when nothing was brought into segments yet."""
        found = [file for file in _files(node, "files") if file.stat().st_size]
        return [self._rng.choice(found)] if found else []

    def _damage(self, what: str, damage: Callable[[Node], None], *, sure: bool = False) -> None:
        """`sure`: the node sees it whatever was hit, so that another may die meanwhile."""
        victim, other = self._rng.sample(self._nodes, 2)
        self._say(what, [victim])
        victim.kill()
        self._load.go_on(self._rng.choice((1, 50)))
        damage(victim)
        since = len(victim.log_path.read_bytes())
        victim.start()
        if sure and self._rng.random() < 0.5:
            testing.eventually(lambda: _refused(victim, since), what="the damage is seen")
            self._say("kill during the repair", [other])
            other.kill()
            time.sleep(self._rng.random())
            other.start()
        for node in self._nodes:
            node.wait_ready()
        refused = _refused(victim, since)
        assert refused or not sure, f"node {victim.number} did not see that its WAL is lost"
        self.count["ranges damaged"] += len(refused)
        testing.eventually(
            lambda: self._over(refused), timeout_s=_REPAIRED_S, what=f"repair of {refused}"
        )
        testing.wait_healthy(self._cluster)
        with lognode.Client(self._cluster.servers, timeout=30) as client:
            for range_ in self._ranges():
                # Linearizable: it has applied what was committed before it answers.
                client.log(self._log).latest(range_["start"] or b" ", node=victim.number)
        self._load.go_on(30)

    def _over(self, refused: dict[int, int]) -> bool:
        """Whether all these ranges have gone on to later generations."""
        with contextlib.suppress(lognode.LognodeError):
            status = self._client.status(timeout=2)
            now = {range_["id"]: range_["generation"] for range_ in status["ranges"]}
            return all(now[range_id] > refused[range_id] for range_id in refused)
        return False

    # What the cluster says.

    def _ranges(self) -> list[dict[str, Any]]:
        ranges = self._client.status(timeout=20)["ranges"]
        return [range_ for range_ in ranges if range_["log"] == self._log]

    def _state_of(self, node: Node) -> str:
        with contextlib.suppress(lognode.LognodeError):
            for row in self._client.status(timeout=2)["nodes"]:
                if row["id"] == node.number:
                    return str(row["state"])
        return ""


@contextlib.contextmanager
def _standing_still(victims: list[Node]) -> Any:
    for node in victims:
        node.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for node in victims:
            node.signal(signal.SIGCONT)


def _files(node: Node, folder: str) -> list[Path]:
    return sorted(file for file in (node.data / folder).iterdir() if file.stat().st_size)


def _flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 16]))


def _refused(node: Node, since: int) -> dict[int, int]:
    """Range and generation of the replicas that the node gave up since this byte of its log."""
    refused = {}
    for line in node.log_path.read_bytes()[since:].splitlines():
        if b"takes no part" in line:
            event = json.loads(line)
            refused[event["range"]] = event["generation"]
    return refused


def _idle(node: Node) -> float:
    """How many of the node's groups rest."""
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("lognode_idle_replicas "):
                return float(line.split()[-1])
    return 0.0
