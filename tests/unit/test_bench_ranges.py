"""`scripts/bench ranges`: values that say when they were due, pauses, and wrong data is found."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.pauses import Operation, longest_s, rows
from benchmarks.ranges_clients import read_back
from benchmarks.ranges_load import Followers, Producers, RangesLoad
from benchmarks.stamps import Stamps
from fake_cluster import FakeCluster, Stored, fake_cluster

from lognode import AsyncClient, CorruptData
from lognode.client.bench.shape import Shape

LOAD = RangesLoad(producers=3, followers=4, rate=600.0, batch=2, keys=10, value_bytes=64)
STAMPS = LOAD.stamps()


def test_a_value_says_when_it_was_due_and_is_checked() -> None:
    stamps = Stamps(100)
    key = stamps.key(7)
    value = stamps.value(key, 3, 12_345.678901234)
    assert (len(key), len(value)) == (16, 128)
    assert stamps.due(key, 3, value) == pytest.approx(12_345.678901234, abs=1e-9)
    flipped = [value[:n] + bytes([value[n] ^ 1]) + value[n + 1 :] for n in range(len(value))]
    for wrong in (None, b"", value[:-1], value + b"0", stamps.value(stamps.key(8), 3, 1.0),
                  stamps.value(key, 4, 1.0), *flipped):  # fmt: skip
        with pytest.raises(CorruptData, match="record 3"):
            stamps.due(key, 3, wrong)


def test_keys_lie_between_the_bounds_of_a_shape() -> None:
    shape, stamps = Shape(10_000), Stamps(100, step=10)
    keys = [stamps.key(n) for n in range(100)]
    assert keys == sorted(set(keys))
    assert not {*keys} & {shape.key(n) for n in range(10_000)}
    assert shape.key(509) < stamps.key(5) < shape.key(510)


def test_every_key_has_one_producer_and_followers_are_apart() -> None:
    load = RangesLoad(producers=7, followers=4, keys=30)
    assert [key for producer in range(7) for key in load.own(producer)] == list(range(30))
    assert load.followed == [0, 7, 15, 22]


def test_the_longest_pause_is_that_of_what_overlaps() -> None:
    times = {"due": [0.0, 1.0, 2.0, 3.5, 5.0], "ended": [1.9, 1.2, 2.25, 4.0, 9.0]}
    assert longest_s(times, Operation("x", 2.0, 4.5, 1.0)) == 0.5
    assert longest_s(times, Operation("x", 1.9, 4.5, 1.0)) == 1.9
    assert longest_s(times, Operation("x", 2.0, 5.0, 1.0)) == 4.0
    assert longest_s(times, Operation("x", 2.3, 3.4, 1.0)) == 0.0


def test_a_row_for_each_kind() -> None:
    done = [Operation("a", 0.0, 1.0, 0.2), Operation("b", 2.0, 3.0, 0.3),
            Operation("a", 4.0, 5.0, 0.4, given_up=True)]  # fmt: skip
    times = {"due": [0.5, 2.5, 4.5], "ended": [0.6, 2.52, 4.8]}
    a, b = rows(done, {"producer": times}, {"a": "soon"})
    assert (a["operation"], a["count"], a["given up"], a["target"]) == ("a", 2, 1, "soon")
    assert (b["operation"], b["count"], b["given up"], b["target"]) == ("b", 1, 0, None)
    assert (a["took max ms"], a["producer pause max ms"]) == (400.0, 300.0)
    assert a["each"] == {"took ms": [200.0, 400.0], "producer pause ms": [100.0, 300.0]}
    assert (b["took p50 ms"], b["producer pause p99 ms"]) == (300.0, 20.0)


async def _produced(cluster: FakeCluster, client: AsyncClient) -> dict[str, Any]:
    """The figures of the load, ended once each key has a few records."""
    began: list[bool] = []

    async def told() -> str:
        assert began
        while len(cluster.ranges[0].entries) < 50:  # noqa: ASYNC110 - the fake tells nobody
            await asyncio.sleep(0.001)
        return ""

    producers = Producers(client.log("x"), LOAD)
    found: dict[str, Any] = await producers.run(lambda: began.append(True), told)
    return found


def test_producers_append_in_an_open_loop_until_they_are_told() -> None:
    async def main() -> None:
        async with fake_cluster() as cluster, AsyncClient(cluster.address) as client:
            cluster.create("x")
            found = await _produced(cluster, client)
            entries = cluster.ranges[0].entries
            assert sum(found["counts"]) == len(entries) == LOAD.batch * len(found["due"])
            for number, count in enumerate(found["counts"]):
                key = STAMPS.key(number)
                held = [entry.value for entry in entries if entry.key == key]
                assert len(held) == count > 0
                for nth, value in enumerate(held):  # in the figures rounded to a microsecond
                    due = STAMPS.due(key, nth, value)
                    assert min(abs(due - each) for each in found["due"]) < 1e-6
            assert all(map(float.__gt__, found["ended"], found["due"]))
            assert await read_back(client.log("x"), LOAD, found["counts"]) == len(entries)

    asyncio.run(main())


Spoil = Callable[[list[Stored]], None]


def _lost(entries: list[Stored]) -> None:
    del entries[_followed(entries)[-1]]


def _twice(entries: list[Stored]) -> None:
    """Of the first, so that a follower, which ends with the last, has the second of it before."""
    first = _followed(entries)[0]
    entries.insert(first, replace(entries[first]))
    for entry in entries[first + 1 :]:
        entry.seq += 1


def _swapped(entries: list[Stored]) -> None:
    a, b = _followed(entries)[:2]
    entries[a].value, entries[b].value = entries[b].value, entries[a].value


def _other(entries: list[Stored]) -> None:
    entries[_followed(entries)[0]].value = b"other"


def _followed(entries: list[Stored]) -> list[int]:
    """Where the records of a followed key are."""
    key = STAMPS.key(LOAD.followed[1])
    return [at for at, entry in enumerate(entries) if entry.key == key]


async def _found(by: str, spoil: Spoil | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Append, spoil what is there, and have it read."""
    monkeypatch.setattr("benchmarks.ranges_load._TIMEOUT_S", 2.0)
    async with fake_cluster() as cluster, AsyncClient(cluster.address) as client:
        cluster.create("x")
        counts = (await _produced(cluster, client))["counts"]
        if spoil is not None:
            spoil(cluster.ranges[0].entries)

        async def told() -> str:
            return str(counts)

        if by == "read back":
            await read_back(client.log("x"), LOAD, counts)
            return
        found = await Followers(client.log("x"), LOAD).run(lambda: None, told)
        assert found["delivered"] == sum(counts[number] for number in LOAD.followed)
        assert len(found["due"]) == len(found["ended"]) == found["delivered"]


@pytest.mark.parametrize("by", ["read back", "follower"])
def test_correct_entries_pass_the_check(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_found(by, None, monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [_lost, _twice, _swapped, _other])
@pytest.mark.parametrize("by", ["read back", "follower"])
def test_wrong_data_is_found(by: str, spoil: Spoil, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((CorruptData, ExceptionGroup)) as raised:
        asyncio.run(_found(by, spoil, monkeypatch))
    error: BaseException = raised.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, CorruptData)
