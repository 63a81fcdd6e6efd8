"""The rules from one generation of a range to the next, checked from outside.

Each generation has a `SafetyChecker` of its own; this checker connects them. It follows the rules
of docs/design/ranges.md#seal-decide-install. The next generation begins with exactly the state at
its parent's seal (x6, x8), and only with a majority of its members holding that state durably (x7).
Its number is one above its parent's (x26), and it begins at most once on each node (x3). Nothing
after the seal has any effect.
"""

from collections.abc import Collection, Mapping, Sequence

from ...partitions.model import CONTROLLER_RANGE, Descriptor, Lineage, Span
from ...partitions.recovery import KIND, SEQS_LEFT_OUT
from ...raft.types import SENTINEL_INDEX, SENTINEL_TERM, GroupId
from ...statemachine.unite import united_hash
from .safety import SafetyChecker
from .violation import Violation


class Generations:
    """Checkers by group. Every method raises Violation."""

    def __init__(self) -> None:
        self.checkers: dict[GroupId, SafetyChecker] = {}
        self._known: dict[GroupId, Descriptor] = {}
        self._marks: dict[tuple[int, int], int] = {}
        """Per (node, range) the highest generation that began there."""
        self._seals: dict[GroupId, tuple[int, int]] = {}
        """Index and term of the last entry that counts."""
        self._decided: dict[GroupId, Lineage] = {}
        """The end of each generation that has a successor."""
        self._outputs: set[GroupId] = set()
        self._heirs: dict[GroupId, list[Span]] = {}
        """The key spans of the successors of a generation."""
        self._alone: dict[GroupId, Descriptor] = {}
        """Generations that one member ends alone, as that member knows them."""
        self._left: dict[GroupId, SafetyChecker] = {}
        """The checkers of the other members of these generations."""
        self._next_seqs: dict[GroupId, dict[int, int]] = {}
        """The next seq after entries of a generation, and the one with which it begins."""
        self._kept: dict[GroupId, int] = {}
        """For a generation that one member ends alone: no entry below this seq is lost."""
        self._recovered: set[GroupId] = set()
        """Generations that unsafe recovery has begun."""
        self.replacements = 0
        """The number of generations that began with replacements for members that are gone."""

    @property
    def seals(self) -> int:
        """How many generations have ended."""
        return len(self._seals)

    @property
    def joins(self) -> int:
        """How many generations have several parents."""
        return sum(len(self._known[gid].lineage) > 1 for gid in self._outputs)

    @property
    def splits(self) -> int:
        """How many generations several ranges have as their parent."""
        return sum(len(heirs) > 1 for heirs in self._heirs.values())

    def checker(self, descriptor: Descriptor) -> SafetyChecker:
        """Return the checker of a generation; all who take part must know the same descriptor."""
        gid = GroupId(descriptor.range_id, descriptor.generation)
        known = self._known.setdefault(gid, descriptor)
        alone = self._alone.get(gid)
        if alone is not None and known.fingerprint() == descriptor.fingerprint():
            return self._left[gid]
        if (alone or known).fingerprint() != descriptor.fingerprint():
            raise Violation("x6", "two generations of one number", gid=gid,
                            members=(known.members, descriptor.members))  # fmt: skip
        found = self.checkers.get(gid)
        if found is None:
            found = SafetyChecker(descriptor.members, SENTINEL_INDEX, SENTINEL_TERM)
            self.checkers[gid] = found
        return found

    def alone(self, node: int, descriptor: Descriptor, applied: int) -> None:
        """Note that a member goes on alone, from its state at this entry, to end the generation."""
        gid = GroupId(descriptor.range_id, descriptor.generation)
        before = self.checkers[gid]
        kept = before.kept_by(node)
        numbers = self._next_seqs[gid]
        self._kept[gid] = numbers[max(index for index in numbers if index <= kept)]
        self._alone[gid], self._left[gid] = descriptor, before
        self.checkers[gid] = before.alone(node, applied)
        if gid in self._seals and self._seals[gid][0] > kept:
            del self._seals[gid]

    def numbered(self, gid: GroupId, index: int, next_seq: int) -> None:
        """Note that a member has applied this entry, and the seq that it gives next."""
        self._next_seqs[gid].setdefault(index, next_seq)

    def kept_below(self, parent: Lineage) -> int:
        """Return the seq below which a generation that one member ended alone has lost nothing."""
        return self._kept.get(GroupId(*parent[:2]), parent.next_seq)

    @property
    def recoveries(self) -> int:
        """How many generations have begun from the state of a single member."""
        return len(self._recovered)

    def recovered(self, node: int, marks: Mapping[int, int]) -> None:
        """Note the start of a node; `marks` has the highest generation of each range begun there.

        A forgotten generation could begin a second time.
        """
        for (marked, range_id), generation in self._marks.items():
            if marked == node and marks.get(range_id, 0) < generation:
                raise Violation("x3", "a restart forgot a generation that was begun", node=node,
                                range=range_id, generation=generation)  # fmt: skip

    def begun(
        self, node: int, descriptor: Descriptor, index: int, state_hash: bytes, next_seq: int
    ) -> None:
        """Check the begin of a generation on a node that never had it, with this state.

        A late member begins from a base that the generation itself has made since (x2.16). Its
        state is compared with the state of others at that entry, not with the parent's end.
        """
        gid = GroupId(descriptor.range_id, descriptor.generation)
        mark = self._marks.get((node, gid.range_id), 0)
        if gid.generation <= mark:
            raise Violation("x3", "a generation begins twice on a node", node=node, gid=gid,
                            mark=mark)  # fmt: skip
        self._marks[node, gid.range_id] = gid.generation
        if gid.range_id == CONTROLLER_RANGE:
            return
        late = index > SENTINEL_INDEX
        self._next_seqs.setdefault(gid, {}).setdefault(index, next_seq)
        if late:
            self.checkers[gid].same_state(node, index, state_hash)
        if not late and descriptor.lineage:
            expected = _state_after(descriptor.lineage, lost=gid in self._recovered)
            if expected != (state_hash, next_seq):
                raise Violation("x6", "a generation begins with another state than its parents'",
                                node=node, gid=gid, next_seq=next_seq)  # fmt: skip
        generations = [parent.generation for parent in descriptor.lineage]
        if generations and gid.generation != 1 + max(generations):
            raise Violation("x26", "a generation's number", gid=gid, parents=generations)

    def sealed(self, gid: GroupId, index: int, term: int, state_hash: bytes) -> None:
        """Note the state after a member applied the last entry of a generation."""
        if self._seals.setdefault(gid, (index, term)) != (index, term):
            raise Violation("x6", "a generation ends twice", gid=gid, index=index,
                            first=self._seals[gid])  # fmt: skip
        self.checkers[gid].same_state(0, index, state_hash)

    def acknowledged(self, gid: GroupId, index: int) -> None:
        """Note that a client is told that an entry is in the log."""
        seal = self._seals.get(gid)
        if seal is not None and index > seal[0]:
            raise Violation("S5", "acknowledged after the generation's end", gid=gid, index=index)

    def decided(
        self,
        descriptor: Descriptor,
        ends: Mapping[int, Collection[Lineage]],
        kind: str = "",
    ) -> bool:
        """Check a generation that the controller committed; return whether that is news.

        `kind` is the kind of the operation. `ends` has, per node, the ends of parents that the node
        holds durably now.
        """
        gid = GroupId(descriptor.range_id, descriptor.generation)
        self.checker(descriptor)
        if gid in self._outputs:
            return False
        self._outputs.add(gid)
        before = self._known[GroupId(*descriptor.lineage[0][:2])]
        if kind == "repair" and before.members != descriptor.members:
            self.replacements += 1
        if kind == KIND:
            self._recovered.add(gid)
        for parent in descriptor.lineage:
            first = self._decided.setdefault(GroupId(*parent[:2]), parent)
            heirs = self._heirs.setdefault(GroupId(*parent[:2]), [])
            if first != parent or any(map(descriptor.span.overlaps, heirs)):
                raise Violation("x6", "a generation is continued twice", gid=gid, parent=parent)
            heirs.append(descriptor.span)
            index, term = self._seals.get(GroupId(*parent[:2]), (0, 0))
            if (index, term) != (parent.final_index, parent.final_term):
                raise Violation("x6", "decided on another end than the seal's", gid=gid,
                                parent=parent, seal=(index, term))  # fmt: skip
            self.checkers[GroupId(*parent[:2])].same_state(0, index, parent.state_hash)
            ready = [node for node in descriptor.members if parent in ends.get(node, ())]
            if len(ready) <= len(descriptor.members) // 2:
                raise Violation("x7", "decided before a majority is prepared", gid=gid,
                                members=descriptor.members, ready=ready)  # fmt: skip
        return True


def _state_after(lineage: Sequence[Lineage], *, lost: bool) -> tuple[bytes, int]:
    """Return hash and next seq with which the next generation begins.

    Seqs that may be `lost` are not given again.
    """
    hashes = [parent.state_hash for parent in lineage]
    next_seq = max(parent.next_seq for parent in lineage) + (SEQS_LEFT_OUT if lost else 0)
    return hashes[0] if len(hashes) == 1 else united_hash(hashes), next_seq
