"""Size and load of the cluster's replicas, asked of all nodes at once.

Only the leader of a range knows its rate of appends, and nothing needs the rate until a client asks
for the status. So heartbeats do not carry it. Each node is asked once for all status requests at
the same time. A node that does not answer in time is left out, and the load of the ranges that it
leads is unknown, never 0.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from ...client.connection import Connection
from ...client.protocol.errors import LognodeError, RemoteProtocolError
from ...client.protocol.peers import LOADS
from ...partitions.load_sample import HotKey
from ...partitions.model import Descriptor
from ..metadata.view import View
from ..metrics import Metrics
from ..replicas.host import Host
from ..replicas.load import SAMPLE_S
from ..replicas.range_replica import RangeReplica
from ..replicas.read_turns import in_turns
from ..runtime.slices import in_slices, one_by_one
from ..runtime.together import Together

_ASK_S: Final = 0.5
"""How long to wait for the other nodes."""
_MEASURE_S: Final = 1.0
_MEASURE_AGAIN_S: Final = 300.0
"""Delay after a file could not be read; other code looks for damage."""

Body = dict[str, Any]
Gid = tuple[int, int]


class Load(NamedTuple):
    """The load of one replica. Rates are per second over the last minute; None: unknown."""

    leads: bool
    segment_bytes: int | None
    """Bytes of segments, with the range's part of files that are shared since a split; None while
    that part is unknown."""
    memtable_bytes: int
    entries_held: int | None
    """Stored entries, including entries that are no longer visible. None as above."""
    records_per_s: float | None
    bytes_per_s: float | None
    reads_per_s: float | None
    hot_key: HotKey | None
    """None also while the range is not busy."""


ByNode = Mapping[int, Mapping[Gid, Load]]
"""The loads of each node's replicas, for nodes that answered."""


class Loads:
    """Both sides of load reports.

    `run` samples the counters and measures shared files, `everywhere` asks, `serve` answers.
    `present` says whether a node is known to be up.
    """

    def __init__(
        self,
        *,
        node_id: int,
        host: Host,
        view: View,
        connection: Callable[[int], Connection | None],
        present: Callable[[int], bool],
        metrics: Metrics,
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._view = view
        self._connection = connection
        self._others = Together(self._of)
        self._present = present
        self._measure_at: WeakKeyDictionary[RangeReplica, float] = WeakKeyDictionary()
        """When to measure a replica's share of its files again, after the last try failed."""
        metrics.operations.set_function(lambda: len(view.metadata.operations))

    async def run(self) -> None:
        """Run until cancelled."""
        due = time.monotonic() + SAMPLE_S
        while True:
            await asyncio.sleep(_MEASURE_S)
            async for replica in one_by_one(self._host.ranges()):
                if not replica.state.is_measured:
                    await self._measure(replica)
            if time.monotonic() >= due:
                due += SAMPLE_S
                await in_slices(_sampled(self._host.ranges()))

    async def _measure(self, replica: RangeReplica) -> None:
        """Measure the range's part of files that it shares with other ranges, if that is due."""
        if self._measure_at.get(replica, 0.0) > time.monotonic():
            return
        measure = replica.state.measure
        try:
            while not await in_turns(replica, measure):  # noqa: ASYNC110  works, and does not poll
                await asyncio.sleep(0)
        except LognodeError:  # it stopped, or a file is damaged: reads and scrub handle that
            self._measure_at[replica] = time.monotonic() + _MEASURE_AGAIN_S

    async def serve(self, _: int, __: Body) -> Body:
        """Answer another node with the loads of the replicas here."""
        here = await self.here()
        return {"loads": [[*gid, *load] for gid, load in here.items()]}

    async def everywhere(self) -> ByNode:
        """Return the loads of all replicas on nodes that answer."""
        nodes = [node for node in self._view.metadata.nodes if node != self._node_id]
        asked = {node: self._others.begin(node) for node in nodes}
        found: dict[int, Mapping[Gid, Load]] = {self._node_id: await self.here()}
        for node, task in asked.items():
            loads = await asyncio.shield(task)
            if loads is not None:
                found[node] = loads
        return found

    async def here(self) -> dict[Gid, Load]:
        """Return the loads of the replicas on this node."""
        return dict(await in_slices(_loads(self._host.ranges())))

    async def _of(self, node: int) -> dict[Gid, Load] | None:
        connection = self._connection(node) if self._present(node) else None
        if connection is None:
            return None
        deadline = asyncio.get_running_loop().time() + _ASK_S
        try:
            answer = await connection.request(LOADS, {}, deadline=deadline)
            return from_wire(answer.get("loads"))
        except LognodeError:
            return None  # the node is busy, gone, or of a version without loads


def of_range(range_: Descriptor, leader: int | None, by_node: ByNode) -> Body:
    """Return size, rates and hot key of a range, as its leader reports them.

    Reads are summed over all members that answered. Each value is None when the leader did not
    answer, or says that it does not lead.
    """
    gid = (range_.range_id, range_.generation)
    led = None if leader is None else by_node.get(leader, {}).get(gid)
    if led is None or not led.leads:
        return dict.fromkeys(Load._fields[1:])
    members = [by_node[node].get(gid) for node in range_.members if node in by_node]
    reads = [load.reads_per_s for load in members if load is not None]
    told = [rate for rate in reads if rate is not None]
    row = led._asdict()
    del row["leads"]
    return {
        **row,
        "reads_per_s": None if led.reads_per_s is None else round(sum(told), 3),
        "hot_key": None if led.hot_key is None else led.hot_key._asdict(),
    }


def from_wire(told: object) -> dict[Gid, Load]:
    """Check the answer of `Loads.serve`. Raises RemoteProtocolError if the answer is invalid."""
    if not isinstance(told, list) or not all(map(_is_load, told)):
        raise RemoteProtocolError("the loads of a report are not valid")
    return {(range_id, generation): _load(load) for range_id, generation, *load in told}


def _load(told: Sequence[Any]) -> Load:
    load = Load(*told)
    return load if load.hot_key is None else load._replace(hot_key=HotKey(*load.hot_key))


def _is_load(row: object) -> bool:
    if not isinstance(row, list) or len(row) != 2 + len(Load._fields):
        return False
    counts, leads, rates, hot = [*row[:2], *row[3:6]], row[2], row[6:9], row[9]
    if row[3] is None and row[5] is None:
        counts = [*row[:2], row[4]]
    return (
        type(leads) is bool
        and (hot is None or (isinstance(hot, list) and list(map(type, hot)) == [bytes, float]))
        and all(type(count) is int and count >= 0 for count in counts)
        and all(rate is None or (type(rate) is float and rate >= 0.0) for rate in rates)
    )


def _loads(replicas: Iterable[RangeReplica]) -> Iterator[tuple[Gid, Load]]:
    for replica in replicas:
        state, hot = replica.state, replica.hot_key
        load = Load(
            leads=replica.leads,
            segment_bytes=state.segment_bytes,
            memtable_bytes=state.memtable_bytes,
            entries_held=state.entries_held,
            records_per_s=None,
            bytes_per_s=None,
            reads_per_s=None,
            hot_key=None if hot is None else hot._replace(share=round(hot.share, 2)),
        )
        rates = replica.load.rates(time.monotonic())
        if rates is not None:
            load = load._replace(
                records_per_s=round(rates.records, 3),
                bytes_per_s=round(rates.bytes, 3),
                reads_per_s=round(rates.reads, 3),
            )
        yield replica.gid, load


def _sampled(replicas: Iterable[RangeReplica]) -> Iterator[None]:
    for replica in replicas:
        replica.load.sample(time.monotonic())
        yield None
