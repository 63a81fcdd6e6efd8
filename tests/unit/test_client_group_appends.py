"""`append_batch(acks=)`: records and acknowledgements in one request, also when that fails."""

import asyncio
from collections.abc import Coroutine

import pytest
from group_leaders import Fault, GroupView, lost, once

from lognode.client.consumer import AsyncConsumer
from lognode.client.group_batch import AsyncGroupBatch
from lognode.client.log import AsyncLog
from lognode.client.protocol import Operation, limits
from lognode.client.protocol.errors import (
    BatchSpansRanges,
    Fenced,
    InvalidArgument,
    LognodeError,
    Overloaded,
    Timeout,
)
from lognode.client.protocol.groups import GROUP_APPEND, GROUP_SETTLE


def run(test: Coroutine[None, None, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(limited())


def log_of(view: GroupView) -> AsyncLog:
    return AsyncLog(view, "orders", timeout=5.0)


async def given(consumer: AsyncConsumer, count: int) -> list[AsyncGroupBatch]:
    return [await anext(consumer) for _ in range(count)]


def answered(view: GroupView, error: LognodeError, *, elects: bool = False) -> Fault:
    """The first append is served, and its answer is this error; perhaps another node leads then."""
    left = [error]

    def fault(operation: Operation, _: object) -> LognodeError | None:
        if operation is not GROUP_APPEND or not left:
            return None
        if elects:
            view.elect(view.leaders[0])
        return left.pop()

    return fault


def test_one_request_appends_and_acknowledges() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1", b"2")
        view.append(b"b", b"3")
        async with view.consumer() as consumer:
            batches = await given(consumer, 2)
            ack = await log_of(view).append_batch([("out", b"x"), ("out", b"y")], acks=batches)
            assert (ack.seq, ack.duplicate) == (100, False)
            assert view.leaders[0].outputs == [(b"out", b"x"), (b"out", b"y")]
            assert view.leaders[0].positions == {b"a": 3, b"b": 2}
            assert (view.count(GROUP_APPEND), view.count(GROUP_SETTLE)) == (1, 0)
            assert (consumer.held, batches[0].is_lost) == (0, False)
            with pytest.raises(InvalidArgument, match="settled before"):
                await log_of(view).append_batch([("out", b"z")], acks=batches[:1])
            with pytest.raises(InvalidArgument, match="settled before"):
                await batches[0].ack()

    run(test())


@pytest.mark.parametrize("elects", [False, True])
def test_S8_a_lost_answer_is_asked_for_again_with_the_same_numbers(elects: bool) -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer() as consumer:
            batches = await given(consumer, 1)
            view.lose.append(answered(view, lost(), elects=elects))
            ack = await log_of(view).append_batch([("out", b"x")], acks=batches)
            assert (ack.seq, ack.duplicate) == (100, True)
            assert view.leaders[0].outputs == [(b"out", b"x")]
            bodies = [body for operation, body in view.asked if operation is GROUP_APPEND]
            assert len({body["batch"] for body in bodies}) == 1
            assert (consumer.held, batches[0].is_lost) == (0, False)

    run(test())


def test_a_lost_key_refuses_the_append_and_the_producer_goes_on() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        view.append(b"b", b"2")
        log = log_of(view)
        async with view.consumer() as consumer:
            first, second = await given(consumer, 2)
            del view.leaders[0].leases[b"a"]
            with pytest.raises(Fenced) as caught:
                await log.append_batch([("out", b"x")], acks=[first, second])
            assert (caught.value.outcome, caught.value.key) == ("not_applied", b"a")
            assert view.leaders[0].outputs == []
            assert (first.is_lost, second.is_lost) == (True, False)
            with pytest.raises(Fenced):
                await log.append_batch([("out", b"x")], acks=[first])
            await log.append_batch([("out", b"y")], acks=[second])
            assert view.leaders[0].outputs == [(b"out", b"y")]

    run(test())


def test_x18_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer() as consumer:
            batches = await given(consumer, 1)

            def gone(operation: Operation, _: object) -> LognodeError | None:
                if operation is not GROUP_APPEND or b"a" not in view.leaders[0].leases:
                    return None
                del view.leaders[0].leases[b"a"]
                return lost()

            view.faults.append(gone)
            with pytest.raises(Fenced) as caught:
                await log_of(view).append_batch([("out", b"x")], acks=batches)
            assert caught.value.outcome == "unknown"
            assert batches[0].is_lost

    run(test())


def test_a_leader_that_is_busy_with_the_key_is_asked_again() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer() as consumer:
            batches = await given(consumer, 1)
            view.faults.append(once(GROUP_APPEND, Overloaded("busy", retry_after=0.01)))
            await log_of(view).append_batch([("out", b"x")], acks=batches)
            assert view.count(GROUP_APPEND) == 2

    run(test())


@pytest.mark.parametrize("is_applied", [True, False])
def test_x17_a_split_between_the_records_and_the_keys(is_applied: bool) -> None:
    """Both children know the record numbers, and the client asks one of them."""

    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer() as consumer:
            batches = await given(consumer, 1)

            def split(operation: Operation, _: object) -> LognodeError | None:
                if operation is not GROUP_APPEND or len(view.leaders) > 1:
                    return None
                view.split(b"m")
                view.learn()
                return lost()

            (view.lose if is_applied else view.faults).append(split)
            if is_applied:
                ack = await log_of(view).append_batch([("out", b"x")], acks=batches)
                assert ack.duplicate
                assert consumer.held == 0
                return
            with pytest.raises(BatchSpansRanges, match="named producer"):
                await log_of(view).append_batch([("out", b"x")], acks=batches)
            assert not batches[0].is_lost

    run(test())


def test_acks_that_do_not_fit_are_refused_before_anything_is_sent() -> None:
    async def test() -> None:
        view, other = GroupView(), GroupView()
        for key in (b"a", b"b", b"c"):
            view.append(key, b"1")
        log = log_of(view)
        async with view.consumer(keys_max=2) as consumer, view.consumer() as second:
            first, more = await given(consumer, 2)
            (foreign,) = await given(second, 1)
            for acks, match in (
                ([first, foreign], "several consumers"), ([first, first], "a batch twice"),
                ([first] * (limits.group_append_keys_max + 1), "at most 512"), ([b"a"], "not a"),
            ):  # fmt: skip
                with pytest.raises(InvalidArgument, match=match):
                    await log.append_batch([("out", b"x")], acks=acks)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="client of the consumer"):
                await log_of(other).append_batch([("out", b"x")], acks=[first])
            with pytest.raises(InvalidArgument, match="append to the log of the batches"):
                await AsyncLog(view, "others", timeout=5.0).append_batch([("k", b"")], acks=[more])
            await consumer.close()
            with pytest.raises(Fenced):
                await log.append_batch([("out", b"x")], acks=[first])
        assert view.count(GROUP_APPEND) == 0

    run(test())


def test_a_call_out_of_time_keeps_the_batch() -> None:
    async def test() -> None:
        view = GroupView()
        view.append(b"a", b"1")
        async with view.consumer() as consumer:
            batches = await given(consumer, 1)
            view.lose.append(lambda operation, _: lost() if operation is GROUP_APPEND else None)
            with pytest.raises(Timeout) as caught:
                await log_of(view).append_batch([("out", b"x")], acks=batches, timeout=0.3)
            assert caught.value.outcome == "unknown"
            assert not batches[0].is_lost
            view.lose.clear()
            with pytest.raises(Fenced):
                await log_of(view).append_batch([("out", b"again")], acks=batches)
            assert view.leaders[0].outputs == [(b"out", b"x")]

    run(test())
