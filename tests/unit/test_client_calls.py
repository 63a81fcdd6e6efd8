"""The SDK's calls against scripted nodes. The blocking SDK's test is generated from this one."""

from typing import Any

import pytest
from fake_cluster import Drop, FakeCluster, FakeNode, Stored
from sdk_runs import run_async

import lognode
from lognode import ABSENT, AsyncClient, AsyncLog, Cursor, Tail, Timestamp
from lognode.client.accepting.request import Request
from lognode.client.protocol import Operation, limits
from lognode.client.protocol.appends import APPEND, DELETE_KEYS, TRIM
from lognode.client.protocol.cluster import RANGE_MOVE, RANGE_RECOVER
from lognode.client.protocol.reads import COUNT_ENTRIES


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
        assert log.name == "log"
        assert "log" in repr(log)

    run_async(test)


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

    run_async(test)


def test_a_scan_may_be_left_early() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([("k", b"%d" % i) for i in range(10)])
        async for entry in log.scan("k"):
            assert entry.value == b"0"
            break
        assert await log.count("k") == 10

    run_async(test)


def test_reads_begin_at_the_logical_snapshot_and_end_at_a_time() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        for i in range(12):
            await log.append("k", b"%d" % i, snapshot=i in (2, 4))

        async def seqs(**options: Any) -> list[int]:
            return [entry.seq async for entry in log.scan("k", **options)]

        assert await seqs(start="snapshot") == list(range(5, 13))
        assert await seqs(start="snapshot", reverse=True, limit=2) == [12, 11]
        assert [e.snapshot async for e in log.scan("k", start=5, end=7)] == [True, False]
        assert await seqs(end=Timestamp(1004)) == [1, 2, 3]
        assert await seqs(start=Timestamp(1003), end=Timestamp(1005)) == [3, 4]
        assert await log.count("k", start="snapshot", end=Timestamp(1008)) == 3
        await log.append("plain", b"v")
        assert await log.count("plain", start="snapshot") == 1, "there is none: all of it"
        async with log.follow(keys=["k", "plain"], start="snapshot") as feed:
            found: list[tuple[bytes, int]] = []
            async for entry in feed.entries():
                found.append((entry.key, entry.seq))
                if len(found) == 9:
                    break
        assert min(found) == (b"k", 5)
        with pytest.raises(lognode.InvalidArgument, match="give keys"):
            log.follow(start="snapshot")
        wrong: Any = "latest"
        with pytest.raises(lognode.InvalidArgument, match="a seq or Timestamp"):
            await seqs(end=wrong)

    run_async(test)


def test_S6_trim_and_delete_leave_the_seqs_of_the_rest() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([("k", b"%d" % i) for i in range(5)])
        await log.trim("k", before=3)
        assert [e.seq async for e in log.scan("k")] == [3, 4, 5]
        await log.trim("k", 1)  # nothing is below any more
        await log.trim("k", 3)
        assert await log.count("k") == 3
        await log.delete_key("k")
        await log.delete_key("nobody")
        assert await log.latest("k") is None
        assert (await log.append("k", b"again", expect=ABSENT)).seq == 6
        removals = [body["keys"] for _, op, body in cluster.requests if op == DELETE_KEYS]
        assert removals == [[[b"k", 6]], [[b"nobody", 1]]], "what comes meanwhile stays"
        for before in (-1, True, "3"):
            wrong: Any = before
            with pytest.raises(lognode.InvalidArgument, match="give a seq"):
                await log.trim("k", wrong)
        with pytest.raises(lognode.LimitExceeded):
            await log.delete_key(b"k" * 481)

    run_async(test)


def test_S11_a_lost_answer_to_a_removal_is_asked_for_again() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        lost: list[Operation] = []

        def lose(node: FakeNode, request: Request, when: str) -> None:
            if request.operation in (TRIM, DELETE_KEYS) and when == "after" and not lost:
                lost.append(request.operation)
                cluster.range_of(b"k").entries.append(Stored(b"k", 3, 1003, None, b"meanwhile"))
                raise Drop

        cluster.range_of(b"k").next_seq = 3
        cluster.range_of(b"k").entries.append(Stored(b"k", 2, 1002, None, b"before"))
        cluster.faults.append(lose)
        await log.delete_key("k")
        assert lost == [DELETE_KEYS]
        assert cluster.count(DELETE_KEYS) >= 2
        assert cluster.values(b"k") == [b"meanwhile"]

        def refuse(node: FakeNode, request: Request, when: str) -> None:
            if request.operation == TRIM:
                raise Drop if when == "after" else lognode.Overloaded("full", retry_after=60)

        cluster.faults[:] = [refuse]
        with pytest.raises(lognode.LognodeError) as refused:
            await log.trim("k", 9, timeout=0.3)
        assert refused.value.outcome == "not_applied"

    run_async(test)


def test_policies_are_altered_and_described() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        assert await client.alter_log("log", retention_ms=5) == {"retention_ms": 5}
        policy = await client.alter_log("log", retention_ms=None, cleanup="compact")
        assert policy == {"retention_ms": None, "cleanup": "compact"}
        described = await log.describe()
        assert (described["id"], described["name"], described["policy"]) == (1, "log", policy)
        assert [(row["start"], row["end"]) for row in described["ranges"]] == [
            (b"", b"m"), (b"m", None),
        ]  # fmt: skip
        assert "UNCHANGED" in repr(lognode.UNCHANGED)
        with pytest.raises(lognode.LogNotFound):
            await client.log("none").describe()

    run_async(test)


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

    run_async(test)


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
        mixed: Any = [("a", b"1"), ("z", b"2", {b"h": b"v"}), ("a", None)]
        await log.append_many(mixed)
        last = await log.latest("z")
        assert last is not None
        assert last.headers == {b"h": b"v"}

    run_async(test)


def test_S9_an_update_is_computed_from_the_last_value() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def increased(value: bytes | None) -> bytes:
            return b"%d" % (int(value or b"0") + 1)

        for number in range(1, 4):
            updated = await log.update("k", increased)
            assert updated == (number, 1000, b"%d" % number)
        with pytest.raises(ZeroDivisionError):
            await log.update("k", lambda _: b"%d" % (1 // 0))
        assert cluster.values(b"k") == [b"1", b"2", b"3"]

    run_async(test)


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

    run_async(test)


def test_S8_x10_a_named_producer_resumes_without_duplicates() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        for _ in range(2):
            async with log.producer(name="import") as producer:
                tickets = [await producer.submit("k", b"%d" % n, number=n) for n in range(1, 101)]
                await producer.flush()
                assert all(ticket.done for ticket in tickets)
        acks = [await ticket.result() for ticket in tickets]
        assert all(ack.duplicate for ack in acks)
        assert tickets[-1].number == 100
        assert producer.delivery.acknowledged == 100
        assert cluster.values(b"k") == [b"%d" % n for n in range(1, 101)]
        with pytest.raises(lognode.LognodeError):
            await producer.submit("k", b"late", number=101)

    run_async(test)


def test_numbers_are_for_named_producers_and_rise() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        async with log.producer() as anonymous:
            with pytest.raises(lognode.InvalidArgument):
                await anonymous.submit("k", b"v", number=1)
        async with log.producer(name="n") as named:
            with pytest.raises(lognode.InvalidArgument):
                await named.submit("k", b"v")
            await named.submit("k", b"v", number=5_000_000)
            with pytest.raises(lognode.InvalidArgument):
                await named.submit("k", b"v", number=5_000_000)
        for name in ("", "n" * 257):
            with pytest.raises(lognode.InvalidArgument):
                log.producer(name=name)
        assert cluster.values(b"k") == [b"v"]

    run_async(test)


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

    run_async(test)


def test_bad_records_are_refused_before_anything_is_sent() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        big = bytes(limits.value_bytes_max + 1)
        for key, value in ((b"", b"v"), (b"k" * 481, b"v"), (b"k", big)):
            with pytest.raises(lognode.InvalidArgument) as caught:
                await log.append(key, value)
            assert caught.value.outcome == "not_applied"
            with pytest.raises(lognode.InvalidArgument):
                await log.append_many([(b"ok", b"v"), (key, value)])
            with pytest.raises(lognode.InvalidArgument):
                await log.append_batch([(key, value)])
        bad: Any = [(b"k", "text")]
        with pytest.raises(lognode.InvalidArgument):
            await log.append_many(bad)
        bad = [(b"k",)]
        with pytest.raises(lognode.InvalidArgument):
            await log.append_many(bad)
        with pytest.raises(lognode.LimitExceeded):
            await log.append("k", b"", headers={b"h": bytes(limits.header_bytes_max)})
        assert cluster.count(APPEND) == 0
        ack = await log.append(b"\x00" * 480, bytes(limits.value_bytes_max))
        assert ack.seq == 1

    run_async(test)


def test_text_in_headers_is_encoded_and_read_back_as_bytes() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        given: Any = {"source": "büro", b"raw": b"\xff"}
        await log.append("k", b"1", headers=given)
        await log.append_many([("k", b"2", {"a": "b"}), ("k", b"3"), ("k", b"4", {})])
        await log.append_batch([("k", b"5", {"a": b"c"})])
        async with log.producer() as producer:
            await (await producer.submit("k", b"6", headers={"a": "d"}))
        found = [entry.headers async for entry in log.scan("k")]
        assert found == [
            {b"source": "büro".encode(), b"raw": b"\xff"}, {b"a": b"b"}, None, None,
            {b"a": b"c"}, {b"a": b"d"},
        ]  # fmt: skip
        strange: list[Any] = [
            {"a": b"1", b"a": b"2"}, {"a": 1}, {1: b"a"}, {"a": None}, [("a", b"b")],
            {"\ud800": b""}, {"a": bytearray(b"b")},
        ]  # fmt: skip
        for headers in strange:
            with pytest.raises(lognode.InvalidArgument, match="headers"):
                await log.append("k", b"", headers=headers)
            with pytest.raises(lognode.InvalidArgument, match="headers"):
                await log.append_many([("k", b"", headers)])
        with pytest.raises(lognode.LimitExceeded):
            await log.append("k", b"", headers={"h": "ä" * (limits.header_bytes_max // 2)})

    run_async(test)


def test_a_move_returns_when_it_is_over_or_at_once() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        known = cluster.ranges[0]
        looks: list[int] = []

        def ends(node: FakeNode, request: Request, when: str) -> None:
            looks.append(request.body["at_least"]) if when == "metadata" else None
            if len(looks) == 3:
                known.members, known.generation, known.operation = (1, 2, 9), 2, 0

        begun = {"operation": 7, "generation": 2, "members": [1, 2, 9]}
        assert await client.admin.move(1, from_node=3, to_node=9, wait=False) == begun
        cluster.faults.append(ends)
        assert await client.admin.move(1, from_node=3, to_node=9) == begun
        now = cluster.version  # of before the move it says nothing, and then only what is newer
        assert looks == [now, now + 1, now + 1]

    run_async(test)


def test_a_move_that_was_given_up_or_takes_too_long_says_so() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        with pytest.raises(lognode.Timeout, match=r"operation 7 on range 1 .* goes on") as late:
            await client.admin.move(1, from_node=3, to_node=9, timeout=0.3)
        assert late.value.outcome == "unknown"

        def ends(node: FakeNode, request: Request, when: str) -> None:
            cluster.ranges[0].operation = 0

        cluster.faults.append(ends)
        with pytest.raises(
            lognode.Conflict, match=r"the cluster gave up .*: node 9 .* members are 1, 2, 3"
        ):
            await client.admin.move(1, from_node=3, to_node=9)

    run_async(test)


def test_a_recovery_returns_when_it_is_over_or_at_once_and_says_when_it_gave_way() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        known = cluster.ranges[0]
        accept: Any = {"from_node": 3, "accept_loss": True}
        begun = {"operation": 7, "generation": 2}
        assert await client.admin.recover(1, wait=False, **accept) == begun
        body = {"range": 1, "from": 3, "accept_loss": True}
        assert [asked for _, op, asked in cluster.requests if op == RANGE_RECOVER] == [body]
        with pytest.raises(lognode.Timeout, match=r"operation 7 on range 1 .* goes on"):
            await client.admin.recover(1, timeout=0.3, **accept)

        def ends(node: FakeNode, request: Request, when: str) -> None:
            if when == "metadata":
                known.generation, known.operation = 2, 9  # it grows back already

        def gives_way(node: FakeNode, request: Request, when: str) -> None:
            if when == "metadata":
                known.operation = 8

        cluster.faults.append(gives_way)
        with pytest.raises(lognode.Conflict, match=r"another operation replaced .*: operation 8"):
            await client.admin.recover(1, **accept)
        cluster.faults[:] = [ends]
        assert await client.admin.recover(1, **accept) == begun
        with pytest.raises(lognode.RemoteProtocolError, match="`members` is missing"):
            await client.admin.recovery(1)

    run_async(test)


def test_a_split_returns_when_it_is_over_or_at_once_and_says_when_it_was_given_up() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        known = cluster.range_of(b"k")
        begun = {"operation": 7, "range": known.range_id, "generation": 2,
                 "new_range": cluster.next_range}  # fmt: skip
        assert await client.admin.split("log", at="k", wait=False) == begun
        with pytest.raises(lognode.Timeout, match=r"operation 7 on range .* goes on") as late:
            await client.admin.split("log", at=b"k", timeout=0.3)
        assert late.value.outcome == "unknown"
        generation = 1

        def ends(node: FakeNode, request: Request, when: str) -> None:
            if when == "metadata":
                known.operation, known.generation = 0, generation

        cluster.faults.append(ends)
        with pytest.raises(lognode.Conflict, match="the cluster gave up the split of range"):
            await client.admin.split("log", at=b"k")
        generation = 2
        assert (await client.admin.split("log", at=b"k"))["generation"] == 2
        for wrong in (b"", b"k" * 481, 5):
            with pytest.raises((lognode.InvalidArgument, lognode.LimitExceeded)):
                await client.admin.split("log", at=wrong)  # type: ignore[arg-type]

    run_async(test)


def test_a_range_that_is_in_an_operation_is_refused_at_once() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def busy(node: FakeNode, request: Request, when: str) -> None:
            raise lognode.OperationInProgress("range 1 is in operation 5", range=1, operation=5)

        cluster.faults.append(busy)
        with pytest.raises(lognode.OperationInProgress) as refused:
            await client.admin.move(1, from_node=3, to_node=9)
        assert (refused.value.operation, refused.value.outcome) == (5, "not_applied")
        assert [op for _, op, _ in cluster.requests] == [RANGE_MOVE]

    run_async(test)


def test_a_drain_returns_when_nothing_is_left_or_at_once() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        node = cluster.nodes[3]
        node.replicas = 4
        looks: list[int] = []

        def leaves(asked: FakeNode, request: Request, when: str) -> None:
            if when == "metadata":
                looks.append(request.body["at_least"])
                node.replicas = max(0, node.replicas - 2)

        begun = await client.admin.drain(3, wait=False)
        assert begun == {"node": 3, "state": "DRAINING", "replicas": 4}
        cluster.faults.append(leaves)
        done = {"node": 3, "state": "DRAINING", "replicas": 0}
        assert await client.admin.drain(3) == done
        now = cluster.version  # of before the drain it says nothing, and then only what is newer
        assert looks == [now, now + 1]
        assert await client.admin.drain(3) == done
        assert (await client.admin.drain(3, undo=True))["state"] == "ACTIVE"
        assert await client.admin.remove(3) == {"node": 3, "state": "REMOVED", "replicas": 0}
        assert [n["state"] for n in await client.admin.nodes()] == ["ACTIVE", "ACTIVE", "REMOVED"]

    run_async(test)


def test_ranges_are_listed_by_log_and_key() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.create("before", (b"g", b"t"))
        ranges = await client.admin.ranges()
        assert [(row["log"], row["start"]) for row in ranges] == [
            ("before", b""), ("before", b"g"), ("before", b"t"), ("log", b""), ("log", b"m"),
        ]  # fmt: skip
        assert await client.admin.ranges("log") == ranges[3:]
        assert set(ranges[0]) == {
            "id", "log", "start", "end", "generation", "members", "leader", "state",
        }  # fmt: skip
        with pytest.raises(lognode.LogNotFound):
            await client.admin.ranges("nolog")

    run_async(test)


def test_a_drain_that_is_given_up_or_takes_too_long_says_so() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        node = cluster.nodes[3]
        node.replicas = 4
        with pytest.raises(lognode.Timeout, match="node 3 still has 4 replicas") as late:
            await client.admin.drain(3, timeout=0.3)
        assert late.value.outcome == "unknown"

        def undone(asked: FakeNode, request: Request, when: str) -> None:
            if when == "metadata":
                node.state = "ACTIVE"

        cluster.faults.append(undone)
        with pytest.raises(
            lognode.Conflict, match="node 3 is ACTIVE: the drain has ended without success"
        ):
            await client.admin.drain(3)

        def refused(asked: FakeNode, request: Request, when: str) -> None:
            raise lognode.Conflict("node 3 is ACTIVE: drain it first")

        cluster.faults[:] = [refused]
        with pytest.raises(lognode.Conflict, match="drain it first"):
            await client.admin.remove(3)

    run_async(test)


def test_logs_are_created_listed_and_found() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        other = client.log("other")
        with pytest.raises(lognode.LogNotFound):
            await other.append("k", b"v")
        with pytest.raises(lognode.LogNotFound):
            await other.latest("k")
        with pytest.raises(lognode.LogNotFound):
            await other.append_many([("k", b"v")])
        made = await client.create_log("other", split_at=["b"])
        assert (await made.append("k", b"v")).seq == 1
        with pytest.raises(lognode.LogExists):
            await client.create_log("other")
        await client.create_log("other", exist_ok=True)
        assert [each["name"] for each in await client.logs()] == ["log", "other"]
        assert (await client.status())["nodes"] == []
        for options in ({"ranges": 0}, {"replicas": 9}, {"ranges": 2, "split_at": [b"x"]}):
            wrong: Any = options
            with pytest.raises(lognode.InvalidArgument):
                await client.create_log("third", **wrong)
        with pytest.raises(lognode.InvalidArgument):
            client.log(" bad\n")

    run_async(test)


def test_node_reads_go_to_that_node_or_fail() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"1")
        for node in (1, 2, 3):
            cluster.requests.clear()
            assert await log.count("k", node=node) == 1
            assert [asked for asked, op, _ in cluster.requests if op == COUNT_ENTRIES] == [node]
        with pytest.raises(lognode.NodeNotFound):
            await log.latest("k", node=9)

    run_async(test)


def test_follow_keys_and_resume_from_the_cursor() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        async def take(feed: lognode.AsyncFeed, count: int) -> list[lognode.Entry]:
            found: list[lognode.Entry] = []
            async for entry in feed.entries():
                found.append(entry)
                if len(found) == count:
                    break
            return found

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
        async with log.follow(prefix="x", start="latest") as feed:
            first = await anext(feed)
            assert (len(first), first.caught_up) == (0, True)
            await log.append_many([("xa", b"new"), ("a", b"new"), ("xb", b"new")])
            assert {e.key for e in await take(feed, 2)} == {b"xa", b"xb"}
            cursor = feed.cursor
        assert [span[:2] for span in cursor.spans] == [(b"x", b"y")]
        await log.append("xz", b"later")
        async with log.follow(start=Cursor.from_json(cursor.to_json())) as feed:
            assert [e.key for e in await take(feed, 1)] == [b"xz"]

    run_async(test)


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
        with pytest.raises(lognode.LogNotFound):
            await client.log("none").follow().open()

    run_async(test)


def test_a_client_says_what_is_wrong_with_its_arguments() -> None:
    with pytest.raises(lognode.InvalidArgument):
        AsyncClient("http://x")
    with pytest.raises(lognode.InvalidArgument):
        AsyncClient("x:1", timeout=0)
