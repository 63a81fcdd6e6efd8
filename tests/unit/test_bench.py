"""`lognode bench`: keys and values that can be checked, calls at their times, figures."""

import asyncio
import gc
import random
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fake_cluster import Stored, fake_cluster

from lognode import AsyncClient, CorruptData, InvalidArgument
from lognode.client.bench import pace
from lognode.client.bench.appending import Appender, Appending
from lognode.client.bench.contending import Contender, Contending
from lognode.client.bench.fairness import Fairness
from lognode.client.bench.report import Recorder, quantile
from lognode.client.bench.samples import may_be_gone
from lognode.client.bench.shape import Shape


def test_a_value_is_checked_from_itself() -> None:
    shape = Shape(1_000)
    keys = shape.draw(500, random.Random(1))
    values = shape.values(keys, 65_000)
    for key, value in zip(keys, values, strict=True):
        assert (len(key), len(value)) == (16, 128)
        shape.check(key, value)
    assert values[0] == shape.value(keys[0], 65_000)
    assert len(set(values)) == len(values)
    key, value = keys[0], values[0]
    for wrong in (None, b"", value[:-1], value + b"0", values[1], value[:60] + b"z" + value[61:]):
        with pytest.raises(CorruptData, match="which no client wrote"):
            shape.check(key, wrong)


def test_keys_in_order_and_by_zipf() -> None:
    shape = Shape(10, key_bytes=2)
    assert shape.in_order(8, 4) == [b"08", b"09", b"00", b"01"]
    assert shape.splits(4) == [b"02", b"05", b"07"]
    assert Shape(3).splits(8) == [Shape(3).key(1), Shape(3).key(2)]
    zipf = Shape(1_000, zipf=1.1)
    drawn = Counter(zipf.draw(20_000, random.Random(2)))
    assert drawn[zipf.key(0)] > 2 * drawn[zipf.key(2)] > 4 * drawn[zipf.key(50)] > 0
    huge = Shape(10_000_000)
    assert set(map(len, huge.draw(10, random.Random(3)))) == {16}


@pytest.mark.parametrize(
    ("keys", "key_bytes"),
    [(1, 1), (10, 1), (11, 2), (1_000_000, 6), (1_000_000, 16), (10**9 + 7, 17), (1 << 40, 480)],
)
def test_keys_are_the_decimal_numbers_that_the_seed_draws(keys: int, key_bytes: int) -> None:
    """So a load keeps its keys from version to version, and every system gets the same."""
    shape = Shape(keys, key_bytes=key_bytes, value_bytes=key_bytes + 20)
    drawn = array("Q", random.Random(7).randbytes(8 * 1_000))
    wanted = [shape.key(number % keys) for number in drawn]
    for count in (1, 49, 50, 1_000):
        assert shape.draw(count, random.Random(7)) == wanted[:count]


@pytest.mark.parametrize(
    "wrong",
    [{"keys": 0}, {"keys": 101, "key_bytes": 2}, {"keys": 1, "value_bytes": 20},
     {"keys": 1, "key_bytes": 481}, {"keys": 10_000_000, "zipf": 1.1}],
)  # fmt: skip
def test_a_shape_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        Shape(**wrong)


def test_fairness_tells_who_waits_and_who_was_overtaken() -> None:
    async def main() -> dict[str, Any]:
        fairness = Fairness(in_order=True)
        first, second, third = (asyncio.create_task(asyncio.sleep(0)) for _ in range(3))
        for caller, key, begun, seq, ended in (
            (first, b"k", 1.0, 2, 5.0), (second, b"k", 3.0, 1, 4.0), (second, b"k", 5.0, 3, 6.0),
            (second, b"other", 7.0, 1, 8.0),
        ):  # fmt: skip
            fairness.begin(caller, begun)
            fairness.served(caller, key, seq, ended)
        fairness.begin(third, 2.5)
        return fairness.report(10.0)

    assert asyncio.run(main()) == {
        "callers": 3, "never_served": 1, "longest_wait_s": 7.5, "out_of_order": 0.25,
        "overtaken_s": 2.0,
    }  # fmt: skip


@pytest.mark.parametrize("update", [False, True])
def test_callers_of_several_clients_contend_and_lose_nothing(update: bool) -> None:
    async def main() -> dict[str, Any]:
        async with fake_cluster() as cluster:
            cluster.create("x")
            async with AsyncClient(cluster.address) as one, AsyncClient(cluster.address) as two:
                load = Contending(0.3, window=6, update=update)
                logs = [one.log("x"), two.log("x")]
                return await Contender(logs, Shape(1), load).run()

    report = asyncio.run(main())
    assert report["callers"] == 6
    assert report["clients"] == 2
    assert report["verified"] == report["records"] > 0


def test_few_collections_are_made_while_appends_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []
    before = gc.get_threshold()

    async def paced(*_: Any, **__: Any) -> None:
        seen.append((gc.get_threshold()[0], gc.get_freeze_count() > 0))

    monkeypatch.setattr(pace, "paced", paced)
    monkeypatch.setattr(Recorder, "report", lambda *_: {})

    async def main() -> None:
        async with fake_cluster() as cluster, AsyncClient(cluster.address) as client:
            cluster.create("x")
            await Appender(client.log("x"), Shape(10), Appending(1.0)).run()

    asyncio.run(main())
    assert seen == [(20_000, True)]
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_latency_counts_from_the_time_a_call_was_due() -> None:
    """A call that stalls the caller shows in the latency of those due meanwhile, and in the
    service time of none but itself."""
    recorder = Recorder()

    async def run() -> None:
        async def call(number: int, due: float) -> int:
            if number == 10:
                time.sleep(0.3)  # noqa: ASYNC251 - stalls the loop, as the test wants
            return 2

        await pace.at_rate(100.0, 0.4, call, recorder)

    asyncio.run(run())
    report = recorder.report("stalled", {})
    assert (report["calls"], report["records"]) == (40, 80)
    assert report["latency_ms"]["p90"] > 100
    assert report["service_ms"]["p50"] < report["latency_ms"]["p90"] / 2
    assert report["latency_ms"]["max"] >= 290


def test_an_error_of_a_call_ends_the_run() -> None:
    async def call(number: int, due: float) -> int:
        await asyncio.sleep(0)
        if number == 3:
            raise CorruptData("wrong")
        return 1

    with pytest.raises(CorruptData, match="wrong"):
        asyncio.run(pace.at_rate(1_000.0, 60.0, call, Recorder()))
    with pytest.raises(CorruptData, match="wrong"):
        asyncio.run(pace.in_window(4, 60.0, call, Recorder()))


def test_a_window_ends_after_its_calls() -> None:
    recorder = Recorder(every_s=60.0)

    async def call(number: int, due: float) -> int:
        await asyncio.sleep(0)
        return 1

    asyncio.run(pace.in_window(4, 60.0, call, recorder, calls_max=10))
    report = recorder.report("window", {"keys": 1})
    assert (report["calls"], report["keys"], report["latency_ms"]) == (10, 1, None)
    assert [row["at_s"] for row in report["series"]] == [0.0]


def test_quantiles_are_nearest_rank() -> None:
    assert quantile([], 0.5) == 0.0
    assert [quantile([1.0, 2.0, 3.0, 4.0], at) for at in (0.0, 0.5, 0.99, 1.0)] == [1, 2, 4, 4]
    assert [quantile(range(1, 101), at) for at in (0.07, 0.5, 0.99, 0.991)] == [7, 50, 99, 100]


def test_only_what_the_policy_removes_may_be_gone() -> None:
    assert not may_be_gone({}, 1e12)
    assert not may_be_gone({"retention_ms": None, "cleanup": "delete"}, 1e12)
    assert may_be_gone({"cleanup": "compact"}, 0)
    assert may_be_gone({"retention_bytes": 1}, 0)
    assert may_be_gone({"snapshot_delay_ms": 5_000}, 5_001)
    assert may_be_gone({"retention_ms": 60_000}, 60_001)
    assert not may_be_gone({"retention_ms": 60_000}, 58_000)


async def _appended(policy: dict[str, Any], spoil: Callable[[list[Stored]], None]) -> Any:
    async with fake_cluster() as cluster, AsyncClient(cluster.address) as client:
        cluster.create("events")
        cluster.policies["events"] = policy
        appender = Appender(client.log("events"), Shape(10), Appending(1.0, batch=2))
        assert await appender.call(0, 0.0) == 2
        spoil(cluster.ranges[0].entries)
        return await appender.verify()


def test_acknowledged_records_are_read_back_and_expired_ones_are_counted() -> None:
    forever: dict[str, Any] = {}
    briefly = {"retention_ms": 1}
    assert asyncio.run(_appended(forever, lambda _: None)) == {"verified": 1, "expired": 0}
    assert asyncio.run(_appended(briefly, list.clear)) == {"verified": 0, "expired": 1}
    with pytest.raises(CorruptData, match="does not hold the acknowledged value"):
        asyncio.run(_appended(forever, list.clear))

    def overwritten(entries: list[Stored]) -> None:
        entries[:] = [replace(entry, value=b"other") for entry in entries]

    with pytest.raises(CorruptData, match="does not hold the acknowledged value"):
        asyncio.run(_appended(briefly, overwritten))
