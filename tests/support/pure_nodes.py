"""Nodes that do at once what `partitions.duties` asks of them, without any I/O: for tests of how
one generation follows another, by the pure functions alone."""

from dataclasses import replace

from lognode.partitions.duties import (
    Begin,
    Copy,
    Duty,
    Flush,
    Held,
    Local,
    Prepare,
    Retire,
    Seal,
    Tell,
    duties,
)
from lognode.partitions.facts import Facts
from lognode.partitions.lineage import Gid
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Lineage


def do(metadata: Metadata, **command: object) -> None:
    """A command that must not be refused."""
    answer = metadata.apply(1, 1, command)
    assert "ok" in answer, answer


def end_of(gid: Gid) -> Lineage:
    """How every generation ends here."""
    return Lineage(*gid, 40, 3, 100, 5, b"hash")


class Nodes:
    """What nodes have, and ranges that are led by whoever asked for it. Who is `down` does nothing;
    what it led is led by another of the members, while most of them are up."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.nodes = {node: Local(node_id=node) for node in metadata.nodes}
        self.down: set[int] = set()

    def leader(self, gid: Gid) -> int | None:
        """Who leads a generation."""
        for node, local in self.nodes.items():
            if node not in self.down and gid in local.replicas and local.replicas[gid].leads:
                return node
        return None

    def look(self, facts: Facts, now: float) -> None:
        """Every node that is up is heard, and does what it is asked now."""
        for node in self.nodes.keys() - self.down:
            facts.heard[node] = now
            for duty in duties(self.metadata, self.nodes[node]):
                self._done(node, duty, facts, now)
        for gid in {gid for local in self.nodes.values() for gid in local.replicas}:
            self._elect(gid)

    def _elect(self, gid: Gid) -> None:
        holders = [node for node, local in self.nodes.items() if gid in local.replicas]
        up = [node for node in holders if node not in self.down]
        members = self.nodes[holders[0]].replicas[gid].members
        leader = self.leader(gid)
        if leader is None and 2 * len(up) > len(members):
            leader = up[-1]
        for node in up:
            self._set(node, gid, leads=node == leader, leader=leader)

    def _set(self, node: int, gid: Gid, **what: object) -> None:
        local = self.nodes[node]
        held = local.replicas[gid]._replace(**what)  # type: ignore[arg-type]
        self.nodes[node] = replace(local, replicas={**local.replicas, gid: held})

    def _done(self, node: int, duty: Duty, facts: Facts, now: float) -> None:
        local = self.nodes[node]
        match duty:
            case Begin(range_, source, campaign):
                gid = (range_.range_id, range_.generation)
                if source in ("peers", "late") and not self._can_fetch(node, duty):
                    return
                held = Held(
                    leads=campaign, leader=None, members=range_.members, sealed=False, end=None,
                    memtable_bytes=0, base_wanted=False,
                )  # fmt: skip
                self.nodes[node] = replace(
                    local,
                    replicas={**local.replicas, gid: held},
                    marks={**local.marks, gid[0]: gid[1]},
                )
            case Tell(operation, kind, lineage):
                told = {} if lineage is None else {"lineage": list(lineage)}
                facts.take(node, {"operation": operation, "kind": kind, **told}, now)
            case Copy(gid, operation):
                self.nodes[node] = replace(local, copied={*local.copied, (operation, gid)})
            case Flush(gid):
                self._set(node, gid, end=end_of(gid))
            case Seal(gid):
                for other in self.nodes.keys() - self.down:
                    if gid in self.nodes[other].replicas:
                        self._set(other, gid, sealed=True)
            case Prepare(gid, operation):
                prepared = {**local.prepared, operation: end_of(gid)}
                self.nodes[node] = replace(local, prepared=prepared)
            case Retire(gids):
                kept = {gid: held for gid, held in local.replicas.items() if gid not in gids}
                self.nodes[node] = replace(local, replicas=kept)

    def _can_fetch(self, node: int, duty: Begin) -> bool:
        """Whether another node that is up has what the generation begins from."""
        range_ = duty.range_
        others = [self.nodes[other] for other in self.nodes.keys() - self.down - {node}]
        if duty.source == "late":
            return any((range_.range_id, range_.generation) in other.replicas for other in others)
        parents = [(parent.range_id, parent.generation) for parent in range_.lineage]
        return all(
            any(gid in other.replicas and other.replicas[gid].end for other in others)
            for gid in parents
        )
