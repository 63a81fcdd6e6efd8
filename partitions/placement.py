"""Where replicas go: in as many zones as there are, then on the nodes with the fewest replicas.

All nodes without a zone form one zone, whose name is empty.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from .model import Descriptor, NodeRecord, Operation


def load_of(ranges: Mapping[int, Descriptor], operations: Iterable[Operation]) -> "Counter[int]":
    """Count, per node, the replicas that it has or is to get by an operation under way."""
    load = Counter(member for range_ in ranges.values() for member in range_.members)
    for operation in operations:
        for output in operation.outputs:
            present = ranges.get(output.range_id)
            old = () if present is None else present.members
            load.update(set(output.members) - set(old))
    return load


def changing(
    ranges: Mapping[int, Descriptor], operations: Iterable[Operation]
) -> "Counter[tuple[str, int]]":
    """Count the replicas on their way "to" and "from" each node, by operations under way."""
    changes: Counter[tuple[str, int]] = Counter()
    for operation in operations:
        old = {
            member
            for range_id, _ in operation.inputs
            if range_id in ranges
            for member in ranges[range_id].members
        }
        new = {member for output in operation.outputs for member in output.members}
        changes.update(("to", node) for node in new - old)
        changes.update(("from", node) for node in old - new)
    return changes


def group_size(replicas: int, nodes: int) -> int:
    """Return the largest odd number within both: a group of two stops when either member fails."""
    size = max(1, min(replicas, nodes))
    return size if size % 2 else size - 1


class Homes:
    """The nodes that may get replicas. Each replica taken counts for the next choice."""

    def __init__(self, nodes: Iterable[NodeRecord], load: Mapping[int, int]) -> None:
        self._zones: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        """For each zone, a heap of pairs of replica count and node."""
        self._zone_of: dict[int, str] = {}
        for node in nodes:
            self._zone_of[node.node_id] = node.zone
            heapq.heappush(self._zones[node.zone], (load.get(node.node_id, 0), node.node_id))

    def __len__(self) -> int:
        return len(self._zone_of)

    def __contains__(self, node: object) -> bool:
        return node in self._zone_of

    def take(
        self, count: int, members: Collection[int] = (), zones: Iterable[str] = ()
    ) -> list[int]:
        """Return at most `count` nodes for a range that has these members, in these zones.

        Each node is in a zone that the members and the nodes chosen before use least, and has the
        fewest replicas there. The lower id decides between equals.
        """
        if len(self._zones) == 1 and not members:
            return self._take_emptiest(count)
        used = Counter(zones)
        taken: list[tuple[int, int]] = []
        passed: list[tuple[int, int]] = []
        while len(taken) < count:
            for heap in self._zones.values():
                while heap and heap[0][1] in members:
                    passed.append(heapq.heappop(heap))
            free = [(used[zone], heap[0], zone) for zone, heap in self._zones.items() if heap]
            if not free:
                break
            _, _, zone = min(free)
            taken.append(heapq.heappop(self._zones[zone]))
            used[zone] += 1
        for load, node in passed:
            heapq.heappush(self._zones[self._zone_of[node]], (load, node))
        for load, node in taken:
            heapq.heappush(self._zones[self._zone_of[node]], (load + 1, node))
        return [node for _, node in taken]

    def _take_emptiest(self, count: int) -> list[int]:
        """Choose as `take` does, where all nodes are in one zone and none is a member."""
        (heap,) = self._zones.values()
        taken = [heapq.heappop(heap) for _ in range(min(count, len(heap)))]
        for load, node in taken:
            heapq.heappush(heap, (load + 1, node))
        return [node for _, node in taken]
