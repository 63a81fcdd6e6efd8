"""Consumers of a group: leases, acknowledgements, changes of leaders and ranges."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from group_leaders import Fault, GroupView, lost, once

from lognode.client.cluster import Body
from lognode.client.consumer import AsyncConsumer
from lognode.client.group_batch import AsyncGroupBatch
from lognode.client.poll_turns import PollTurns
from lognode.client.protocol import Operation
from lognode.client.protocol.errors import (
    Conflict,
    Fenced,
    InvalidArgument,
    LognodeError,
    NotFound,
    Overloaded,
    Timeout,
    Unavailable,
    Unsupported,
)
from lognode.client.protocol.groups import GROUP_SETTLE, GROUP_TAKE
from lognode.client.protocol.types import Timestamp


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(whole())


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110  # a condition of the fake, which has no event
        await asyncio.sleep(0.005)


async def some(consumer: AsyncConsumer, count: int) -> list[AsyncGroupBatch]:
    return [await anext(consumer) for _ in range(count)]


def test_batches_have_the_entries_of_a_key_in_order_and_are_acknowledged() -> None:
    async def test() -> None:
        view = GroupView((b"m",))
        view.append(b"a", b"1", b"2")
        view.append(b"z", b"3")
        async with view.consumer() as consumer:
            first, second = sorted(await some(consumer, 2), key=lambda batch: batch.key)
            assert (first.key, first.values, first.deliveries) == (b"a", [b"1", b"2"], 1)
            assert [(e.key, e.seq, e.timestamp_ms) for e in first.entries] == [
                (b"a", 1, 5), (b"a", 2, 10),
            ]  # fmt: skip
            await first.ack()
            await second.ack()
            assert view.leaders[0].positions == {b"a": 3}
            assert view.leaders[1].positions == {b"z": 2}
            assert consumer.held == 0
            view.append(b"a", b"4")
            await view.wake()
            (third,) = await some(consumer, 1)
            assert third.values == [b"4"]

    run(test)


def test_a_part_of_a_batch_is_acknowledged_and_the_rest_stays() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1", b"2", b"3")
        async with view.consumer() as consumer:
            (batch,) = await some(consumer, 1)
            await batch.ack(1)
            assert view.leaders[0].positions == {b"a": 2}
            assert batch.values == [b"2", b"3"]
            assert consumer.held == 1
            for wrong in (0, 1, 4, "2", 2.0):
                with pytest.raises(InvalidArgument, match="seqs 2 to 3"):
                    await batch.ack(wrong)  # type: ignore[arg-type]
            await batch.ack()
            assert view.leaders[0].positions == {b"a": 4}
            with pytest.raises(InvalidArgument, match="settled before"):
                await batch.ack()

    run(test)


def test_acknowledgements_of_a_round_share_a_request() -> None:
    async def test() -> None:
        view = GroupView()
        for at in range(50):
            view.append(b"k%02d" % at, b"v")
        async with view.consumer() as consumer:
            batches = await some(consumer, 50)
            for batch in batches:
                await batch.ack(wait=False)
            await consumer.flush()
            assert view.count(GROUP_SETTLE) == 1
            assert len(view.leaders[0].positions) == 50

    run(test)


def test_a_request_says_whether_somebody_waits_for_its_acknowledgements() -> None:
    """A flush waits, too, and may wait a little longer."""

    async def test() -> None:
        view = GroupView()
        for key in (b"a", b"b", b"c"):
            view.append(key, b"1")
        async with view.consumer() as consumer:
            first, second, third = await some(consumer, 3)
            await first.ack(wait=False)
            await consumer.flush()
            await second.ack(wait=False)
            await third.ack()
        bodies = [body for operation, body in view.asked if operation is GROUP_SETTLE]
        assert [(len(body["acks"]), body["patient"]) for body in bodies if body["acks"]] == [
            (1, True), (2, False),
        ]  # fmt: skip

    run(test)


def test_g1_a_lost_lease_is_fenced() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        view.append(b"b", b"1")
        async with view.consumer() as consumer:
            first, second = await some(consumer, 2)
            view.leaders[0].leases.clear()  # the consumer was paused for longer than its lease
            await second.ack(wait=False)
            with pytest.raises(Fenced, match=r"no longer has key b'a'"):
                await first.ack()
            assert first.is_lost
            assert second.is_lost
            with pytest.raises(Fenced):
                await first.release()
            with pytest.raises(Fenced, match=r"b'b'"):
                await consumer.flush()
            await consumer.flush()
            again = await some(consumer, 2)
            assert [batch.key for batch in again] == [b"a", b"b"]

    run(test)


def test_leases_are_extended_while_the_caller_has_the_batch_and_no_longer_than_that() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer(lease_ms=1_000, hold_s=0.9) as consumer:
            (batch,) = await some(consumer, 1)
            await until(lambda: any(body["extends"] for _, body in view.asked
                                    if "extends" in body))  # fmt: skip
            await until(lambda: batch.is_lost)
            extends = sum(len(body.get("extends", ())) for _, body in view.asked)
            assert 1 <= extends <= 2, "at 0.33 s and 0.66 s, and not at 0.99 s"
            assert consumer.held <= 1

    run(test)


def test_a_released_key_comes_again_and_a_failed_key_is_parked() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer(max_deliveries=2) as consumer:
            (batch,) = await some(consumer, 1)
            await batch.release()
            (batch,) = await some(consumer, 1)
            assert batch.deliveries == 1, "no failure was named"
            await batch.release(error="boom\nagain")
            (batch,) = await some(consumer, 1)
            assert batch.deliveries == 2
            await batch.release(error="")
            assert view.leaders[0].parked == {b"a": "failed"}
            view.append(b"b", b"1")
            await view.wake()
            (batch,) = await some(consumer, 1)
            await batch.reject("not valid")
            assert view.leaders[0].parked == {b"a": "failed", b"b": "not valid"}
            errors = [row[3] for _, body in view.asked for row in body.get("releases", ())]
            assert errors == ["", "boom again", "failed"]
            with pytest.raises(InvalidArgument, match="delay_ms"):
                await batch.release(delay_ms=-1)

    run(test)


def test_an_error_of_the_caller_counts_for_the_batches_that_it_has_alone() -> None:
    async def test() -> None:
        view = GroupView()
        for key in (b"a", b"b", b"c"):
            view.append(key, b"1")
        consumer = view.consumer()

        async def work() -> None:
            async with consumer:
                first, _ = await some(consumer, 2)
                await first.ack()
                raise ZeroDivisionError("oh")

        with pytest.raises(ZeroDivisionError):
            await work()
        assert view.leaders[0].failures == {b"b": 1}
        assert view.leaders[0].leases == {}
        with pytest.raises(StopAsyncIteration):
            await anext(consumer)

    run(test)


def test_a_cancelled_caller_gives_everything_back_without_a_failure() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")

        async def work() -> None:
            async with view.consumer() as consumer:
                await some(consumer, 1)
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await until(lambda: view.leaders[0].leases)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (view.leaders[0].leases, view.leaders[0].failures) == ({}, {})

    run(test)


def test_g3_a_repeated_acknowledgement_is_done_once() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer() as consumer:
            (batch,) = await some(consumer, 1)
            view.lose.append(once(GROUP_SETTLE, lost()))
            await batch.ack()
            assert view.leaders[0].positions == {b"a": 2}
            assert view.count(GROUP_SETTLE) == 2
            assert not batch.is_lost

    run(test)


def lost_with_its_leader(view: GroupView) -> Fault:
    """Another node leads after the first settle was served, whose answer is lost."""
    left = [view.leaders[0]]

    def fault(operation: Operation, _: Body) -> LognodeError | None:
        if operation is not GROUP_SETTLE or not left:
            return None
        view.elect(left.pop())
        return lost()

    return fault


def test_g3_an_acknowledgement_that_the_leader_before_has_done_is_done() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer() as consumer:
            (batch,) = await some(consumer, 1)
            view.lose.append(lost_with_its_leader(view))
            await batch.ack()
            assert view.leaders[0].positions == {b"a": 2}
            # The leader let the consumer claim the key, and the next entry does not wait for the
            # end of that lease, which would count as a failed delivery.
            view.append(b"a", b"2")
            await view.wake()
            (batch,) = await some(consumer, 1)
            assert (batch.values, batch.deliveries) == ([b"2"], 1)
            await batch.ack()
            assert view.leaders[0].leases == {}

    run(test)


def test_a_key_of_which_a_part_is_done_is_kept_for_the_rest() -> None:
    """The part was acknowledged with the leader before, and the answer was lost with it."""

    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1", b"2")
        async with view.consumer() as consumer:
            (batch,) = await some(consumer, 1)
            view.lose.append(lost_with_its_leader(view))
            await batch.ack(through=1)
            assert (view.leaders[0].positions, batch.values) == ({b"a": 2}, [b"2"])
            await batch.ack()
            assert view.leaders[0].positions == {b"a": 3}

    run(test)


def test_G1_a_lease_that_may_be_over_is_not_claimed() -> None:
    """With the leader before, another consumer may have had the key and settled it."""

    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer() as consumer:
            (batch,) = await some(consumer, 1)
            batch._held.asked_s -= 1.0  # as long as the lease lasts
            view.elect(view.leaders[0])
            view.leaders[0].positions[b"a"] = 2
            await until(lambda: batch.is_lost)
            assert all(not body["holds"] for op, body in view.asked if op is GROUP_TAKE)
            with pytest.raises(Fenced):
                await batch.ack()

    run(test)


@pytest.mark.parametrize("how", ["ack", "reject"])
def test_S11_a_settle_of_a_lost_key_whose_first_answer_is_lost_is_unknown(how: str) -> None:
    """The position of the key does not say which consumer has moved it."""

    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer() as consumer:
            (batch,) = await some(consumer, 1)
            batch._held.asked_s -= 1.0
            view.lose.append(lost_with_its_leader(view))
            with pytest.raises(Unavailable) as caught:
                await getattr(batch, how)()
            assert caught.value.outcome == "unknown"
            assert batch.is_lost

    run(test)


def test_a_first_refusal_does_not_count_as_a_repetition() -> None:
    """Another consumer has done the entries: this one must not believe that it has."""

    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer() as consumer:
            (batch,) = await some(consumer, 1)
            view.leaders[0].leases.clear()
            view.leaders[0].positions[b"a"] = 2
            with pytest.raises(Fenced):
                await batch.ack()

    run(test)


def test_another_leader_keeps_the_keys_that_are_claimed() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        view.append(b"b", b"1")
        async with view.consumer(keys_max=2) as consumer:
            first, second = await some(consumer, 2)
            before = view.count(GROUP_TAKE)
            view.elect(view.leaders[0])
            del view.leaders[0].unclaimed[b"b"]  # nobody has claimed the key in time
            await view.wake()
            await until(lambda: view.count(GROUP_TAKE) > before + 1 and second.is_lost)
            await first.ack()
            assert view.leaders[0].positions == {b"a": 2}
            (again,) = await some(consumer, 1)
            assert again.key == b"b"

    run(test)


def test_nothing_is_settled_with_another_leader_before_the_claim() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer(keys_max=1) as consumer:
            (batch,) = await some(consumer, 1)
            await asyncio.sleep(0.2)  # the consumer asks for no key, to hear of another leader
            asked = view.count(GROUP_TAKE)
            view.elect(view.leaders[0])  # and the node that was asked does not answer
            async with asyncio.timeout(1.5):
                await batch.ack()
            assert view.count(GROUP_TAKE) >= asked + 2
            assert view.leaders[0].positions == {b"a": 2}

    run(test)


def test_keys_of_a_lost_answer_are_given_back_at_once() -> None:
    async def test() -> None:
        view = GroupView()
        async with view.consumer() as consumer:
            await until(lambda: view.count(GROUP_TAKE) >= 2)
            view.lose.append(once(GROUP_TAKE, lost()))
            view.append(b"a", b"1")
            await view.wake()
            (batch,) = await some(consumer, 1)
            assert batch.deliveries == 1
            assert view.leaders[0].leases[b"a"].token > 100, "by another lease"
            await batch.ack()

    run(test)


def test_the_keys_follow_a_split() -> None:
    async def test() -> None:
        view = GroupView()
        for key in (b"a", b"x"):
            view.append(key, b"1")
        async with view.consumer() as consumer:
            first, second = await some(consumer, 2)
            view.split(b"m")
            await view.wake()
            async with asyncio.timeout(2.5):  # an ack waited for a leader of the old generation
                await second.ack()
                await first.ack()
            assert [leader.positions for leader in view.leaders] == [{b"a": 2}, {b"x": 2}]
            view.append(b"y", b"1")
            view.append(b"b", b"1")
            await view.wake()
            batches = await some(consumer, 2)
            assert {batch.key for batch in batches} == {b"b", b"y"}

    run(test)


def test_the_room_is_bounded_and_shared_by_the_ranges() -> None:
    async def test() -> None:
        view = GroupView((b"m",))
        for at in range(20):
            view.append(b"a%02d" % at, b"v")
            view.append(b"z%02d" % at, b"v")
        async with view.consumer(keys_max=8) as consumer:
            batches = await some(consumer, 8)
            await asyncio.sleep(0.05)
            assert consumer.held == 8
            assert [len(leader.leases) for leader in view.leaders] == [4, 4]
            for batch in batches[:5]:
                await batch.ack()
            await some(consumer, 4)
            assert consumer.held <= 8

    run(test)


def test_a_group_keeps_its_options() -> None:
    async def test() -> None:
        view = GroupView()
        async with view.consumer(max_deliveries=3, start=Timestamp(7)) as consumer:
            assert consumer.group.max_deliveries == 3
            assert (consumer.group.begin, consumer.group.begin_ms) == ("time", 7)
        async with view.consumer():
            pass
        told = "max_deliveries 3, and this consumer asks for 4"
        with pytest.raises(Conflict, match=told):
            await view.consumer(max_deliveries=4).open()
        with pytest.raises(Conflict, match="prefix b'', and this consumer asks for b'cust/'"):
            await view.consumer(prefix="cust/").open()
        with pytest.raises(Conflict, match="begin 'time', and this consumer asks for 'latest'"):
            await view.consumer(start="latest").open()

    run(test)


def test_only_the_ranges_of_the_prefix_are_asked() -> None:
    async def test() -> None:
        view = GroupView((b"d", b"m"))
        async with view.consumer(prefix="cust/"):
            await until(lambda: view.count(GROUP_TAKE) >= 2)
            assert {body["range"] for _, body in view.asked} == {1}
            assert {body["prefix"] for _, body in view.asked} == {b"cust/"}

    run(test)


def test_a_group_of_patterns_has_their_common_prefix() -> None:
    async def test() -> None:
        view = GroupView((b"d", b"m"))
        view.routes.hierarchy = b"/"
        async with view.consumer(pattern=["cust/*/new", "dept/*"]) as consumer:
            await until(lambda: view.count(GROUP_TAKE) >= 4)
            assert consumer.group.patterns == (b"cust/*/new", b"dept/*")
            assert {body["range"] for _, body in view.asked} == {1, 2}
            assert {body["prefix"] for _, body in view.asked} == {b""}

    run(test)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NotFound("the group was deleted"), NotFound),
        (Unsupported("level 4"), Unsupported),
    ],
    ids=["deleted", "level"],
)
def test_an_error_that_no_repetition_mends_ends_the_iteration(
    error: Exception, expected: type[Exception]
) -> None:
    async def test() -> None:
        view = GroupView()
        async with view.consumer() as consumer:
            view.faults.append(lambda *_: error)  # type: ignore[arg-type, return-value]
            view.append(b"a", b"1")
            await view.wake()

            async def take_all() -> None:
                async for _ in consumer:
                    pass

            with pytest.raises(expected):
                await take_all()

    run(test)


def test_a_consumer_waits_for_a_leader() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        failures = [Unavailable("no leader") for _ in range(4)]
        view.faults.append(lambda *_: failures.pop() if failures else None)
        async with view.consumer() as consumer:
            (batch,) = await some(consumer, 1)
            assert batch.key == b"a"

    run(test)


def test_an_acknowledgement_ends_by_its_deadline() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer(timeout=0.3) as consumer:
            (batch,) = await some(consumer, 1)
            view.faults.append(lambda op, _: lost() if op is GROUP_SETTLE else None)
            with pytest.raises(Timeout) as caught:
                await batch.ack()
            assert caught.value.outcome == "unknown"
            view.faults.clear()
            await batch.ack()
            assert view.leaders[0].positions == {b"a": 2}

    run(test)


def test_S11_x18_an_unknown_outcome_stays_through_a_split() -> None:
    """The first attempt may count, for the key of the new range as well."""

    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        view.append(b"z", b"2")
        async with view.consumer(timeout=0.3) as consumer:
            batches = await some(consumer, 2)

            def fault(operation: Operation, body: Body) -> LognodeError | None:
                if operation is not GROUP_SETTLE:
                    return None
                if len(view.leaders) == 1:
                    view.split(b"m")
                    return lost()
                return Unavailable("no leader") if body["generation"] == 2 else None

            view.faults.append(fault)
            acks = (batch.ack() for batch in batches)
            errors = await asyncio.gather(*acks, return_exceptions=True)
            assert [getattr(error, "outcome", error) for error in errors] == ["unknown"] * 2

    run(test)


def test_a_range_without_room_is_asked_again() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer(timeout=0.5) as consumer:
            (batch,) = await some(consumer, 1)
            view.leaders[0].full.add(b"a")
            with pytest.raises(Overloaded, match="no room for another position"):
                await batch.ack()
            asyncio.get_running_loop().call_later(0.15, view.leaders[0].full.clear)
            await batch.ack()
            assert view.leaders[0].positions == {b"a": 2}

    run(test)


def test_several_tasks_share_a_consumer() -> None:
    async def test() -> None:
        view = GroupView()
        for at in range(40):
            view.append(b"k%02d" % at, b"v")
        seen: list[bytes] = []
        async with view.consumer() as consumer:

            async def work() -> None:
                async for batch in consumer:
                    seen.append(batch.key)
                    await batch.ack()

            tasks = [asyncio.create_task(work()) for _ in range(4)]
            await until(lambda: len(view.leaders[0].positions) == 40)
        await asyncio.gather(*tasks)
        assert sorted(seen) == sorted(view.leaders[0].positions)

    run(test)


def test_more_ranges_than_turns_all_get_a_turn() -> None:
    async def test() -> None:
        view = GroupView((b"d", b"m", b"t"))
        view.polls = PollTurns(most=2)
        async with view.consumer() as consumer:
            for key in (b"a", b"e", b"n", b"u"):
                view.append(key, b"1")
                (batch,) = await some(consumer, 1)
                assert batch.key == key
                await batch.ack()
            waits = [body["wait_ms"] for op, body in view.asked if op is GROUP_TAKE]
            assert max(waits) == 250
        view = GroupView()
        async with view.consumer():
            await until(lambda: view.count(GROUP_TAKE) >= 2)
            assert view.asked[-1][1]["wait_ms"] == 10_000

    run(test)


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""}, {"name": "x" * 129}, {"keys_max": 0}, {"keys_max": 4_097},
        {"bytes_max": 0}, {"hold_s": 0}, {"start": 7}, {"start": "later"},
    ],
    ids=str,
)  # fmt: skip
def test_bad_arguments_are_refused_before_anything_is_sent(options: dict[str, Any]) -> None:
    async def test() -> None:
        view = GroupView()
        with pytest.raises(InvalidArgument):
            view.consumer(**options)
        assert view.asked == []

    run(test)


def test_an_acknowledgement_under_way_ends_with_the_consumer() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        consumer = view.consumer()
        (batch,) = await some(consumer, 1)
        view.faults.append(lambda op, _: lost() if op is GROUP_SETTLE else None)
        acking = asyncio.create_task(batch.ack())
        await asyncio.sleep(0.01)
        await consumer.close(0.2)
        with pytest.raises(Unavailable, match="closed") as caught:
            await acking
        assert caught.value.outcome == "unknown"

    run(test)


def test_a_consumer_is_closed_twice_and_before_it_is_open() -> None:
    async def test() -> None:
        view = GroupView()
        consumer = view.consumer()
        with pytest.raises(InvalidArgument, match="not open"):
            _ = consumer.group
        await consumer.close()
        await consumer.close()
        assert view.asked == []

    run(test)
