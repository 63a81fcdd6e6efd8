"""Appends with conditions of many callers: shared batches, each record with its own outcome."""

import asyncio

import pytest
from fake_cluster import Drop, FakeCluster, FakeNode
from sdk_faults import once, raising, run

import lognode
from lognode import ABSENT, ANY, AsyncClient, AsyncLog
from lognode.client.accepting.request import Request
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.errors import Overloaded


def test_S9_callers_of_one_key_share_a_request_and_one_of_them_wins() -> None:
    """Each gets its own answer; nobody waits for another that was refused."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        last = (await log.append("k", b"0")).seq or 0
        before = cluster.count(APPEND)
        for turn in range(5):
            calls = [log.append("k", b"%d.%d" % (turn, n), expect=last) for n in range(100)]
            done = await asyncio.gather(*calls, return_exceptions=True)
            (won,) = (ack for ack in done if isinstance(ack, lognode.Ack))
            refused = [error for error in done if isinstance(error, lognode.SequenceMismatch)]
            assert len(refused) == 99
            for error in refused:
                assert error.outcome == "not_applied"
                assert error.fields == {"key": b"k", "expected": last, "actual": won.seq}
            last = won.seq or 0
        assert cluster.count(APPEND) - before == 5
        assert len(cluster.values(b"k")) == 6

    run(test)


def test_S9_a_refusal_in_one_request_delays_no_request_behind_it() -> None:
    """Nothing follows a record with a condition: it may never come."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"0")
        before = cluster.count(APPEND)
        calls = []
        for n in range(4):  # a request each, all under way before the first is answered
            calls.append(asyncio.create_task(log.append("k", b"plain %d" % n)))
            calls.append(asyncio.create_task(log.append("k", b"%d" % n, expect=ABSENT)))
            for _ in range(4):
                await asyncio.sleep(0)
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in done] == [lognode.Ack, lognode.SequenceMismatch] * 4
        assert cluster.count(APPEND) - before == 4
        assert cluster.values(b"k") == [b"0"] + [b"plain %d" % n for n in range(4)]

    run(test)


def test_S4_S9_a_condition_is_checked_behind_what_was_appended_before_it() -> None:
    """An append that was lost on the way comes first when it comes again."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"0")
        cluster.faults.append(once(raising(Overloaded("x", retry_after=0.05))))
        plain = asyncio.create_task(log.append("k", b"1"))
        for _ in range(6):
            await asyncio.sleep(0)
        with pytest.raises(lognode.SequenceMismatch):
            await log.append("k", b"2", expect=1)
        await plain
        assert cluster.values(b"k") == [b"0", b"1"]

    run(test)


def test_S8_S9_conditions_of_a_lost_answer_are_settled_record_by_record() -> None:
    """Of a request that was applied and not answered, the retry finds what was appended, and
    what was refused may be refused again: its outcome is unknown then (x18)."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("taken", b"first")
        cluster.faults.append(once(raising(Drop()), "after"))
        keys = [b"k%02d" % n for n in range(20)]
        done = await asyncio.gather(
            *(log.append(key, key, expect=ABSENT) for key in (*keys, b"taken")),
            return_exceptions=True,
        )
        for key, result in zip(keys, done[:-1], strict=True):
            assert isinstance(result, lognode.Ack), result
            assert result.duplicate
            assert [e.seq for e in cluster.entries() if e.key == key] == [result.seq]
        refused = done[-1]
        assert isinstance(refused, lognode.SequenceMismatch)
        assert refused.outcome == "unknown"
        assert cluster.values(b"taken") == [b"first"]

    run(test, split_at=())


@pytest.mark.parametrize("when", ["before", "after"])
def test_S8_S9_conditions_keep_their_records_through_a_split(when: str) -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("c0", b"first")

        def split(node: FakeNode, request: Request) -> None:
            cluster.split(b"c")
            raise Drop

        cluster.faults.append(once(split, when))
        keys = [b"%c%d" % (letter, n) for n in range(5) for letter in b"abcd"]
        done = await asyncio.gather(
            *(log.append(key, key, expect=ABSENT) for key in keys), return_exceptions=True
        )
        for key, result in zip(keys, done, strict=True):
            if key == b"c0":
                assert isinstance(result, lognode.SequenceMismatch)
                assert result.fields == {"key": key, "expected": 0, "actual": 1}
                continue
            assert isinstance(result, lognode.Ack), result
            assert cluster.values(key) == [key]
        assert cluster.values(b"c0") == [b"first"]

    run(test, split_at=())


@pytest.mark.parametrize(
    "more",
    [{"refused": [0], "actual": []}, {"refused": [2], "actual": [1]},
     {"refused": [1], "actual": [1]}, {"refused": ["0"], "actual": [1]},
     {"refused": {}, "seqs": 1}],
)  # fmt: skip
def test_S11_an_answer_that_refuses_what_had_no_condition_is_unknown(
    more: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is taken for refused, nor for appended, on the word of a malformed answer."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"0")
        answer = {"status": "ok", "seqs": [None, 5], "timestamp_ms": 1, **more}
        monkeypatch.setattr(cluster.range_of(b"a"), "apply", lambda _data: answer)
        done = await asyncio.gather(
            log.append("a", b"1", expect=ABSENT), log.append("b", b"2"), return_exceptions=True
        )
        for error in done:
            assert isinstance(error, lognode.RemoteProtocolError), error
            assert error.outcome == "unknown"

    run(test)


def test_L4_each_caller_waits_until_its_own_deadline() -> None:
    """Callers of one batch give up in their order, and the last has its answer."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"0")
        cluster.faults.append(once(raising(Overloaded("x", retry_after=0.6)), times=1))
        ended: list[float] = []

        async def call(timeout: float) -> object:
            try:
                return await log.append("k", b"%f" % timeout, timeout=timeout)
            finally:
                ended.append(timeout)

        done = await asyncio.gather(*map(call, (5.0, 0.3, 0.1, 0.2)), return_exceptions=True)
        assert ended == [0.1, 0.2, 0.3, 5.0]
        assert isinstance(done[0], lognode.Ack)
        assert all(isinstance(error, lognode.Timeout) for error in done[1:])

    run(test)


def test_S9_many_records_have_a_condition_each() -> None:
    """Refused records fail alone, in whichever range they are; one request serves a range."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        first = await log.append_many([("a", b"0"), ("z", b"0")])
        before = cluster.count(APPEND)
        keys = [b"%c%d" % (letter, n) for n in range(10) for letter in b"ay"]
        records: list[tuple[bytes, bytes | None]] = [(key, b"1") for key in (*keys, b"a", b"z")]
        records += [(b"a", b"2"), (b"z", b"2"), (b"free", b"2")]
        conditions = [ABSENT] * len(keys) + [first[0].seq or 0, ABSENT, ABSENT, ANY, ANY]
        with pytest.raises(lognode.PartialFailure) as told:
            await log.append_many(records, expects=conditions)
        acks, errors = told.value.acks, told.value.errors
        refused = [records[at] for at, error in enumerate(errors) if error is not None]
        assert refused == [(b"z", b"1"), (b"a", b"2")]
        assert [acks.index(None), len(acks) - acks.count(None)] == [21, len(records) - 2]
        outcomes = ["applied" if ack else "not_applied" for ack in acks]
        assert (told.value.outcomes, told.value.outcome) == (outcomes, "unknown")
        assert (
            f"{len(acks) - 2} of {len(acks)} records were appended, 2 were not"
            in told.value.message
        )
        for error in filter(None, errors):
            assert isinstance(error, lognode.SequenceMismatch)
            assert error.outcome == "not_applied"
        assert cluster.count(APPEND) - before == 2
        assert cluster.values(b"a") == [b"0", b"1"]
        assert cluster.values(b"z") == [b"0", b"2"]
        seqs = [ack.seq or 0 for ack in acks if ack][: len(keys)]
        await log.append_many([(key, b"2") for key in keys], expects=seqs)
        assert all(cluster.values(key) == [b"1", b"2"] for key in keys)

    run(test)


def test_S9_records_with_conditions_share_batches_with_others() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        calls = [
            log.append("a", b"1"),
            log.append_many([("b", b"1"), ("c", b"1")], expects=[ABSENT, 7]),
            log.append("d", b"1", headers={b"h": b"v"}),
            log.append_many([("e", b"1"), ("f", b"1", {b"h": b"v"})]),
            log.append_many([("a", b"2"), ("b", b"2")], expects=[ABSENT, ABSENT]),
        ]
        done = await asyncio.gather(*calls, return_exceptions=True)
        kinds = [type(result) for result in done]
        assert kinds == [lognode.Ack, lognode.PartialFailure, lognode.Ack, list,
                         lognode.PartialFailure]  # fmt: skip
        assert cluster.count(APPEND) == 1
        assert {e.key for e in cluster.entries()} == {b"a", b"b", b"d", b"e", b"f"}

    run(test)


def test_a_condition_for_each_record_is_needed() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        for wrong in ([], [ABSENT], [ABSENT, 0], [ABSENT, "1"], [ABSENT] * 3):
            with pytest.raises(lognode.InvalidArgument):
                await log.append_many([("a", b"1"), ("b", b"1")], expects=wrong)  # type: ignore[arg-type]
        assert cluster.count(APPEND) == 0

    run(test)


def test_x10_S9_a_refused_condition_ends_a_named_session_and_no_number_passes_it() -> None:
    """Below `low` the refused number would count as applied when the next session sends it."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        seq = (await log.append("a", b"0")).seq or 0
        rows = [("z", b"1", ANY), ("a", b"2", ABSENT), ("a", b"3", ANY), ("z", b"4", ANY)]
        made: list[lognode.AsyncProducer] = []

        async def deliver() -> lognode.AsyncProducer:
            producer = log.producer(name="task", linger_ms=0, timeout=5.0)
            made.append(producer)
            await producer.open()
            try:
                for number, (key, value, expect) in enumerate(rows, 1):
                    ticket = await producer.submit(key, value, number=number, expect=expect)
                    await asyncio.wait([asyncio.ensure_future(_outcome(ticket))])
            finally:
                await producer.close()
            return producer

        for _ in range(2):
            with pytest.raises(lognode.SequenceMismatch) as refused:
                await deliver()
            assert refused.value.fields == {"key": b"a", "expected": 0, "actual": seq}
            assert made[-1]._sender.window.low == 2
            assert (cluster.values(b"a"), cluster.values(b"z")) == ([b"0"], [b"1"])
        rows[1] = ("a", b"2", seq)
        assert (await deliver()).delivery.acknowledged == 4
        assert (cluster.values(b"a"), cluster.values(b"z")) == ([b"0", b"2", b"3"], [b"1", b"4"])
        again = await deliver()
        assert (again.delivery.duplicates, again.last_error) == (4, None)
        assert len(cluster.entries()) == 5

    run(test)


def test_S4_S9_records_of_a_named_producer_wait_for_a_condition_of_their_key() -> None:
    """Without their prev, the second would be appended first, and the condition would fail."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Overloaded("x", retry_after=0.05))))
        async with log.producer(name="task", linger_ms=0) as producer:
            await producer.submit("a", b"1", number=1, expect=ABSENT)
            await asyncio.sleep(0.01)
            await producer.submit("a", b"2", number=2)
        assert cluster.values(b"a") == [b"1", b"2"]

    run(test)


def test_S9_an_anonymous_producer_goes_on_after_a_refused_condition() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        producer = log.producer(linger_ms=0)
        await producer.submit("a", b"1", expect=7)
        with pytest.raises(lognode.InvalidArgument, match="expect is -5; give ANY"):
            await producer.submit("a", b"1", expect=-5)
        await producer.flush()
        await producer.submit("a", b"2", expect=ABSENT)
        delivery = await producer.close()
        assert (delivery.acknowledged, delivery.not_applied) == (1, 1)
        assert isinstance(producer.last_error, lognode.SequenceMismatch)
        assert cluster.values(b"a") == [b"2"]

    run(test)


async def _outcome(ticket: lognode.AsyncTicket) -> object:
    try:
        return await ticket
    except lognode.LognodeError as error:
        return error
