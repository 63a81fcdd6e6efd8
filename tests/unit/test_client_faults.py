"""The SDK against scripted nodes that fail: what faults make of its calls."""

import asyncio
from collections.abc import Callable

import pytest
from fake_cluster import Drop, FakeCluster, FakeNode
from sdk_faults import once, raising, run

import lognode
from lognode import ABSENT, AsyncClient, AsyncLog, Entry
from lognode.client.accepting.request import Request
from lognode.client.appends import AppendBatch
from lognode.client.protocol import limits
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.cluster import METADATA
from lognode.client.protocol.errors import LognodeError, Overloaded, Sealed, Unavailable
from lognode.client.sender import Sender


def test_concurrent_appends_share_batches() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"first")
        before = cluster.count(APPEND)
        acks = await asyncio.gather(*(log.append("k", b"%d" % i) for i in range(200)))
        assert [ack.seq for ack in acks] == list(range(2, 202))
        assert cluster.count(APPEND) - before <= 5

    run(test)


def test_S8_a_lost_acknowledgement_is_a_duplicate_with_its_seq() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Drop()), "after"))
        ack = await log.append("k", b"1")
        assert ack.duplicate
        assert ack.seq == 1
        assert cluster.values(b"k") == [b"1"]

    run(test)


def test_S8_a_request_lost_before_it_was_applied_is_applied_once() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Drop()), "before"))
        ack = await log.append("k", b"1")
        assert not ack.duplicate
        assert cluster.values(b"k") == [b"1"]

    run(test)


def test_not_leader_follows_the_hint() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"1")
        known = cluster.range_of(b"k")
        cluster.lead(known, known.leader % 3 + 1)
        metadata = cluster.count(METADATA)
        await log.append("k", b"2")
        assert cluster.values(b"k") == [b"1", b"2"]
        assert cluster.count(METADATA) == metadata  # the hint was enough

    run(test)


def test_L1_a_dead_leader_is_left_for_its_successor() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"1")
        known = cluster.range_of(b"k")
        dead = cluster.nodes[known.leader]
        await dead.stop()
        started = asyncio.get_running_loop().time()
        append = asyncio.create_task(log.append("k", b"2"))
        await asyncio.sleep(0.2)
        cluster.lead(known, known.leader % 3 + 1)
        await append
        assert asyncio.get_running_loop().time() - started < 3
        assert await log.count("k") == 2

    run(test)


def test_S8_generation_mismatch_regroups_with_the_same_numbers() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        records = [(b"%c" % (97 + i % 12), b"%d" % i) for i in range(60)]
        await log.append_many(records[:20])
        cluster.split(b"f")
        cluster.faults.append(once(raising(Drop()), "after", 2))
        acks = await log.append_many(records[20:])
        assert len(acks) == 40
        for key in {key for key, _ in records}:
            assert cluster.values(key) == [value for k, value in records if k == key]

    run(test)


def test_S8_a_batch_applied_before_a_split_is_found_by_its_numbers_after_it() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def split_and_drop(node: FakeNode, request: Request) -> None:
            cluster.split(b"c", quietly=True)
            raise Drop

        cluster.faults.append(once(split_and_drop, "after"))
        records = [(b"%c" % (97 + i % 6), b"%d" % i) for i in range(30)]
        acks = await log.append_many(records)
        assert all(ack.duplicate for ack in acks)
        assert sorted(ack.seq or 0 for ack in acks) == list(range(1, 31))
        assert len(cluster.entries()) == 30

    run(test)


def test_sealed_waits_for_the_successor() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"1")
        cluster.range_of(b"k").state = "SEALING"
        append = asyncio.create_task(log.append("k", b"2"))
        scan = asyncio.create_task(log.count("k"))
        await asyncio.sleep(0.1)
        assert not append.done()
        cluster.range_of(b"k").state = "ACTIVE"
        cluster.split(b"f")
        await append
        assert await scan in (1, 2)
        assert cluster.values(b"k") == [b"1", b"2"]

    run(test)


def test_overloaded_comes_back_as_told() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Overloaded("full", retry_after=0.1)), times=2))
        started = asyncio.get_running_loop().time()
        await log.append("k", b"1")
        assert asyncio.get_running_loop().time() - started >= 0.2

    run(test)


def test_range_not_found_asks_again() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"1")
        known = cluster.range_of(b"k")
        known.range_id, known.generation = 77, 5
        for entry in cluster.ranges:
            entry.generation = max(entry.generation, 2)
        cluster.version += 1
        await log.append("k", b"2")
        assert cluster.values(b"k") == [b"1", b"2"]

    run(test)


def test_S4_order_per_key_through_out_of_order_and_lost_acks() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        calls = 0

        def disturb(node: FakeNode, request: Request, when: str) -> None:
            nonlocal calls
            calls += 1
            if when == "before" and calls % 5 == 0:
                raise Overloaded("later", retry_after=0.02)  # so that successors come first
            if when == "after" and calls % 7 == 0:
                raise Drop

        cluster.faults.append(disturb)
        async with log.producer(linger_ms=0, timeout=15) as producer:
            for i in range(3000):
                await producer.submit(b"%c" % (97 + i % 20), b"%d" % i)
                if i % 50 == 0:
                    await asyncio.sleep(0)
        cluster.faults.clear()
        assert calls > 50
        for k in range(20):
            assert cluster.values(b"%c" % (97 + k)) == [b"%d" % i for i in range(k, 3000, 20)]
        assert producer.delivery.acknowledged == 3000

    run(test)


def test_x10_a_named_producer_never_gives_up_a_number() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        producer = log.producer(name="import", linger_ms=0, timeout=0.3)
        await producer.open()
        await (await producer.submit("a", b"1", number=1))
        stuck = raising(Overloaded("stuck", retry_after=0.05))

        def fault(node: FakeNode, request: Request, when: str) -> None:
            if when == "before":
                stuck(node, request)

        cluster.faults.append(fault)
        ticket = await producer.submit("a", b"2", number=2)
        with pytest.raises(lognode.Timeout) as caught:
            await ticket
        assert caught.value.outcome == "not_applied"
        cluster.faults.clear()
        with pytest.raises(lognode.Timeout):
            await producer.submit("z", b"3", number=3)
        assert producer._sender.window.low == 2
        await producer.close()
        async with log.producer(name="import") as again:
            for n, key in ((1, "a"), (2, "a"), (3, "z")):
                await again.submit(key, b"%d" % n, number=n)
        assert cluster.values(b"a") == [b"1", b"2"]
        assert cluster.values(b"z") == [b"3"]

    run(test)


def test_S9_x27_an_older_holder_of_the_name_is_fenced_everywhere() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        old = log.producer(name="n")
        await old.open()
        new = log.producer(name="n")
        await new.open()
        for known in cluster.ranges:  # also where the new holder has not appended anything
            assert {row.epoch for row in known.producers.rows.values()} == {2}
        with pytest.raises(lognode.Fenced) as caught:
            await (await old.submit("k", b"1", number=1))
        assert caught.value.outcome == "not_applied"
        await (await new.submit("k", b"1", number=1))
        await old.close()
        await new.close()

    run(test)


def test_an_anonymous_producer_gives_up_at_its_deadline_and_goes_on() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        async with log.producer(linger_ms=0, timeout=0.3) as producer:
            cluster.faults.append(once(raising(Overloaded("x", retry_after=0.2)), times=2))
            lost = await producer.submit("k", b"1")
            with pytest.raises(lognode.Timeout) as caught:
                await lost
            assert caught.value.outcome == "not_applied"
            assert (await (await producer.submit("k", b"2"))).seq == 1
            with pytest.raises(lognode.PartialFailure) as told:
                await producer.__aexit__(None, None, None)
            assert told.value.outcome == "unknown", "one of the two records was appended"
        assert cluster.values(b"k") == [b"2"]

    with pytest.raises(lognode.PartialFailure):
        run(test)


def test_S11_a_timeout_is_unknown_when_an_attempt_may_have_been_applied() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Drop()), "after"))
        cluster.faults.append(once(raising(Overloaded("x", retry_after=9)), "before", 99))
        with pytest.raises(lognode.Timeout) as caught:
            await log.append("k", b"1", timeout=0.5)
        assert caught.value.outcome == "not_applied"
        cluster.faults[:] = [once(raising(Drop()), "after", 99)]
        with pytest.raises(LognodeError) as other:
            await log.append("k", b"2", timeout=0.5, expect=ABSENT)
        assert other.value.outcome == "unknown"
        assert cluster.values(b"k") == [b"2"]

    run(test)


def test_S11_a_silent_node_times_out_as_unknown() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"0")
        for node in cluster.nodes.values():
            for connection in node.connections:
                connection._transport.read_on(False)
        with pytest.raises(lognode.Timeout) as caught:
            await log.append("k", b"1", timeout=0.3)
        assert caught.value.outcome == "unknown"

    run(test)


@pytest.mark.parametrize("applied", [True, False])
def test_S10_x17_append_batch_is_never_regrouped(applied: bool) -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def split_and_drop(node: FakeNode, request: Request) -> None:
            cluster.split(b"b")
            raise Drop

        cluster.faults.append(once(split_and_drop, "after" if applied else "before"))
        if applied:
            ack = await log.append_batch([("a", b"1"), ("c", b"2")])
            assert ack.duplicate
            assert ack.seq == 1
            assert len(cluster.entries()) == 2
        else:
            # The fake applies after the fault, to a range that is gone: nothing is stored.
            with pytest.raises(lognode.BatchSpansRanges):
                await log.append_batch([("a", b"1"), ("c", b"2")])
            assert cluster.entries() == []

    run(test)


def test_no_node_answers_is_one_clear_error() -> None:
    async def main() -> None:
        async with AsyncClient("lognode://127.0.0.1:1", timeout=0.5) as client:
            with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
                await client.log("x").append("k", b"v")
            with pytest.raises(Unavailable):
                await client.status()

    asyncio.run(main())


def test_a_cancelled_call_leaves_the_client_usable() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Sealed("x")), times=20))
        tasks = [asyncio.create_task(log.append("k", b"%d" % i)) for i in range(5)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        cluster.faults.clear()
        await log.append("k", b"after")
        assert cluster.values(b"k")[-1] == b"after"
        assert await log.count("k") == len(cluster.values(b"k"))

    run(test)


def test_L4_close_returns_and_reports_what_was_not_delivered() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def stuck(node: FakeNode, request: Request, when: str) -> None:
            if when == "before":
                raise Sealed("for ever")

        cluster.faults.append(stuck)
        producer = log.producer(linger_ms=0)
        tickets = [await producer.submit("k", b"%d" % i) for i in range(10)]
        started = asyncio.get_running_loop().time()
        delivery = await producer.close(timeout=0.2)
        assert asyncio.get_running_loop().time() - started < 1.5
        assert delivery.not_applied == 10
        assert delivery.unknown == 0
        for ticket in tickets:
            with pytest.raises(LognodeError):
                await ticket
        with pytest.raises(LognodeError):
            await producer.submit("k", b"late")

    run(test)


def test_L4_close_settles_what_never_began(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        producer = log.producer(linger_ms=1000)
        await producer.open()
        tickets = [await producer.submit("k", b"%d" % i) for i in range(3)]
        sender = producer._sender

        async def flush() -> None:
            for lane in sender.batcher.lanes():
                sender.batcher.close_open(lane)
                sender._pump(lane)  # makes a task, which is cancelled before it runs
            raise TimeoutError

        monkeypatch.setattr(sender, "flush", flush)
        async with asyncio.timeout(5):
            delivery = await producer.close()
            results = await asyncio.gather(*(t.result() for t in tickets), return_exceptions=True)
        assert delivery.not_applied == 3
        assert all(isinstance(result, Unavailable) for result in results)

    run(test)


def test_S11_x18_the_parts_of_a_split_batch_inherit_its_outcome() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def split_and_drop(node: FakeNode, request: Request) -> None:
            cluster.split(b"c")
            cluster.faults[:] = [once(raising(Overloaded("x", retry_after=9)), times=99)]
            raise Drop

        cluster.faults.append(once(split_and_drop))
        with pytest.raises(LognodeError) as caught:
            await log.append_many([("a", b"1"), ("d", b"2")], timeout=1)
        assert caught.value.outcome == "unknown"

    run(test)


def test_records_after_an_abandoned_number_cost_no_extra_round_trip() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def fault(node: FakeNode, request: Request, when: str) -> None:
            if when == "before" and request.body["range"] == stuck:
                raise Overloaded("x", retry_after=0.2)

        await log.append("z", b"0")
        stuck = cluster.range_of(b"a").range_id
        cluster.faults.append(fault)
        holds_low = asyncio.create_task(log.append("a", b"1"))
        await asyncio.sleep(0.05)
        cluster.faults.append(once(raising(Overloaded("x", retry_after=9)), times=1))
        with pytest.raises(lognode.Timeout) as caught:
            await log.append("z", b"given up", timeout=0.3)
        assert caught.value.outcome == "not_applied"
        before = cluster.count(APPEND)
        await log.append("z", b"2")
        assert not holds_low.done()
        assert cluster.count(APPEND) == before + 1
        cluster.faults.clear()
        await holds_low
        assert cluster.values(b"z") == [b"0", b"2"]

    run(test)


def test_S4_a_marked_append_does_not_overtake() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"0")
        await asyncio.gather(log.append("k", b"1"), log.append("k", b"2", snapshot=True))
        assert cluster.values(b"k") == [b"0", b"1", b"2"]
        assert [entry.snapshot for entry in cluster.entries()] == [False, False, True]

    run(test)


def test_without_a_hint_the_members_are_asked_in_turn() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.hide_leaders = True
        for key in (b"a", b"z"):
            for node in (1, 2, 3):
                cluster.lead(cluster.range_of(key), node)
                await log.append(key, b"v")
                assert await log.count(key) == node

    run(test)


def test_keyed_follow_brings_nothing_twice_after_a_lost_connection() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([("a", b"1"), ("z", b"1"), ("a", b"2")])
        async with log.follow(keys=["a", "z"], start="earliest") as feed:
            got = await take(feed, 3)
            for node in cluster.nodes.values():
                for connection in list(node.connections):
                    connection.abort(Unavailable("test"))
            cluster.split(b"f")
            await log.append_many([("a", b"3"), ("z", b"2")])
            got += await take(feed, 2)
        assert [e.value for e in got if e.key == b"a"] == [b"1", b"2", b"3"]
        assert [e.value for e in got if e.key == b"z"] == [b"1", b"2"]

    run(test)


def test_giving_up_one_ticket_leaves_the_others() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Overloaded("x", retry_after=0.2))))
        async with log.producer(linger_ms=0) as producer:
            first = asyncio.create_task((await producer.submit("k", b"1")).result())
            second = asyncio.create_task((await producer.submit("k", b"2")).result())
            await asyncio.sleep(0.05)
            first.cancel()
            assert (await second).seq == 2

    run(test)


def test_giving_up_one_caller_leaves_the_dial_to_the_others() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        pool, deadline = client._cluster.pool, client._cluster.now() + 5
        where = client._cluster.seeds[0]
        tasks = [asyncio.create_task(pool.get(where, deadline)) for _ in range(2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        assert (await tasks[1]).welcome.node == 1
        assert len(cluster.nodes[1].connections) == 1

    run(test)


def test_submit_waits_at_the_window_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "producer_window_max", 10)

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Overloaded("x", retry_after=0.1)), times=3))
        async with log.producer(linger_ms=0) as producer:
            for i in range(10):
                await producer.submit("k", b"%d" % i)
            waiting = asyncio.create_task(producer.submit("k", b"10"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await (await waiting).result()

    run(test)


def test_append_many_waits_until_all_its_numbers_are_in_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Numbers run over all ranges: one that answers late holds up the others, and fails nothing."""
    monkeypatch.setattr(limits, "producer_window_max", 10)

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        slow = cluster.range_of(b"a")
        assert slow is not cluster.range_of(b"z")
        slow.state = "SEALING"
        first = asyncio.create_task(log.append(b"a", b"1"))
        await asyncio.sleep(0.05)
        records = [(b"z", b"%d" % n) for n in range(6)]
        await log.append_many(records)
        calls = [
            asyncio.create_task(log.append_many(records)),
            asyncio.create_task(log.append_batch(records)),
        ]
        await asyncio.sleep(0.05)
        assert not any(call.done() for call in calls)
        assert len(cluster.values(b"z")) == 6
        slow.state = "ACTIVE"
        await asyncio.gather(first, *calls)
        assert len(cluster.values(b"z")) == 18

    run(test)


def test_S8_a_row_is_kept_when_a_request_went_unanswered() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Drop()), "after"))
        await log.append("k", b"1")
        other = client.log("other")
        cluster.create("other")
        await other.append("k", b"1")
        await client.close()
        async with asyncio.timeout(5):
            while not cluster.closed_producers:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert cluster.closed_producers == [2]

    run(test)


def test_submit_waits_for_room_only() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        async with log.producer(unacked_bytes_max=10_000, linger_ms=0) as producer:
            most = 0
            for _ in range(300):
                await producer.submit("k", bytes(1000))
                most = max(most, producer._sender.window.unacked_bytes)
            assert most <= 11_001
        assert len(cluster.entries()) == 300

    run(test)


def test_batches_close_at_their_limits() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        async with log.producer(linger_ms=10_000) as producer:
            for i in range(25_000):
                await producer.submit("k", b"%d" % i)
            await producer.flush()
            for _ in range(3):
                await producer.submit("k", bytes(700_000))
        appends = [body for _, op, body in cluster.requests if op == APPEND]
        batches = {data for body in appends for data in body["batches"]}  # some may come twice
        assert len(batches) == 6
        assert len(cluster.entries()) == 25_003

    run(test)


def test_an_idle_producer_row_is_retired_by_close() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"1")
        await client.close()
        async with asyncio.timeout(5):
            while cluster.closed_producers != [1]:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    run(test)


async def take(feed: lognode.AsyncFeed, count: int) -> list[Entry]:
    found: list[Entry] = []
    async with asyncio.timeout(10):
        async for entry in feed.entries():
            found.append(entry)
            if len(found) == count:
                return found
    raise AssertionError


def test_follow_the_whole_log_through_a_split_and_lost_connections() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([(b"%c" % (97 + i % 20), b"%d" % i) for i in range(40)])
        async with log.follow(start="earliest") as feed:
            got = await take(feed, 40)
            cluster.split(b"f")
            await log.append_many([(b"%c" % (97 + i % 20), b"%d" % i) for i in range(40, 80)])
            got += await take(feed, 40)
            for node in cluster.nodes.values():
                for connection in list(node.connections):
                    connection.abort(Unavailable("test"))
            await log.append_many([(b"%c" % (97 + i % 20), b"%d" % i) for i in range(80, 120)])
            got += await take(feed, 40)
        for k in range(20):
            key = b"%c" % (97 + k)
            assert [e.value for e in got if e.key == key] == [b"%d" % i for i in range(k, 120, 20)]

    run(test)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  nobody tells of it
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("keys", [None, [b"%c" % (97 + i) for i in range(9)]], ids=["log", "keys"])
def test_a_cursor_from_before_a_split_that_is_taken_after_it_skips_and_repeats_nothing(
    keys: list[bytes] | None,
) -> None:
    """What was read of the whole span counts for both of its halves."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def values(first: int) -> list[tuple[bytes, bytes]]:
            return [(b"%c" % (97 + i % 9), b"%d" % i) for i in range(first, first + 9)]

        await log.append_many(values(0))
        async with log.follow(keys=keys, start="earliest") as feed:
            spans = len(feed._spans)
            await until(lambda: feed._queue.qsize() >= 3)  # the fake's pages have 3 entries
            cluster.split(b"c")
            for node in cluster.nodes.values():
                for connection in list(node.connections):
                    connection.abort(Unavailable("test"))
            await until(lambda: len(feed._spans) > spans)
            seen: list[Entry] = []
            while len(seen) < 9:
                batch = await anext(feed)
                seen += batch.entries
        await log.append_many(values(9))
        async with log.follow(start=batch.cursor) as feed:
            seen += await take(feed, 9)
        assert sorted((e.key, e.value) for e in seen) == sorted(values(0) + values(9))

    run(test)


def test_S9_S10_conditions_share_a_request_and_a_refusal_hits_nobody_else() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("taken", b"first")
        before = cluster.count(APPEND)
        keys = [b"k%03d" % n for n in range(100)]
        done = await asyncio.gather(
            *(log.append(key, key, expect=ABSENT) for key in (b"taken", *keys, b"taken")),
            return_exceptions=True,
        )
        refused = [result for result in done if isinstance(result, BaseException)]
        assert [type(error) for error in refused] == [lognode.SequenceMismatch] * 2
        assert {error.outcome for error in refused if isinstance(error, LognodeError)} == {
            "not_applied"
        }
        assert all(cluster.values(key) == [key] for key in keys)
        assert cluster.values(b"taken") == [b"first"]
        assert cluster.count(APPEND) - before <= 5

    run(test)


@pytest.mark.parametrize(
    ("when", "error"),
    [("before", Drop()), ("after", Drop()), ("before", Overloaded("busy", retry_after=0.0)),
     ("before", Sealed("sealed"))],
)  # fmt: skip
def test_S8_S11_a_request_of_many_batches_fails_as_each_of_them(
    when: str, error: Exception
) -> None:
    """What the request was answered with counts for every batch; each is applied once."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("first", b"")
        requests: list[int] = []

        def fail(_: FakeNode, request: Request) -> None:
            requests.append(len(request.body["batches"]))
            raise error

        cluster.faults.append(once(fail, when))
        keys = [b"k%03d" % n for n in range(50)]
        acks = await asyncio.gather(*(log.append_batch([(key, key)]) for key in keys))
        assert requests == [50]
        assert len({ack.seq for ack in acks}) == 50
        assert all(cluster.values(key) == [key] for key in keys)

    run(test)


def test_S4_calls_of_few_records_a_range_share_batches() -> None:
    """What joins a batch while requests are under way gets its own acks, in its own order."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("a", b"first")
        before = cluster.count(APPEND)
        calls = [
            [(b"%c%d" % (65 + at * 7 % 50, at % 3), b"%d:%d" % (call, at),
              {b"h": b"%d" % at} if call % 2 else None) for at in range(20)]
            for call in range(60)
        ]  # fmt: skip
        acks = await asyncio.gather(*(log.append_many(records) for records in calls))
        assert cluster.count(APPEND) - before <= 20
        stored = {(entry.key, entry.seq): entry for entry in cluster.entries()}
        for records, own in zip(calls, acks, strict=True):
            for (key, value, headers), ack in zip(records, own, strict=True):
                assert ack.seq is not None
                entry = stored[key, ack.seq]
                assert (entry.value, entry.headers or None) == (value, headers)
        for key in {key for records in calls for key, _, _ in records}:
            written = [value for records in calls for name, value, _ in records if name == key]
            assert cluster.values(key) == written

    run(test, split_at=(b"E", b"P", b"a"))


def test_L4_close_counts_each_record_of_a_batch_that_was_regrouped_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One batch of a request is divided by a split, and all ends before its parts are begun with,
    while another of the request is still tried again."""
    monkeypatch.setattr(limits, "batch_records_max", 10)
    regroup = Sender._regroup

    async def regroup_and_cancel(sender: Sender, batch: AppendBatch) -> None:
        await regroup(sender, batch)
        for task in sender._tasks:
            task.cancel()

    monkeypatch.setattr(Sender, "_regroup", regroup_and_cancel)

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("a", b"")

        def split(_: FakeNode, request: Request) -> None:
            assert len(request.body["batches"]) == 2
            cluster.split(b"e", quietly=True)
            for known in cluster.ranges:
                known.state = "SEALING"
            raise Drop

        cluster.faults.append(once(split))
        producer = log.producer(linger_ms=10_000)
        for n in range(21):
            await producer.submit(b"ag"[n % 2 : n % 2 + 1] if n < 10 else b"a", b"%d" % n)
        async with asyncio.timeout(5):
            while producer.delivery.undelivered == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        delivery = await producer.close(0.05)
        assert delivery.undelivered == 21

    run(test)


def test_S11_batches_of_a_request_that_went_unanswered_are_unknown_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those that the failure of another, of the same session, ends."""
    monkeypatch.setattr(limits, "batch_records_max", 5_000)

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Drop()), "after", 1_000))
        producer = log.producer(name="n", linger_ms=10_000, timeout=1.0)
        tickets = [await producer.submit("k", b"%d" % i, number=i + 1) for i in range(10_100)]
        results = await asyncio.gather(*(ticket.result() for ticket in tickets[::5_000]),
                                       return_exceptions=True)  # fmt: skip
        sizes = [len(body["batches"]) for _, op, body in cluster.requests if op == APPEND]
        assert max(sizes) > 1
        outcomes = [error.outcome for error in results if isinstance(error, LognodeError)]
        assert outcomes == ["unknown", "unknown", "not_applied"]  # the last was never sent
        await producer.close(1.0)

    run(test)
