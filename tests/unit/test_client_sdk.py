"""The SDK against scripted nodes: what users call, and what faults make of it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_cluster import Drop, FakeCluster, FakeNode, Fault, fake_cluster

import lognode
from lognode import ABSENT, AsyncClient, AsyncLog, Cursor, Entry, Tail, Timestamp
from lognode.client import limits, wire
from lognode.client.acceptor import Request
from lognode.client.errors import LognodeError, Overloaded, Sealed, Unavailable

Test = Callable[[FakeCluster, AsyncClient, AsyncLog], Awaitable[None]]


def run(test: Test, *, split_at: tuple[bytes, ...] = (b"m",), timeout: float = 5.0) -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            cluster.create("log", split_at)
            async with AsyncClient(cluster.address, timeout=timeout) as client:
                async with asyncio.timeout(20):
                    await test(cluster, client, client.log("log"))

    asyncio.run(main())


def once(do: Callable[[FakeNode, Request], None], when: str = "before", times: int = 1) -> Fault:
    left = times

    def fault(node: FakeNode, request: Request, now: str) -> None:
        nonlocal left
        if now == when and left > 0:
            left -= 1
            do(node, request)

    return fault


def raising(error: Exception) -> Callable[[FakeNode, Request], None]:
    def do(node: FakeNode, request: Request) -> None:
        raise error

    return do


def test_append_and_read_back() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        first = await log.append("k", b"1", headers={b"h": b"v"})
        second = await log.append(b"k", None)
        assert first.seq is not None
        assert second.seq == first.seq + 1
        assert not first.duplicate
        entries = [entry async for entry in log.scan("k")]
        assert [entry.value for entry in entries] == [b"1", None]
        assert entries[0].headers == {b"h": b"v"}
        assert await log.latest("k") == entries[1]
        assert await log.latest("absent") is None
        assert await log.count("k") == 2
        assert [entry async for entry in log.scan("absent")] == []

    run(test)


def test_scans_page_forwards_and_backwards_with_limits_and_starts() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([("k", b"%d" % i) for i in range(10)])

        async def seqs(**options: Any) -> list[int]:
            return [entry.seq async for entry in log.scan("k", **options)]

        assert await seqs() == list(range(1, 11))
        assert await seqs(start=0) == list(range(1, 11))
        assert await seqs(start=4, end=6) == [4, 5]
        assert await seqs(limit=7) == list(range(1, 8))
        assert await seqs(limit=0) == []
        assert await seqs(reverse=True) == list(range(10, 0, -1))
        assert await seqs(reverse=True, limit=4) == [10, 9, 8, 7]
        assert await seqs(start=Tail(4)) == [7, 8, 9, 10]
        assert await seqs(start=Timestamp(1008)) == [8, 9, 10]
        assert await seqs(start="latest") == []
        with pytest.raises(lognode.InvalidArgument):
            await seqs(start="soon")

    run(test)


def test_keys_run_over_all_ranges() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        names = [b"a", b"ab", b"b", b"l\xff", b"m", b"n", b"z\xff\xff"]
        await log.append_many([(name, b"v") for name in names])

        async def keys(**options: Any) -> list[bytes]:
            return [key async for key in log.keys(**options)]

        assert await keys() == names
        assert await keys(prefix="a") == [b"a", b"ab"]
        assert await keys(start_after=b"b") == [b"l\xff", b"m", b"n", b"z\xff\xff"]
        assert await keys(limit=5) == names[:5]
        assert await keys(prefix=b"z\xff") == [b"z\xff\xff"]
        assert await keys(prefix=b"q") == []

    run(test)


def test_append_many_spans_ranges_and_keeps_the_order_per_key() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        records = [(b"%c%d" % (97 + i % 26, i % 7), b"%d" % i) for i in range(5000)]
        acks = await log.append_many(records)
        assert len(acks) == 5000
        for key in {key for key, _ in records}:
            assert cluster.values(key) == [value for k, value in records if k == key]
        by_place = {(e.key, e.seq): e.value for e in cluster.entries()}
        for (key, value), ack in zip(records, acks, strict=True):
            assert by_place[(key, ack.seq or 0)] == value
        assert await log.append_many([]) == []

    run(test, split_at=(b"d", b"m", b"t"))


def test_concurrent_appends_share_batches() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"first")
        before = cluster.count(wire.APPEND)
        acks = await asyncio.gather(*(log.append("k", b"%d" % i) for i in range(200)))
        assert [ack.seq for ack in acks] == list(range(2, 202))
        assert cluster.count(wire.APPEND) - before <= 5

    run(test)


def test_S9_expect_is_checked_with_the_append() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        ack = await log.append("k", b"1", expect=ABSENT)
        with pytest.raises(lognode.SequenceMismatch) as caught:
            await log.append("k", b"2", expect=ABSENT)
        assert caught.value.outcome == "not_applied"
        assert caught.value.actual == ack.seq
        await log.append("k", b"3", expect=ack.seq or 0)
        await log.append("k", b"4")  # a refused number is in nobody's way
        assert cluster.values(b"k") == [b"1", b"3", b"4"]
        with pytest.raises(lognode.InvalidArgument):
            await log.append("k", b"5", expect=0)

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
        metadata = cluster.count(wire.METADATA)
        await log.append("k", b"2")
        assert cluster.values(b"k") == [b"1", b"2"]
        assert cluster.count(wire.METADATA) == metadata  # the hint was enough

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


def test_S8_x10_a_named_producer_resumes_without_duplicates() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        for _ in range(2):
            async with log.producer(name="import") as producer:
                tickets = [await producer.submit("k", b"%d" % n, number=n) for n in range(1, 101)]
            acks = [await ticket for ticket in tickets]
        assert all(ack.duplicate for ack in acks)
        assert cluster.values(b"k") == [b"%d" % n for n in range(1, 101)]

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
        assert producer._sender.low == 2
        await producer.close()
        async with log.producer(name="import") as again:
            for n, key in ((1, "a"), (2, "a"), (3, "z")):
                await again.submit(key, b"%d" % n, number=n)
        assert cluster.values(b"a") == [b"1", b"2"]
        assert cluster.values(b"z") == [b"3"]

    run(test)


def test_S9_an_older_holder_of_the_name_is_fenced() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        old = log.producer(name="n")
        await old.open()
        new = log.producer(name="n")
        await new.open()
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
            with pytest.raises(lognode.PartialFailure):
                await producer.__aexit__(None, None, None)
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


def test_S10_append_batch_is_one_range_and_atomic() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        ack = await log.append_batch([("a", b"1"), ("b", b"2")])
        assert ack.seq == 1
        with pytest.raises(lognode.BatchSpansRanges) as caught:
            await log.append_batch([("a", b"1"), ("z", b"2")])
        assert caught.value.outcome == "not_applied"
        with pytest.raises(lognode.LimitExceeded):
            await log.append_batch([("a", b"")] * (limits.batch_records_max + 1))
        with pytest.raises(lognode.InvalidArgument):
            await log.append_batch([])
        assert len(cluster.entries()) == 2

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


def test_bad_records_are_refused_before_anything_is_sent() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        big = bytes(limits.value_bytes_max + 1)
        for key, value in ((b"", b"v"), (b"k" * 481, b"v"), (b"k", big)):
            for call in (
                log.append(key, value),
                log.append_many([(b"ok", b"v"), (key, value)]),
                log.append_batch([(key, value)]),
            ):
                with pytest.raises(lognode.InvalidArgument) as caught:
                    await call
                assert caught.value.outcome == "not_applied"
        bad: Any = [(b"k", "text")]
        with pytest.raises(lognode.InvalidArgument):
            await log.append_many(bad)
        bad = [(b"k",)]
        with pytest.raises(lognode.InvalidArgument):
            await log.append_many(bad)
        with pytest.raises(lognode.LimitExceeded):
            await log.append("k", b"", headers={b"h": bytes(limits.header_bytes_max)})
        assert cluster.count(wire.APPEND) == 0
        ack = await log.append(b"\x00" * 480, bytes(limits.value_bytes_max))
        assert ack.seq == 1

    run(test)


def test_an_unknown_log_is_not_found() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        other = client.log("other")
        for call in (other.append("k", b"v"), other.latest("k"), other.append_many([("k", b"v")])):
            with pytest.raises(lognode.LogNotFound):
                await call
        with pytest.raises(lognode.LogNotFound):
            async with other.follow():
                pass
        await client.create_log("other", split_at=["b"])
        assert (await other.append("k", b"v")).seq == 1
        with pytest.raises(lognode.LogExists):
            await client.create_log("other")
        await client.create_log("other", exist_ok=True)

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


def test_node_reads_go_to_that_node_or_fail() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"1")
        for node in (1, 2, 3):
            cluster.requests.clear()
            assert await log.count("k", node=node) == 1
            assert [asked for asked, op, _ in cluster.requests if op == wire.COUNT] == [node]
        with pytest.raises(lognode.NodeNotFound):
            await log.latest("k", node=9)

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


def test_submit_waits_for_room_only() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        async with log.producer(unacked_bytes_max=10_000, linger_ms=0) as producer:
            most = 0
            for _ in range(300):
                await producer.submit("k", bytes(1000))
                most = max(most, producer._sender._unacked_bytes)
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
        sizes = [len(body["batches"]) for _, op, body in cluster.requests if op == wire.APPEND]
        assert sizes == [1] * 6
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


def test_follow_keys_and_resume_from_the_cursor() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([(k, b"1") for k in ("a", "b", "x", "y")])
        async with log.follow(keys=["a", "x"], start="earliest") as feed:
            assert {e.key for e in await take(feed, 2)} == {b"a", b"x"}
            cursor = feed.cursor
        assert set(cursor.keys or {}) == {b"a", b"x"}
        await log.append_many([(k, b"2") for k in ("a", "b", "x", "y")])
        async with log.follow(start=cursor) as feed:
            assert {(e.key, e.value) for e in await take(feed, 2)} == {(b"a", b"2"), (b"x", b"2")}
        async with log.follow(keys=["a"], start=Tail(1)) as feed:
            assert [e.value for e in await take(feed, 1)] == [b"2"]
        async with log.follow(start={b"b": 1}) as feed:
            assert [e.value for e in await take(feed, 2)] == [b"1", b"2"]

    run(test)


def test_follow_a_prefix_from_the_latest_and_from_a_cursor() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([("la", b"old"), ("ma", b"old"), ("l", b"old")])
        async with log.follow(prefix="l", start="latest") as feed:
            first = await anext(feed)
            assert (len(first), first.caught_up) == (0, True)
            await log.append_many([("la", b"new"), ("ma", b"new"), ("lb", b"new")])
            got = await take(feed, 2)
            assert {e.key for e in got} == {b"la", b"lb"}
            cursor = feed.cursor
        assert [span[:2] for span in cursor.spans] == [(b"l", b"m")]
        await log.append("lz", b"later")
        async with log.follow(start=Cursor(spans=cursor.spans)) as feed:
            assert [e.key for e in await take(feed, 1)] == [b"lz"]

    run(test)


def test_follow_refuses_what_makes_no_sense() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        bad: list[dict[str, Any]] = [
            {"keys": ["a"], "prefix": "a"},
            {"keys": []},
            {"start": Tail(3)},
        ]
        for options in bad:
            with pytest.raises(lognode.InvalidArgument):
                log.follow(**options)

    run(test)
