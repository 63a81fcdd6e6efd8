"""An append request of many batches: bounded before it is unpacked, checked in slices, in order."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from loose_operations import asked
from storage_node import StorageNode, descriptor, numbered_batch, one_life

from lognode.client.appends import AppendBatch
from lognode.client.lanes import Lane
from lognode.client.protocol import limits
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.errors import LimitExceeded
from lognode.client.protocol.records import encode_batch, open_batch
from lognode.client.retry import Attempts
from lognode.node.metrics import Metrics
from lognode.node.replicas.range_replica import RangeReplica
from lognode.node.runtime import slices
from lognode.node.runtime.slices import InOrder
from lognode.node.serving.data_service import DataService
from lognode.statemachine.range_state import Base

Test = Callable[[DataService, RangeReplica], Awaitable[None]]


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    """A node looks at what is old at moments of its own (`node.runtime.garbage`)."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def served(root: Path, test: Test) -> None:
    async def life(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        service = DataService(
            node_id=1, replica=lambda _: replica, describe=lambda _: [], damaged=lambda _: None,
            for_good=lambda _: False, on_damaged=lambda *_: None, level=lambda: 1,
            metrics=Metrics(),
        )  # fmt: skip
        await test(service, replica)

    one_life(root, life)


def request(*batches: bytes) -> dict[str, Any]:
    return asked(APPEND, batches=list(batches), timeout_ms=1_000)


def batch(number: int, count: int, values: list[bytes | None] | None = None) -> bytes:
    keys = [b"key-%07d" % (n % 1_000) for n in range(number, number + count)]
    return encode_batch(
        keys, values or [None] * count, producer=7, epoch=1, low=number, numbers=number
    )


def test_a_request_of_too_many_batches_is_refused_as_a_whole(tmp_path: Path) -> None:
    async def test(service: DataService, replica: RangeReplica) -> None:
        allowed = limits.request_batches_max
        batches = [numbered_batch(n + 1, [b"k"]) for n in range(allowed + 1)]
        with pytest.raises(LimitExceeded) as caught:
            await service.append(request(*batches))
        assert (caught.value.limit, caught.value.outcome) == ("request_batches_max", "not_applied")
        assert replica.state.next_seq == 1
        answer = await service.append(request(*batches[:allowed]))
        assert [each["first_seq"] for each in answer["results"]] == list(range(1, allowed + 1))

    served(tmp_path, test)


def test_declared_sizes_are_added_up_before_a_batch_is_unpacked(tmp_path: Path) -> None:
    async def test(service: DataService, replica: RangeReplica) -> None:
        # Each is within the bounds, and none would unpack.
        fields = open_batch(batch(1, 1, [bytes(limits.MIB)])).fields
        fields[12] = fields[12][:-1]

        damaged = msgpack.packb(fields)
        assert len(damaged) < 500
        with pytest.raises(LimitExceeded) as caught:
            await service.append(request(*[damaged] * 3))
        assert (caught.value.limit, caught.value.outcome) == ("values_bytes_max", "not_applied")
        answer = await service.append(request(damaged, damaged))
        assert [each["error"]["code"] for each in answer["results"]] == ["CORRUPT_DATA"] * 2
        assert replica.state.next_seq == 1

    served(tmp_path, test)


def test_X1_an_answer_lists_at_most_10_000_seqs(tmp_path: Path) -> None:
    """20 batches of duplicates made an answer of 200,000 seqs; six such answers took 281 MiB."""

    async def test(service: DataService, replica: RangeReplica) -> None:
        batches = [batch(1 + 1_000 * n, 1_000) for n in range(10)]
        await service.append(request(*batches))
        for small in (True, False):
            more = batch(1, 1) if small else batch(1, 1, [bytes(100_000)])
            with pytest.raises(LimitExceeded) as caught:
                await service.append(request(*batches, more))
            assert (caught.value.limit, caught.value.outcome) == (
                "request_records_max", "not_applied",
            )  # fmt: skip
        assert replica.applied_index == replica.raft_log.last_index
        asked_again = request(*batches)
        answer = await service.append(asked_again)
        assert sum(len(each["seqs"]) for each in answer["results"]) == limits.request_records_max
        assert replica.state.next_seq == 10_001
        assert len(msgpack.packb(answer)) <= APPEND.answer_bytes(asked_again)

    served(tmp_path, test)


def test_X1_the_answer_to_a_small_append_is_paid_for_with_its_request() -> None:
    assert APPEND.answer_bytes(request(batch(1, 100))) < limits.answer_small_bytes
    assert APPEND.answer_bytes(request(batch(1, 10_000))) > limits.answer_small_bytes


def test_X1_the_most_that_is_listed_of_a_record_fits_its_answer() -> None:
    keys = [b"k"] * 10_000
    smallest = encode_batch(keys, [None] * 10_000, producer=7, epoch=1, low=1, numbers=1)
    most = [2**63 - 1] * 10_000
    for listed in (
        {"seqs": most, "duplicates": list(range(10_000))},
        {"seqs": [None] * 10_000, "refused": list(range(10_000)), "actual": most},
    ):
        result = {"status": "ok", "timestamp_ms": 2**63 - 1, **listed}
        size = len(msgpack.packb({"results": [result]}))
        assert size <= APPEND.answer_bytes(request(smallest))


def test_a_client_sends_no_more_records_in_a_request_than_a_node_takes() -> None:
    future: Any = None
    lane, sizes = Lane(), [6_000, 4_000, 10_000, 1, 9_999, 1]
    for size in sizes:
        made = AppendBatch(Attempts("append", 0.0, writes=True), future)
        made.keys.extend([b"k"] * size)
        lane.ready.append(made)
    taken = []
    while lane.ready:
        taken.append([len(each) for each in lane.take()])
    assert taken == [[6_000, 4_000], [10_000], [1, 9_999], [1]]


def test_the_most_that_an_honest_client_sends_at_once_is_taken(tmp_path: Path) -> None:
    async def test(service: DataService, replica: RangeReplica) -> None:
        sizes = [100] * 100
        batches, number = [], 1
        for count in sizes:
            batches.append(
                encode_batch(
                    [b"k"] * count, [b""] * count, producer=7, epoch=1, low=number, numbers=number
                )
            )
            number += count
        assert sum(sizes) == limits.request_records_max
        answer = await service.append(request(*batches))
        assert all(each["status"] == "ok" for each in answer["results"])
        assert replica.state.next_seq == number

    served(tmp_path, test)


def test_a_long_request_leaves_the_loop_to_others(tmp_path: Path) -> None:
    async def test(service: DataService, replica: RangeReplica) -> None:
        batches = [batch(1 + 200 * n, 200) for n in range(50)]
        longest_s, before = 0.0, time.thread_time()
        task = asyncio.create_task(service.append(request(*batches)))
        while not task.done():
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - before)
            before = time.thread_time()
        assert all(each["status"] == "ok" for each in task.result()["results"])
        print("longest", longest_s)
        assert longest_s < 0.08  # an entry of 10,000 records is applied in one step

    served(tmp_path, test)


def test_one_entry_takes_the_batches_of_a_request_however_long_each_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every step the loop has a turn, in which a round could begin."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)

    async def test(service: DataService, replica: RangeReplica) -> None:
        before = replica.raft_log.last_index
        wrong = encode_batch([b"k"], [b"v"], producer=8, epoch=1, low=1, numbers=0)
        values: list[bytes | None] = [b"v" * 1_000] * 40
        several = [batch(1 + 40 * n, 40, values) for n in range(limits.ordered_batches_max + 1)]
        answer = await service.append(request(several[0], wrong, *several[1:-2]))
        codes = [each.get("error", {}).get("code") for each in answer["results"]]
        assert codes == [None, "INVALID_ARGUMENT", *[None] * (len(several) - 3)]
        assert replica.raft_log.last_index == before + 1
        answer = await service.append(request(*several))
        assert len(answer["results"]) == limits.ordered_batches_max + 1
        assert replica.raft_log.last_index == before + 3, "one step gives 16 batches"

    served(tmp_path, test)


def test_S11_batches_that_were_checked_before_a_seal_are_refused_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)

    async def test(service: DataService, replica: RangeReplica) -> None:
        values: list[bytes | None] = [b"v" * 1_000] * 40
        several = [batch(1 + 40 * n, 40, values) for n in range(4)]
        task = asyncio.create_task(service.append(request(*several)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        replica.propose_seal(9)
        answer = await task
        codes = [each["error"]["code"] for each in answer["results"]]
        assert codes == ["SEALED"] * len(several)
        assert {each["error"]["outcome"] for each in answer["results"]} == {"not_applied"}
        assert replica.state.next_seq == 1

    served(tmp_path, test)


def test_S4_requests_of_a_producer_are_taken_in_their_order(tmp_path: Path) -> None:
    """The first takes several turns of the loop, and the second would overtake it."""

    async def test(service: DataService, replica: RangeReplica) -> None:
        first = [batch(1 + 1_000 * n, 1_000) for n in range(10)]
        tasks = [
            asyncio.create_task(service.append(request(*first))),
            asyncio.create_task(service.append(request(numbered_batch(10_001, [b"key"])))),
            asyncio.create_task(service.append(request(numbered_batch(10_002, [b"key"])))),
        ]
        answers = [(await task)["results"] for task in tasks]
        seqs = [each["first_seq"] for results in answers for each in results]
        assert seqs == [*range(1, 10_001, 1_000), 10_001, 10_002]

    served(tmp_path, test)


def test_work_of_one_key_is_done_in_order_also_when_some_of_it_is_cancelled() -> None:
    async def main() -> None:
        in_order, done = InOrder(), []

        def steps(name: str, turns: int) -> Generator[None, None, str]:
            for _ in range(turns):
                time.sleep(0.003)  # longer than a slice
                yield
            done.append(name)
            return name

        tasks = [
            asyncio.create_task(in_order.stepped(["k"], steps(name, turns)))
            for name, turns in (("a", 3), ("b", 2), ("c", 2), ("d", 0))
        ]
        other = asyncio.create_task(in_order.stepped(["other"], steps("other", 0)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks[1].cancel()
        assert await other == "other"
        assert done == ["other"]
        assert [await task for task in (tasks[0], *tasks[2:])] == ["a", "c", "d"]
        assert done == ["other", "a", "c", "d"]
        assert not in_order._last

    asyncio.run(main())


def test_work_of_several_keys_has_its_place_in_the_order_of_each() -> None:
    async def main() -> None:
        in_order, done = InOrder(), []

        def steps(name: str, turns: int) -> Generator[None, None, None]:
            for _ in range(turns):
                time.sleep(0.003)  # longer than a slice
                yield
            done.append(name)

        works = [("a", 3), ("b", 2), ("ab", 2), ("ac", 1), ("b", 0), ("c", 0), ("d", 0)]
        tasks = [
            asyncio.create_task(in_order.stepped(set(keys), steps(f"{keys}{at}", turns)))
            for at, (keys, turns) in enumerate(works)
        ]
        for _ in range(2):
            await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert done[0] == "d6"
        for key in "abc":
            of_key = [name for name in done if key in name[:-1]]
            assert of_key == sorted(of_key, key=lambda name: int(name[-1])), done
        assert len(done) == len(works) - 1
        assert not in_order._last

    asyncio.run(main())


@pytest.mark.parametrize("count", [2, limits.ordered_batches_max])
def test_S4_a_later_request_overtakes_no_batch_of_an_earlier_one(
    tmp_path: Path, count: int
) -> None:
    """A large request of several producers is checked in steps, and a small one is not."""

    async def test(service: DataService, replica: RangeReplica) -> None:
        values: list[bytes | None] = [b"v" * 1_000] * 60
        keys = [b"key %d" % n for n in range(60)]
        several = [
            encode_batch(keys, values, producer=1 + n, epoch=1, low=1, numbers=1)
            for n in range(count)
        ]
        last = encode_batch([b"key"], [b"v"], producer=count, epoch=1, low=1, numbers=61)
        tasks = [
            asyncio.create_task(service.append(request(*several))),
            asyncio.create_task(service.append(request(last))),
        ]
        first, second = [(await task)["results"] for task in tasks]
        assert [each["status"] for each in first] == ["ok"] * count
        assert second[0]["status"] == "ok", second
        assert second[0]["first_seq"] == 60 * count + 1

    served(tmp_path, test)


def test_work_that_raises_lets_the_next_go_on() -> None:
    async def main() -> None:
        in_order = InOrder()

        def bad() -> Generator[None, None, None]:
            yield
            raise ValueError("bad")

        def good() -> Generator[None, None, int]:
            yield
            return 5

        results = await asyncio.gather(
            in_order.stepped(["k"], bad()), in_order.stepped(["k"], good()), return_exceptions=True
        )
        assert isinstance(results[0], ValueError)
        assert results[1] == 5
        assert not in_order._last

    asyncio.run(main())
