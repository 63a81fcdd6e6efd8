"""Nodes that do at once what `partitions.duties` asks of them, without any I/O: for tests of how
one generation follows another, by the pure functions alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from lognode.partitions import commands
from lognode.partitions.change import next_steps
from lognode.partitions.duties import (
    Begin,
    Copy,
    Duty,
    Flush,
    GoAlone,
    Held,
    LearnEnd,
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


def cluster(nodes: int = 3, replicas: int = 3, **log: Any) -> Metadata:
    """So many nodes, the controller on the first three, and a log `orders`."""
    metadata = Metadata()
    do(metadata, op=commands.FOUND, cluster="c", node=1)
    for node in range(1, nodes + 1):
        do(metadata, op=commands.REGISTER, incarnation=node, boot=1, process=1, address="a:1")
    do(metadata, op=commands.CREATE_LOG, name="orders", replicas=replicas, **log)
    metadata.controller = replace(metadata.controller, members=(1, 2, 3))
    return metadata


class Nodes:
    """The replicas of nodes. The nodes that asked for ranges lead them.

    A node that is `down` does nothing. Another member leads its ranges, while most members are up.
    """

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.nodes = {node: Local(node_id=node) for node in metadata.nodes}
        self.down: set[int] = set()

    def leader(self, gid: Gid) -> int | None:
        """The leader of a generation."""
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
            case Begin(range_, campaign, parents, late):
                gid = (range_.range_id, range_.generation)
                if (late or "peers" in parents) and not self._can_fetch(node, duty):
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
            case LearnEnd(gid):
                self._set(node, gid, sealed=True)
            case GoAlone(gid):
                self._set(node, gid, members=(node,), stopped=False, leads=True, leader=node)
            case StandDown(gid):
                self._set(node, gid, stopped=True, leads=False, leader=None)
            case Prepare(gid, operation):
                prepared = {**local.prepared, (operation, gid): end_of(gid)}
                self.nodes[node] = replace(local, prepared=prepared)
            case Retire(gids):
                kept = {gid: held for gid, held in local.replicas.items() if gid not in gids}
                self.nodes[node] = replace(local, replicas=kept)

    def _can_fetch(self, node: int, duty: Begin) -> bool:
        """Whether another node that is up has what the generation begins from."""
        range_ = duty.range_
        others = [self.nodes[other] for other in self.nodes.keys() - self.down - {node}]
        if duty.late:
            return any((range_.range_id, range_.generation) in other.replicas for other in others)
        parents = [
            (parent.range_id, parent.generation)
            for parent, source in zip(range_.lineage, duty.parents, strict=True)
            if source == "peers"
        ]
        return all(
            any(gid in other.replicas and other.replicas[gid].end for other in others)
            for gid in parents
        )


VICTIMS: Final = ("nobody", "the range's leader", "a member", "the controller's leader")
PHASES: Final = ("PLANNED", "SEALING", "DECIDED")


def carry_out(nodes: Nodes, gids: Sequence[Gid], *, victim: str, phase: str, back: bool) -> None:
    """Carry operation 1 out, in which somebody dies in a phase and may come back: the crash table
    of docs/design/ranges.md#seal-decide-install. The range's leader is that of the first of
    these generations that has one."""
    facts = Facts()
    killed = None
    for tick in range(200):
        now = tick / 2
        operation = nodes.metadata.operations.get(1)
        if killed is None and operation is not None and operation.phase == phase:
            killed = now
            if victim == "the controller's leader":
                facts = Facts()  # the next one knows only the record
            elif victim != "nobody":
                leaders = [node for node in map(nodes.leader, gids) if node is not None]
                leader = leaders[0] if leaders else 1
                nodes.down = {leader if victim == "the range's leader" else leader % 3 + 1}
        if back and killed is not None and now > killed + 20:
            nodes.down = set()
        nodes.look(facts, now)
        for step in next_steps(nodes.metadata, facts, now, leads_for_s=now + 100.0):
            do(nodes.metadata, **step)
    assert killed is not None
    assert not nodes.metadata.operations
