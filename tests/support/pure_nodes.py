"""Nodes that do at once what `partitions.duties` asks of them, without any I/O: for tests of how
one generation follows another, by the pure functions alone."""

from dataclasses import replace

from lognode.partitions.duties import (
    Begin,
    Copy,
    Duty,
    Flush,
    GoAlone,
    Held,
    Local,
    Prepare,
    Retire,
    Seal,
    StandDown,
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
        groups = {
            (gid, held.members)
            for local in self.nodes.values()
            for gid, held in local.replicas.items()
        }
        for gid, members in groups:
            self._elect(gid, members)

    def _elect(self, gid: Gid, members: tuple[int, ...]) -> None:
        """Among those who have the generation with these members, and take part."""
        up = [node for node in self._holders(gid, members) if node not in self.down]
        leader = next((node for node in up if self.nodes[node].replicas[gid].leads), None)
        if leader is None and 2 * len(up) > len(members):
            leader = up[-1]
        for node in up:
            self._set(node, gid, leads=node == leader, leader=leader)

    def _holders(self, gid: Gid, members: tuple[int, ...]) -> list[int]:
        held = {node: local.replicas.get(gid) for node, local in self.nodes.items()}
        return [
            node for node, has in held.items()
            if has is not None and has.members == members and not has.stopped
        ]  # fmt: skip

    def restart(self, node: int) -> None:
        """What was stopped takes part until the node is asked again."""
        self.down.discard(node)
        for gid in self.nodes[node].replicas:
            self._set(node, gid, stopped=False, leads=False)

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
                members = local.replicas[gid].members
                for other in self._holders(gid, members):
                    if other not in self.down:
                        self._set(other, gid, sealed=True)
            case GoAlone(gid):
                self._set(node, gid, members=(node,), stopped=False, leads=True, leader=node)
            case StandDown(gid):
                self._set(node, gid, stopped=True, leads=False, leader=None)
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
