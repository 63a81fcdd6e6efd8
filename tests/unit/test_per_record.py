"""No Python for single records where C handles whole batches: calls and lines are counted.

Time does not count here. Real nodes and the SDK run under a tracer (`hot_path`), which counts the
calls and lines of Python that each further record takes, by part of lognode. docs/performance.md
explains the table that these tests print. A change that lowers a figure should lower its bound.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from call_counts import Counting, Events, Place, least, slope
from hot_path import LARGE, Costs, Paths
from live_nodes import live

from lognode import AsyncClient
from lognode.client import appends
from lognode.client.appends import AppendBatch, Columns, to_expect
from lognode.client.protocol.records import PackedBatch
from lognode.node.replicas import range_replica
from lognode.raft.wal import Wal
from lognode.statemachine import admission, segment_writer
from lognode.statemachine.memtable import Memtable
from lognode.statemachine.page import Page

pytestmark = pytest.mark.slow
SLACK: Final = 0.5
"""What a part may take above its bound: half of the least that Python does for a record."""
Bounds = Mapping[str, tuple[float, float]]
BOUNDS: Final[Mapping[str, Bounds]] = {
    "append_many": {},
    "append_with_headers": {"client": (17, 19), "statemachine": (8.1, 11.1)},
    "append_with_conditions": {"client": (1, 3)},
    "append_singly": {"client": (48, 103)},
    "append_followed": {"client": (6.1, 14.2), "statemachine": (23, 48.4)},
    "scan_memtable": {"client": (1, 3), "statemachine": (23, 48.4)},
    "scan_segment": {"client": (1, 3), "statemachine": (24, 41.1)},
    "snapshot_pages": {},
    "build": {},
}
"""Calls and lines for each record by path and part of lognode; none where no part is named."""
THREE_NODES: Final[Bounds] = {}
"""The same for `append_many` to three members, whose work counts three times."""


# Changes that bring Python for single records back. Each is in one place of a path, and the tests
# of the bounds must see each. An event counts for the part of lognode that calls the function.


def _comprehension(count: int) -> None:
    [None for _ in range(count)]


def _c_calls(count: int) -> None:
    [abs(number) for number in range(count)]


def _generator(count: int) -> None:
    sum(1 for _ in range(count))


def _lambdas(count: int) -> None:
    list(map(lambda number: number, range(count)))  # noqa: C417  a call for each number


class Mutation(NamedTuple):
    """A function of the product that does more for each record than it does today."""

    path: str
    part: str
    """The part of lognode where the events appear."""
    owner: object
    name: str
    records: Callable[..., int]
    """Returns the count of records by the function's arguments."""
    more: Callable[[int], None]

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        original: Callable[..., Any] = getattr(self.owner, self.name)

        @wraps(original)
        def slower(*arguments: Any, **named: Any) -> Any:
            self.more(self.records(*arguments))
            return original(*arguments, **named)

        patch.setattr(self.owner, self.name, slower)


MUTATIONS: Final[Mapping[str, Mutation]] = {
    "a comprehension in the client's columns": Mutation(
        "append_many", "client", Columns, "fill", lambda _, batch, at, *__: len(at), _comprehension
    ),
    "a call of C for each key that the client packs": Mutation(
        "append_many", "client", appends, "encode_batch", lambda keys, *_: len(keys), _c_calls
    ),
    "a generator over the client's outcomes": Mutation(
        "append_many", "client", AppendBatch, "acks_of", lambda _, at, count: count, _generator
    ),
    "a comprehension when the leader takes a batch": Mutation(
        "append_many", "node", range_replica, "admit", lambda data, *_: len(data) // 8,
        _comprehension,
    ),
    "a comprehension over an entry on its way to the WAL": Mutation(
        "append_many", "raft", Wal, "queue_entry", lambda _, head, command, *__: len(command) // 8,
        _comprehension,
    ),
    "a lambda for each record of a batch that is decoded": Mutation(
        "append_many", "statemachine", admission, "decode_batch",
        lambda data: data.records if isinstance(data, PackedBatch) else len(data) // 8, _lambdas,
    ),
    "a comprehension in the memtable": Mutation(
        "append_many", "statemachine", Memtable, "add", lambda _, batch, *__: batch.count,
        _comprehension,
    ),
    "one more call for each entry that is read": Mutation(
        "scan_memtable", "statemachine", Page, "put", lambda *_: 1, _comprehension
    ),
    "a comprehension over the sorted keys of a segment": Mutation(
        "build", "statemachine", segment_writer, "sort_keys", len, _comprehension
    ),
}  # fmt: skip


class Measured(NamedTuple):
    """The costs of each path, and of the path of each mutation with the mutation."""

    paths: Mapping[str, Costs]
    mutated: Mapping[str, Costs]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    found: dict[str, Costs] = {}
    mutated: dict[str, Costs] = {}

    async def main(root: Path) -> None:
        counting = Counting()
        with counting.installed():
            async with live(root) as cluster, AsyncClient(cluster.address, timeout=30) as client:
                log = await client.create_log("log", ranges=4, split_bytes=None, split_rate=None)
                paths = Paths(cluster, log, root)
                for name in BOUNDS:
                    found[name] = await paths.measure(counting, name)
                for name, mutation in MUTATIONS.items():
                    with pytest.MonkeyPatch.context() as patch:
                        mutation.apply(patch)
                        mutated[name] = await paths.measure(counting, mutation.path, turns=1)

    asyncio.run(main(tmp_path_factory.mktemp("paths")))
    return Measured(found, mutated)


def over(costs: Costs, bounds: Bounds) -> list[str]:
    """Return the parts that take more than their bounds allow."""
    found = []
    for part, events in costs.parts.items():
        calls, lines = bounds.get(part, (0, 0))
        if events.calls > calls + SLACK or events.lines > lines + SLACK:
            found.append(part)
    return found


@pytest.mark.parametrize("path", BOUNDS)
def test_a_record_takes_no_more_python_than_its_bound(measured: Measured, path: str) -> None:
    costs = measured.paths[path]
    print(costs.table())
    assert over(costs, BOUNDS[path]) == [], (
        f"{path} does more in Python for each record than {BOUNDS[path]} allows; see the functions "
        "above. Handle all records of a batch by one call of C, or argue a higher bound."
    )


@pytest.mark.parametrize("name", MUTATIONS)
def test_more_python_for_each_record_is_seen(measured: Measured, name: str) -> None:
    mutation = MUTATIONS[name]
    costs = measured.mutated[name]
    print(costs.table())
    assert mutation.part in over(costs, BOUNDS[mutation.path])


def test_followers_do_no_more_python_for_a_record(tmp_path: Path) -> None:
    async def main() -> Costs:
        counting = Counting()
        with counting.installed():
            async with live(tmp_path, 3) as cluster:
                await cluster.healthy(3)
                async with AsyncClient(cluster.address, timeout=30) as client:
                    log = await client.create_log("log", ranges=4, split_bytes=None)
                    paths = Paths(cluster, log, tmp_path)
                    return await paths.measure(counting, "append_many", turns=2, sizes=LARGE)

    costs = asyncio.run(main())
    print(costs.table())
    assert over(costs, THREE_NODES) == []


def test_each_iteration_and_each_call_counts_in_every_thread(tmp_path: Path) -> None:
    counting = Counting()
    ready, done = threading.Event(), threading.Event()

    def in_a_thread() -> None:
        ready.wait()
        to_expect(5)
        done.set()

    with counting.installed():
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        to_expect(1)
        with counting.counted() as found:
            for seq in range(1, 4):
                to_expect(seq)
            ready.set()
            done.wait()
        to_expect(1)
        thread.join()
    (events,) = found.values()
    assert list(found) == [Place("client/appends.py", "to_expect")]
    assert events.calls == 4
    assert events.lines == 4 * 4


def test_the_least_of_repeated_runs_counts() -> None:
    one, two = Place("a.py", "one"), Place("a.py", "two")
    few = least([{one: Events(5, 9), two: Events(1, 1)}, {one: Events(4, 10)}])
    assert few == {one: Events(4, 9)}
    many = least([{one: Events(24, 29), two: Events(10, 20)}])
    assert slope(few, many, 10) == {one: Events(2.0, 2.0), two: Events(1.0, 2.0)}
