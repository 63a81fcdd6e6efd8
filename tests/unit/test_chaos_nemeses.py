"""Nemeses: who is hit, which links, which operation; decided by numbers and a random source."""

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from chaos_targets import CountedCrashes, NotedLinks

import lognode
from lognode.chaos.nemeses import (
    PACKAGES,
    Target,
    clock,
    corrupt,
    disk,
    packet,
    partition,
    ranges,
)
from lognode.chaos.nemeses.damage import Damage
from lognode.chaos.nemeses.victims import WHO, Draw, in_words, pick
from lognode.client.retry import ClientClosed

FIVE = [1, 2, 3, 4, 5]


def groups(numbers: Collection[int], cut: Collection[tuple[int, int]]) -> list[set[int]]:
    """For each node those that it exchanges bytes with, itself included."""
    return [{b for b in numbers if a == b or not {(a, b), (b, a)} & set(cut)} for a in numbers]


@pytest.mark.parametrize(
    ("who", "count", "size"),
    [("one", 3, 1), ("minority", 3, 1), ("minority", 4, 1), ("minority", 5, 2), ("majority", 3, 2),
     ("majority", 4, 3), ("majority", 5, 3), ("all", 5, 5), ("minority", 1, 1), ("all", 1, 1)],
)  # fmt: skip
def test_so_many_are_hit(who: str, count: int, size: int) -> None:
    numbers = list(range(1, count + 1))
    hit = [pick(random.Random(seed), who, numbers, []) for seed in range(100)]
    assert {len(each) for each in hit} == {size}
    assert {number for each in hit for number in each} == set(numbers)


def test_leaders_are_hit_where_they_are_known() -> None:
    assert pick(random.Random(1), "leaders", FIVE, [4, 2, 9]) == [2, 4]
    assert len(pick(random.Random(1), "leaders", FIVE, [])) == 1


def test_the_first_fault_of_a_run_hits_the_leaders_and_later_ones_anybody() -> None:
    draws = [Draw() for _ in range(100)]
    rng = random.Random(1)
    assert {draw(rng) for draw in draws} == {"leaders"}
    assert {draw(rng) for draw in draws} == set(WHO)


def test_every_choice_has_words() -> None:
    assert len({in_words(who) for who in WHO}) == len(WHO)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7])
def test_in_a_ring_each_sees_a_majority(count: int) -> None:
    numbers = list(range(1, count + 1))
    seen = groups(numbers, partition.ring(numbers))
    assert all(2 * len(each) > count for each in seen)
    if count in (5, 7):
        assert len({frozenset(each) for each in seen}) == count, "two see the same"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("shape", list(partition.SHAPES))
def test_cuts_are_both_ways_and_never_within_a_node(shape: str, count: int, seed: int) -> None:
    numbers = list(range(1, count + 1))
    _, cut = partition.SHAPES[shape](random.Random(seed), numbers, [1])
    assert all(a != b and {a, b} <= set(numbers) for a, b in cut)
    assert {(b, a) for a, b in cut} == cut


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [("partition of one node", [1, 4, 4, 4, 4]), ("partition of a minority", [2, 2, 3, 3, 3]),
     ("partition into halves", [2, 2, 3, 3, 3]), ("partition with a bridge", [3, 3, 3, 3, 5]),
     ("partition into a ring of majorities", [3, 3, 3, 3, 3]),
     ("partition of the leaders", [1, 1, 3, 3, 3])],
)  # fmt: skip
def test_so_many_see_each_other_of_five(shape: str, sizes: list[int]) -> None:
    for seed in range(20):
        _, cut = partition.SHAPES[shape](random.Random(seed), FIVE, [2, 4])
        assert sorted(map(len, groups(FIVE, cut))) == sizes


def test_leaders_do_not_see_each_other_either() -> None:
    nodes, cut = partition.primaries(random.Random(1), FIVE, [2, 4])
    assert nodes == [2, 4]
    assert (2, 4) in cut
    assert (1, 3) not in cut


@pytest.mark.parametrize(
    ("which", "cuts"),
    [("requests", {("requests", (1, 2)), ("requests", (1, 3))}),
     ("answers", {("answers", (1, 2)), ("answers", (1, 3))}),
     ("leaves", {("requests", (1, 2)), ("requests", (1, 3)), ("answers", (2, 1)),
                 ("answers", (3, 1))}),
     ("arrives", {("requests", (2, 1)), ("requests", (3, 1)), ("answers", (1, 2)),
                  ("answers", (1, 3))})],
)  # fmt: skip
def test_one_way_is_one_way(which: Any, cuts: set[Any]) -> None:
    grudge = partition.one_way(1, [1, 2, 3], which)
    assert {(how, pair) for how, pairs in grudge.cuts for pair in pairs} == cuts


def test_every_partition_is_drawn_and_cuts_something() -> None:
    for count in (2, 3, 5):
        numbers = list(range(1, count + 1))
        drawn = [partition.draw(random.Random(seed), numbers, []) for seed in range(300)]
        assert all(pairs for grudge in drawn for _, pairs in grudge.cuts)
        assert all(grudge.nodes for grudge in drawn)
        kinds = {grudge.what.split(",")[0].split(" node ")[0] for grudge in drawn}
        assert len(kinds) == len(partition.ONE_WAY) + {2: 4, 3: 5, 5: 6}[count]


def test_links_around_a_node_are_its_own_and_those_of_its_clients() -> None:
    assert packet.around([2], [1, 2, 3]) == [(0, 2), (1, 2), (2, 1), (2, 3), (3, 2)]
    assert len(packet.around([1, 2, 3], [1, 2, 3])) == 9


def test_every_toxic_is_drawn_with_attributes_in_bounds() -> None:
    drawn = [packet.draw(random.Random(seed)) for seed in range(300)]
    kinds = {toxic.kind for _, toxics in drawn for toxic in toxics}
    assert kinds == {"latency", "bandwidth", "slicer", "slow_close", "limit_data", "reset_peer"}
    for _, toxics in drawn:
        for toxic in toxics:
            assert 0 < toxic.toxicity <= 1
            assert all(value >= 0 for value in toxic.attributes.values())
            assert toxic.attributes.get("rate", 1) > 0


RANGES: list[dict[str, Any]] = [
    {"id": 0, "start": b"", "members": [1, 2, 3]}, {"id": 4, "start": b"", "members": [1, 2, 3]},
    {"id": 5, "start": b"m", "members": [2, 3, 4]},
]  # fmt: skip
KEYS = {b"a": 1, b"b": 7, b"m": 9}


def steps(rows: Any, nodes: list[int], keys: dict[bytes, int]) -> list[ranges.Step]:
    drawn = [ranges.draw(random.Random(seed), rows, nodes, keys) for seed in range(300)]
    return [step for step in drawn if step is not None]


def test_operations_are_what_the_cluster_can_do() -> None:
    drawn = steps(RANGES, FIVE, KEYS)
    assert {step.kind for step in drawn} == {"split", "merge", "move", "transfer", "drain"}
    members = {row["id"]: row["members"] for row in RANGES}
    for step in drawn:
        if step.kind == "split":
            assert step.at in (b"a", b"b"), "a range begins at m already"
        elif step.kind == "merge":
            assert step.at == b"m"
        elif step.kind == "move":
            assert step.range_id != 0
            assert step.node in members[step.range_id]
            assert step.to_node not in members[step.range_id]
        elif step.kind == "transfer":
            assert step.to_node in members[step.range_id]
    splits = [step.at for step in drawn if step.kind == "split"]
    assert splits.count(b"b") > 2 * splits.count(b"a"), "half of the splits are at the hot key"


@pytest.mark.parametrize(
    ("rows", "nodes", "keys", "kinds"),
    [(RANGES[:2], [1, 2, 3], {}, {"transfer"}),
     (RANGES[:2], [1, 2, 3], KEYS, {"transfer", "split"}),
     ([], [], {}, set()), (RANGES[:2], FIVE, {}, {"transfer", "move", "drain"}),
     (RANGES, [1, 2, 3], {}, {"transfer", "merge", "move"})],
)  # fmt: skip
def test_impossible_steps_are_not_drawn(
    rows: Any, nodes: list[int], keys: dict[bytes, int], kinds: set[str]
) -> None:
    assert {step.kind for step in steps(rows, nodes, keys)} == kinds


class _Quiet:
    """A client that nobody answers."""

    async def status(self, *, timeout: float) -> Any:
        raise lognode.Unavailable("nobody")


class _FiveNodes:
    """Only their numbers."""

    numbers = FIVE

    def __len__(self) -> int:
        return len(FIVE)


@pytest.mark.parametrize("name", ["partition", "packet"])
def test_links_are_whole_again_after_the_end(name: str) -> None:
    async def run() -> None:
        nodes: Any = _FiveNodes()
        client: Any = _Quiet()
        links = NotedLinks()
        seen: set[str] = set()
        for seed in range(50):
            package = PACKAGES[name]()
            rng = random.Random(seed)
            target = Target(nodes, links, client, "orders", rng, CountedCrashes())
            begun = await package.begin(target)
            assert begun is not None
            seen.update(itertools.chain.from_iterable(links.now.values()))
            assert links.now
            assert begun[1]
            await package.end(target)
            assert not links.now
            links.now[(1, 2)] = ["another's"]
            await package.end(target)
            assert links.now.pop((1, 2)), "a second end heals nothing"
        assert seen >= (
            {"refuse", "drop", "requests", "answers"}
            if name == "partition"
            else {"latency upstream", "latency downstream", "reset_peer downstream"}
        )

    asyncio.run(run())


def test_clocks_jump_both_ways_and_drift() -> None:
    drawn = {clock.draw(random.Random(seed)) for seed in range(500)}
    texts = {text for _, text in drawn}
    assert texts > {"+172800", "-172800", "+0.1", "-0.1", "+0 x2", "+0 x0.5"}
    assert clock.TRUE_TIME not in texts


def test_a_library_that_is_loaded_already_stays() -> None:
    faked = clock.faked({"LD_PRELOAD": "other.so", "A": "b"}, Path("/fake.so"), Path("/time"))
    assert faked["LD_PRELOAD"] == "/fake.so:other.so"
    assert faked["A"] == "b"
    assert faked["FAKETIME_TIMESTAMP_FILE"] == "/time"
    assert clock.faked({}, Path("/fake.so"), Path("/time"))["LD_PRELOAD"] == "/fake.so"


def test_disks_fail_in_every_way_always_or_now_and_then() -> None:
    drawn = [disk.draw(random.Random(seed)) for seed in range(300)]
    assert len({what for what, _ in drawn}) == 2 * len(disk.FAILURES)
    for what, told in drawn:
        assert len(told) == 2, "a call and its sibling"
        assert all(("probability=" in line) == ("now and then" in what) for line in told)
        assert all(line.endswith(("failinfo=5", "failinfo=28")) for line in told)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [(b"", b"", 0), (b"abc", b"abc", 3), (b"abc", b"abcd", 3), (b"abcd", b"abXd", 2),
     (b"Xbc", b"abc", 0), (b"a" * 9999 + b"b", b"a" * 9999 + b"c", 9999)],
)  # fmt: skip
def test_how_much_is_the_same(before: bytes, after: bytes, same: int) -> None:
    assert corrupt.same_until(before, after) == same


def test_the_end_of_the_newest_file_of_the_WAL_is_never_lost() -> None:
    old, new, empty = Path("wal/1"), Path("wal/2"), Path("wal/3")
    drawn = [
        corrupt.draw(random.Random(seed), {old: 100, new: 10, empty: 0}, new) for seed in range(300)
    ]
    assert {(blow.path, blow.how) for blow in drawn if blow is not None} == {
        (old, "flipped"), (old, "truncated"), (new, "flipped"),
    }  # fmt: skip
    assert all(blow.at < (100 if blow.path == old else 10) for blow in drawn if blow is not None)
    assert corrupt.draw(random.Random(1), {empty: 0}, None) is None


def test_a_blow_changes_one_bit_or_ends_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    corrupt.Blow(path, "flipped", 1).strike()
    assert path.read_bytes() == bytes([ord("a"), ord("b") ^ 16, ord("c")])
    corrupt.Blow(path, "truncated", 2).strike()
    assert path.read_bytes() == bytes([ord("a"), ord("b") ^ 16])


class _Whole:
    """A cluster that is healthy, or not, with a range of some generation."""

    ok, generation = True, 3

    async def health(self, *, nodes: int, timeout: float) -> Any:
        return {"ok": self.ok}

    async def status(self, *, timeout: float) -> Any:
        led = {"log": "orders", "leader": 4}
        return {"ranges": [{"id": 7, "generation": self.generation, **led}]}


class _Damaged(_FiveNodes):
    """Five nodes with one log file, all of which serve, or none."""

    ready = True

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path

    def __getitem__(self, number: int) -> Any:
        return self

    async def wait_ready(self, timeout_s: float) -> None:
        if not self.ready:
            raise lognode.Unavailable("not ready")


def test_the_same_node_is_damaged_again_once_it_is_whole(tmp_path: Path) -> None:
    async def run() -> None:
        nodes: Any = _Damaged(tmp_path / "log")
        nodes.log_path.write_text('{"message": "takes no part", "range": 8, "generation": 9}\n')
        client: Any = _Whole()
        rng = random.Random(1)
        target = Target(nodes, NotedLinks(), client, "orders", rng, CountedCrashes(), Damage())
        first = await target.damage.next_victim(target)
        assert first == 4, "it leads, so that its damage hits what is served"
        given_up = '{"message": "replica takes no part", "range": 7, "generation": 3}\n'
        nodes.log_path.write_text(nodes.log_path.read_text() + given_up)
        assert target.damage.refused(target) == {7: 3}, "what was before is not looked at"
        assert await target.damage.next_victim(target) is None
        client.generation = 4
        nodes.ready = False
        assert await target.damage.next_victim(target) is None
        nodes.ready, client.ok = True, False
        assert await target.damage.next_victim(target) is None
        client.ok = True
        assert [await target.damage.next_victim(target)] == [first]
        assert await target.damage.next_victim(target) == first

    asyncio.run(run())


def test_a_client_crashes() -> None:
    async def run() -> None:
        nodes: Any = _FiveNodes()
        crashes: Any = CountedCrashes()
        client: Any = _Quiet()
        target = Target(nodes, NotedLinks(), client, "orders", random.Random(1), crashes)
        assert await PACKAGES["client"]().begin(target) == ("crash of a client", [])
        assert crashes.count == 1

    asyncio.run(run())


def test_packages_are_named_as_they_are_asked_for() -> None:
    assert {name: make().name for name, make in PACKAGES.items()} == {n: n for n in PACKAGES}


class _LateDrain:
    """A cluster that executes a drain without an answer after the drain was undone."""

    def __init__(self) -> None:
        self.admin = self
        self.state = "ACTIVE"
        self.undone = 0

    async def status(self, *, timeout: float) -> Any:
        rows = [{"id": 4, "log": "orders", "start": b"", "members": [1, 2, 3]}]
        return {"ranges": rows, "nodes": [{"id": node, "state": "ACTIVE"} for node in FIVE]}

    async def drain(
        self, node: int, *, undo: bool = False, wait: bool = True, timeout: float
    ) -> None:
        if not undo:
            raise lognode.Timeout("no answer", outcome="unknown")
        self.undone += 1
        self.state = "DRAINING" if self.undone == 1 else "ACTIVE"  # the late request comes here

    async def nodes(self, *, timeout: float) -> list[dict[str, Any]]:
        if self.state == "ACTIVE" and self.undone > 1:
            raise ClientClosed("the test is over")
        return [{"id": node, "state": self.state if node == 2 else "ACTIVE"} for node in FIVE]


def test_a_drain_that_begins_after_it_was_undone_is_undone_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seeds 451 and 1144: the node was DRAINING for ever, and no fault was left."""
    monkeypatch.setattr(ranges, "_LATE_S", 0.01)

    async def run() -> None:
        client: Any = _LateDrain()
        nodes: Any = _FiveNodes()
        target = Target(nodes, NotedLinks(), client, "orders", random.Random(1), CountedCrashes())
        package = ranges.Range()
        with pytest.raises(lognode.Timeout):
            await package.take(target, ranges.Step("drain", node=2), None)
        await package.end(target)
        assert package._looking is not None
        async with asyncio.timeout(5.0):
            await package._looking
        assert (client.undone, client.state) == (2, "ACTIVE")

    asyncio.run(run())


class _Partitioned:
    """A cluster with two logs with Kafka partitions, one range each."""

    def __init__(self) -> None:
        self.admin = self
        self.split_at: list[tuple[str, bytes]] = []

    async def status(self, *, timeout: float) -> Any:
        rows = [{"id": n, "log": log, "start": b"", "members": [1, 2, 3]}
                for n, log in ((0, None), (4, "orders"), (5, "offsets"))]  # fmt: skip
        return {"ranges": rows, "nodes": [{"id": node, "state": "ACTIVE"} for node in (1, 2, 3)]}

    def log(self, name: str) -> Any:
        return self

    async def describe(self, *, timeout: float) -> Any:
        return {"policy": {"kafka_partitions": 3}}

    async def split(self, log: str, *, at: bytes, timeout: float) -> None:
        self.split_at.append((log, at))


def test_logs_of_kafka_clients_are_split_between_partitions() -> None:
    async def run() -> None:
        client: Any = _Partitioned()
        nodes: Any = _FiveNodes()
        for seed in range(60):
            rng = random.Random(seed)
            target = Target(nodes, NotedLinks(), client, "orders", rng, CountedCrashes())
            target.more_logs = ("offsets",)
            ranges_ = await ranges._keys(target, "offsets", [])
            assert list(ranges_) == [b"\0\1", b"\0\2"]
            status = await client.status(timeout=1.0)
            own = [row for row in status["ranges"] if row["log"] == "offsets"]
            step = ranges.draw(rng, own, [1, 2, 3], ranges_)
            assert step is not None
            if step.kind == "split":
                await ranges.Range()._go(target, dataclasses.replace(step, log="offsets"))
        assert set(client.split_at) == {("offsets", b"\0\1"), ("offsets", b"\0\2")}

    asyncio.run(run())
