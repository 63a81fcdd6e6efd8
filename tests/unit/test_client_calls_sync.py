# Generated from tests/unit/test_client_calls.py by scripts/unasync; edit that.

"""The SDK's calls against scripted nodes. The blocking SDK's test is generated from this one."""

from typing import Any

import pytest
from fake_cluster import Drop, FakeCluster, FakeNode, Stored
from sdk_runs import run_sync

import lognode
from lognode import ABSENT, Client, Cursor, Log, Tail, Timestamp
from lognode.client.accepting.request import Request
from lognode.client.protocol import Operation, limits
from lognode.client.protocol.appends import APPEND, DELETE_KEYS, TRIM
from lognode.client.protocol.cluster import RANGE_MOVE, RANGE_RECOVER
from lognode.client.protocol.reads import COUNT_ENTRIES


def test_append_and_read_back() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        first = log.append("k", b"1", headers={b"h": b"v"})
        second = log.append(b"k", None)
        assert first.seq is not None
        assert second.seq == first.seq + 1
        assert not first.duplicate
        entries = [entry for entry in log.scan("k")]
        assert [entry.value for entry in entries] == [b"1", None]
        assert entries[0].headers == {b"h": b"v"}
        assert log.latest("k") == entries[1]
        assert log.latest("absent") is None
        assert log.count("k") == 2
        assert [entry for entry in log.scan("absent")] == []
        assert log.name == "log"
        assert "log" in repr(log)

    run_sync(test)


def test_scans_page_forwards_and_backwards_with_limits_and_starts() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        log.append_many([("k", b"%d" % i) for i in range(10)])

        def seqs(**options: Any) -> list[int]:
            return [entry.seq for entry in log.scan("k", **options)]

        assert seqs() == list(range(1, 11))
        assert seqs(start=0) == list(range(1, 11))
        assert seqs(start=4, end=6) == [4, 5]
        assert seqs(limit=7) == list(range(1, 8))
        assert seqs(limit=0) == []
        assert seqs(reverse=True) == list(range(10, 0, -1))
        assert seqs(reverse=True, limit=4) == [10, 9, 8, 7]
        assert seqs(start=Tail(4)) == [7, 8, 9, 10]
        assert seqs(start=Timestamp(1008)) == [8, 9, 10]
        assert seqs(start="latest") == []
        with pytest.raises(lognode.InvalidArgument):
            seqs(start="soon")

    run_sync(test)


def test_a_scan_may_be_left_early() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        log.append_many([("k", b"%d" % i) for i in range(10)])
        for entry in log.scan("k"):
            assert entry.value == b"0"
            break
        assert log.count("k") == 10

    run_sync(test)


def test_reads_begin_at_the_logical_snapshot_and_end_at_a_time() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        for i in range(12):
            log.append("k", b"%d" % i, snapshot=i in (2, 4))

        def seqs(**options: Any) -> list[int]:
            return [entry.seq for entry in log.scan("k", **options)]

        assert seqs(start="snapshot") == list(range(5, 13))
        assert seqs(start="snapshot", reverse=True, limit=2) == [12, 11]
        assert [e.snapshot for e in log.scan("k", start=5, end=7)] == [True, False]
        assert seqs(end=Timestamp(1004)) == [1, 2, 3]
        assert seqs(start=Timestamp(1003), end=Timestamp(1005)) == [3, 4]
        assert log.count("k", start="snapshot", end=Timestamp(1008)) == 3
        log.append("plain", b"v")
        assert log.count("plain", start="snapshot") == 1, "there is none: all of it"
        with log.follow(keys=["k", "plain"], start="snapshot") as feed:
            found: list[tuple[bytes, int]] = []
            for entry in feed.entries():
                found.append((entry.key, entry.seq))
                if len(found) == 9:
                    break
        assert min(found) == (b"k", 5)
        with pytest.raises(lognode.InvalidArgument, match="give keys"):
            log.follow(start="snapshot")
        wrong: Any = "latest"
        with pytest.raises(lognode.InvalidArgument, match="a seq or Timestamp"):
            seqs(end=wrong)

    run_sync(test)


def test_S6_trim_and_delete_leave_the_seqs_of_the_rest() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        log.append_many([("k", b"%d" % i) for i in range(5)])
        log.trim("k", before=3)
        assert [e.seq for e in log.scan("k")] == [3, 4, 5]
        log.trim("k", 1)  # nothing is below any more
        log.trim("k", 3)
        assert log.count("k") == 3
        log.delete_key("k")
        log.delete_key("nobody")
        assert log.latest("k") is None
        assert (log.append("k", b"again", expect=ABSENT)).seq == 6
        removals = [body["keys"] for _, op, body in cluster.requests if op == DELETE_KEYS]
        assert removals == [[[b"k", 6]], [[b"nobody", 1]]], "what comes meanwhile stays"
        for before in (-1, True, "3"):
            wrong: Any = before
            with pytest.raises(lognode.InvalidArgument, match="give a seq"):
                log.trim("k", wrong)
        with pytest.raises(lognode.LimitExceeded):
            log.delete_key(b"k" * 481)

    run_sync(test)


def test_S11_a_lost_answer_to_a_removal_is_asked_for_again() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        lost: list[Operation] = []

        def lose(node: FakeNode, request: Request, when: str) -> None:
            if request.operation in (TRIM, DELETE_KEYS) and when == "after" and not lost:
                lost.append(request.operation)
                cluster.range_of(b"k").entries.append(Stored(b"k", 3, 1003, None, b"meanwhile"))
                raise Drop

        cluster.range_of(b"k").next_seq = 3
        cluster.range_of(b"k").entries.append(Stored(b"k", 2, 1002, None, b"before"))
        cluster.faults.append(lose)
        log.delete_key("k")
        assert lost == [DELETE_KEYS]
        assert cluster.count(DELETE_KEYS) >= 2
        assert cluster.values(b"k") == [b"meanwhile"]

        def refuse(node: FakeNode, request: Request, when: str) -> None:
            if request.operation == TRIM:
                raise Drop if when == "after" else lognode.Overloaded("full", retry_after=60)

        cluster.faults[:] = [refuse]
        with pytest.raises(lognode.LognodeError) as refused:
            log.trim("k", 9, timeout=0.3)
        assert refused.value.outcome == "not_applied"

    run_sync(test)


def test_policies_are_altered_and_described() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        assert client.alter_log("log", retention_ms=5) == {"retention_ms": 5}
        policy = client.alter_log("log", retention_ms=None, cleanup="compact")
        assert policy == {"retention_ms": None, "cleanup": "compact"}
        described = log.describe()
        assert (described["id"], described["name"], described["policy"]) == (1, "log", policy)
        assert [(row["start"], row["end"]) for row in described["ranges"]] == [
            (b"", b"m"), (b"m", None),
        ]  # fmt: skip
        assert "UNCHANGED" in repr(lognode.UNCHANGED)
        with pytest.raises(lognode.LogNotFound):
            client.log("none").describe()

    run_sync(test)


def test_keys_run_over_all_ranges() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        names = [b"a", b"ab", b"b", b"l\xff", b"m", b"n", b"z\xff\xff"]
        log.append_many([(name, b"v") for name in names])

        def keys(**options: Any) -> list[bytes]:
            return [key for key in log.keys(**options)]

        assert keys() == names
        assert keys(prefix="a") == [b"a", b"ab"]
        assert keys(start_after=b"b") == [b"l\xff", b"m", b"n", b"z\xff\xff"]
        assert keys(limit=5) == names[:5]
        assert keys(prefix=b"z\xff") == [b"z\xff\xff"]
        assert keys(prefix=b"q") == []

    run_sync(test)


def test_append_many_spans_ranges_and_keeps_the_order_per_key() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        records = [(b"%c%d" % (97 + i % 26, i % 7), b"%d" % i) for i in range(5000)]
        acks = log.append_many(records)
        assert len(acks) == 5000
        for key in {key for key, _ in records}:
            assert cluster.values(key) == [value for k, value in records if k == key]
        by_place = {(e.key, e.seq): e.value for e in cluster.entries()}
        for (key, value), ack in zip(records, acks, strict=True):
            assert by_place[(key, ack.seq or 0)] == value
        assert log.append_many([]) == []
        mixed: Any = [("a", b"1"), ("z", b"2", {b"h": b"v"}), ("a", None)]
        log.append_many(mixed)
        last = log.latest("z")
        assert last is not None
        assert last.headers == {b"h": b"v"}

    run_sync(test)


def test_S9_an_update_is_computed_from_the_last_value() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        def increased(value: bytes | None) -> bytes:
            return b"%d" % (int(value or b"0") + 1)

        for number in range(1, 4):
            updated = log.update("k", increased)
            assert updated == (number, 1000, b"%d" % number)
        with pytest.raises(ZeroDivisionError):
            log.update("k", lambda _: b"%d" % (1 // 0))
        assert cluster.values(b"k") == [b"1", b"2", b"3"]

    run_sync(test)


def test_S9_expect_is_checked_with_the_append() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        ack = log.append("k", b"1", expect=ABSENT)
        with pytest.raises(lognode.SequenceMismatch) as caught:
            log.append("k", b"2", expect=ABSENT)
        assert caught.value.outcome == "not_applied"
        assert caught.value.actual == ack.seq
        log.append("k", b"3", expect=ack.seq or 0)
        log.append("k", b"4")  # a refused number is in nobody's way
        assert cluster.values(b"k") == [b"1", b"3", b"4"]
        with pytest.raises(lognode.InvalidArgument):
            log.append("k", b"5", expect=0)

    run_sync(test)


def test_S8_x10_a_named_producer_resumes_without_duplicates() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        for _ in range(2):
            with log.producer(name="import") as producer:
                tickets = [producer.submit("k", b"%d" % n, number=n) for n in range(1, 101)]
                producer.flush()
                assert all(ticket.done for ticket in tickets)
        acks = [ticket.result() for ticket in tickets]
        assert all(ack.duplicate for ack in acks)
        assert tickets[-1].number == 100
        assert producer.delivery.acknowledged == 100
        assert cluster.values(b"k") == [b"%d" % n for n in range(1, 101)]
        with pytest.raises(lognode.LognodeError):
            producer.submit("k", b"late", number=101)

    run_sync(test)


def test_numbers_are_for_named_producers_and_rise() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        with log.producer() as anonymous:
            with pytest.raises(lognode.InvalidArgument):
                anonymous.submit("k", b"v", number=1)
        with log.producer(name="n") as named:
            with pytest.raises(lognode.InvalidArgument):
                named.submit("k", b"v")
            named.submit("k", b"v", number=5_000_000)
            with pytest.raises(lognode.InvalidArgument):
                named.submit("k", b"v", number=5_000_000)
        for name in ("", "n" * 257):
            with pytest.raises(lognode.InvalidArgument):
                log.producer(name=name)
        assert cluster.values(b"k") == [b"v"]

    run_sync(test)


def test_S10_append_batch_is_one_range_and_atomic() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        ack = log.append_batch([("a", b"1"), ("b", b"2")])
        assert ack.seq == 1
        with pytest.raises(lognode.BatchSpansRanges) as caught:
            log.append_batch([("a", b"1"), ("z", b"2")])
        assert caught.value.outcome == "not_applied"
        with pytest.raises(lognode.LimitExceeded):
            log.append_batch([("a", b"")] * (limits.batch_records_max + 1))
        with pytest.raises(lognode.InvalidArgument):
            log.append_batch([])
        assert len(cluster.entries()) == 2

    run_sync(test)


def test_bad_records_are_refused_before_anything_is_sent() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        big = bytes(limits.value_bytes_max + 1)
        for key, value in ((b"", b"v"), (b"k" * 481, b"v"), (b"k", big)):
            with pytest.raises(lognode.InvalidArgument) as caught:
                log.append(key, value)
            assert caught.value.outcome == "not_applied"
            with pytest.raises(lognode.InvalidArgument):
                log.append_many([(b"ok", b"v"), (key, value)])
            with pytest.raises(lognode.InvalidArgument):
                log.append_batch([(key, value)])
        bad: Any = [(b"k", "text")]
        with pytest.raises(lognode.InvalidArgument):
            log.append_many(bad)
        bad = [(b"k",)]
        with pytest.raises(lognode.InvalidArgument):
            log.append_many(bad)
        with pytest.raises(lognode.LimitExceeded):
            log.append("k", b"", headers={b"h": bytes(limits.header_bytes_max)})
        assert cluster.count(APPEND) == 0
        ack = log.append(b"\x00" * 480, bytes(limits.value_bytes_max))
        assert ack.seq == 1

    run_sync(test)


def test_text_in_headers_is_encoded_and_read_back_as_bytes() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        given: Any = {"source": "büro", b"raw": b"\xff"}
        log.append("k", b"1", headers=given)
        log.append_many([("k", b"2", {"a": "b"}), ("k", b"3"), ("k", b"4", {})])
        log.append_batch([("k", b"5", {"a": b"c"})])
        with log.producer() as producer:
            (producer.submit("k", b"6", headers={"a": "d"}))
        found = [entry.headers for entry in log.scan("k")]
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
                log.append("k", b"", headers=headers)
            with pytest.raises(lognode.InvalidArgument, match="headers"):
                log.append_many([("k", b"", headers)])
        with pytest.raises(lognode.LimitExceeded):
            log.append("k", b"", headers={"h": "ä" * (limits.header_bytes_max // 2)})

    run_sync(test)


def test_a_move_returns_when_it_is_over_or_at_once() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        known = cluster.ranges[0]
        looks: list[int] = []

        def ends(node: FakeNode, request: Request, when: str) -> None:
            looks.append(request.body["at_least"]) if when == "metadata" else None
            if len(looks) == 3:
                known.members, known.generation, known.operation = (1, 2, 9), 2, 0

        begun = {"operation": 7, "generation": 2, "members": [1, 2, 9]}
        assert client.admin.move(1, from_node=3, to_node=9, wait=False) == begun
        cluster.faults.append(ends)
        assert client.admin.move(1, from_node=3, to_node=9) == begun
        now = cluster.version  # of before the move it says nothing, and then only what is newer
        assert looks == [now, now + 1, now + 1]

    run_sync(test)


def test_a_move_that_was_given_up_or_takes_too_long_says_so() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        with pytest.raises(lognode.Timeout, match=r"operation 7 on range 1 .* goes on") as late:
            client.admin.move(1, from_node=3, to_node=9, timeout=0.3)
        assert late.value.outcome == "unknown"

        def ends(node: FakeNode, request: Request, when: str) -> None:
            cluster.ranges[0].operation = 0

        cluster.faults.append(ends)
        with pytest.raises(
            lognode.Conflict, match=r"the cluster gave up .*: node 9 .* members are 1, 2, 3"
        ):
            client.admin.move(1, from_node=3, to_node=9)

    run_sync(test)


def test_a_recovery_returns_when_it_is_over_or_at_once_and_says_when_it_gave_way() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        known = cluster.ranges[0]
        accept: Any = {"from_node": 3, "accept_loss": True}
        begun = {"operation": 7, "generation": 2}
        assert client.admin.recover(1, wait=False, **accept) == begun
        body = {"range": 1, "from": 3, "accept_loss": True}
        assert [asked for _, op, asked in cluster.requests if op == RANGE_RECOVER] == [body]
        with pytest.raises(lognode.Timeout, match=r"operation 7 on range 1 .* goes on"):
            client.admin.recover(1, timeout=0.3, **accept)

        def ends(node: FakeNode, request: Request, when: str) -> None:
            if when == "metadata":
                known.generation, known.operation = 2, 9  # it grows back already

        def gives_way(node: FakeNode, request: Request, when: str) -> None:
            if when == "metadata":
                known.operation = 8

        cluster.faults.append(gives_way)
        with pytest.raises(lognode.Conflict, match=r"another operation replaced .*: operation 8"):
            client.admin.recover(1, **accept)
        cluster.faults[:] = [ends]
        assert client.admin.recover(1, **accept) == begun
        with pytest.raises(lognode.RemoteProtocolError, match="`members` is missing"):
            client.admin.recovery(1)

    run_sync(test)


def test_a_split_returns_when_it_is_over_or_at_once_and_says_when_it_was_given_up() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        known = cluster.range_of(b"k")
        begun = {"operation": 7, "range": known.range_id, "generation": 2,
                 "new_range": cluster.next_range}  # fmt: skip
        assert client.admin.split("log", at="k", wait=False) == begun
        with pytest.raises(lognode.Timeout, match=r"operation 7 on range .* goes on") as late:
            client.admin.split("log", at=b"k", timeout=0.3)
        assert late.value.outcome == "unknown"
        generation = 1

        def ends(node: FakeNode, request: Request, when: str) -> None:
            if when == "metadata":
                known.operation, known.generation = 0, generation

        cluster.faults.append(ends)
        with pytest.raises(lognode.Conflict, match="the cluster gave up the split of range"):
            client.admin.split("log", at=b"k")
        generation = 2
        assert (client.admin.split("log", at=b"k"))["generation"] == 2
        for wrong in (b"", b"k" * 481, 5):
            with pytest.raises((lognode.InvalidArgument, lognode.LimitExceeded)):
                client.admin.split("log", at=wrong)  # type: ignore[arg-type]

    run_sync(test)


def test_a_range_that_is_in_an_operation_is_refused_at_once() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        def busy(node: FakeNode, request: Request, when: str) -> None:
            raise lognode.OperationInProgress("range 1 is in operation 5", range=1, operation=5)

        cluster.faults.append(busy)
        with pytest.raises(lognode.OperationInProgress) as refused:
            client.admin.move(1, from_node=3, to_node=9)
        assert (refused.value.operation, refused.value.outcome) == (5, "not_applied")
        assert [op for _, op, _ in cluster.requests] == [RANGE_MOVE]

    run_sync(test)


def test_a_drain_returns_when_nothing_is_left_or_at_once() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        node = cluster.nodes[3]
        node.replicas = 4
        looks: list[int] = []

        def leaves(asked: FakeNode, request: Request, when: str) -> None:
            if when == "metadata":
                looks.append(request.body["at_least"])
                node.replicas = max(0, node.replicas - 2)

        begun = client.admin.drain(3, wait=False)
        assert begun == {"node": 3, "state": "DRAINING", "replicas": 4}
        cluster.faults.append(leaves)
        done = {"node": 3, "state": "DRAINING", "replicas": 0}
        assert client.admin.drain(3) == done
        now = cluster.version  # of before the drain it says nothing, and then only what is newer
        assert looks == [now, now + 1]
        assert client.admin.drain(3) == done
        assert (client.admin.drain(3, undo=True))["state"] == "ACTIVE"
        assert client.admin.remove(3) == {"node": 3, "state": "REMOVED", "replicas": 0}
        assert [n["state"] for n in client.admin.nodes()] == ["ACTIVE", "ACTIVE", "REMOVED"]

    run_sync(test)


def test_ranges_are_listed_by_log_and_key() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        cluster.create("before", (b"g", b"t"))
        ranges = client.admin.ranges()
        assert [(row["log"], row["start"]) for row in ranges] == [
            ("before", b""), ("before", b"g"), ("before", b"t"), ("log", b""), ("log", b"m"),
        ]  # fmt: skip
        assert client.admin.ranges("log") == ranges[3:]
        assert set(ranges[0]) == {
            "id", "log", "start", "end", "generation", "members", "leader", "state",
        }  # fmt: skip
        with pytest.raises(lognode.LogNotFound):
            client.admin.ranges("nolog")

    run_sync(test)


def test_a_drain_that_is_given_up_or_takes_too_long_says_so() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        node = cluster.nodes[3]
        node.replicas = 4
        with pytest.raises(lognode.Timeout, match="node 3 still has 4 replicas") as late:
            client.admin.drain(3, timeout=0.3)
        assert late.value.outcome == "unknown"

        def undone(asked: FakeNode, request: Request, when: str) -> None:
            if when == "metadata":
                node.state = "ACTIVE"

        cluster.faults.append(undone)
        with pytest.raises(
            lognode.Conflict, match="node 3 is ACTIVE: the drain has ended without success"
        ):
            client.admin.drain(3)

        def refused(asked: FakeNode, request: Request, when: str) -> None:
            raise lognode.Conflict("node 3 is ACTIVE: drain it first")

        cluster.faults[:] = [refused]
        with pytest.raises(lognode.Conflict, match="drain it first"):
            client.admin.remove(3)

    run_sync(test)


def test_logs_are_created_listed_and_found() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        other = client.log("other")
        with pytest.raises(lognode.LogNotFound):
            other.append("k", b"v")
        with pytest.raises(lognode.LogNotFound):
            other.latest("k")
        with pytest.raises(lognode.LogNotFound):
            other.append_many([("k", b"v")])
        made = client.create_log("other", split_at=["b"])
        assert (made.append("k", b"v")).seq == 1
        with pytest.raises(lognode.LogExists):
            client.create_log("other")
        client.create_log("other", exist_ok=True)
        assert [each["name"] for each in client.logs()] == ["log", "other"]
        assert (client.status())["nodes"] == []
        for options in ({"ranges": 0}, {"replicas": 9}, {"ranges": 2, "split_at": [b"x"]}):
            wrong: Any = options
            with pytest.raises(lognode.InvalidArgument):
                client.create_log("third", **wrong)
        with pytest.raises(lognode.InvalidArgument):
            client.log(" bad\n")

    run_sync(test)


def test_node_reads_go_to_that_node_or_fail() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        log.append("k", b"1")
        for node in (1, 2, 3):
            cluster.requests.clear()
            assert log.count("k", node=node) == 1
            assert [asked for asked, op, _ in cluster.requests if op == COUNT_ENTRIES] == [node]
        with pytest.raises(lognode.NodeNotFound):
            log.latest("k", node=9)

    run_sync(test)


def test_follow_keys_and_resume_from_the_cursor() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        def take(feed: lognode.Feed, count: int) -> list[lognode.Entry]:
            found: list[lognode.Entry] = []
            for entry in feed.entries():
                found.append(entry)
                if len(found) == count:
                    break
            return found

        log.append_many([(k, b"1") for k in ("a", "b", "x", "y")])
        with log.follow(keys=["a", "x"], start="earliest") as feed:
            assert {e.key for e in take(feed, 2)} == {b"a", b"x"}
            cursor = feed.cursor
        assert set(cursor.keys or {}) == {b"a", b"x"}
        log.append_many([(k, b"2") for k in ("a", "b", "x", "y")])
        with log.follow(start=cursor) as feed:
            assert {(e.key, e.value) for e in take(feed, 2)} == {(b"a", b"2"), (b"x", b"2")}
        with log.follow(keys=["a"], start=Tail(1)) as feed:
            assert [e.value for e in take(feed, 1)] == [b"2"]
        with log.follow(start={b"b": 1}) as feed:
            assert [e.value for e in take(feed, 2)] == [b"1", b"2"]
        with log.follow(prefix="x", start="latest") as feed:
            first = next(feed)
            assert (len(first), first.caught_up) == (0, True)
            log.append_many([("xa", b"new"), ("a", b"new"), ("xb", b"new")])
            assert {e.key for e in take(feed, 2)} == {b"xa", b"xb"}
            cursor = feed.cursor
        assert [span[:2] for span in cursor.spans] == [(b"x", b"y")]
        log.append("xz", b"later")
        with log.follow(start=Cursor.from_json(cursor.to_json())) as feed:
            assert [e.key for e in take(feed, 1)] == [b"xz"]

    run_sync(test)


def test_follow_refuses_what_makes_no_sense() -> None:
    def test(cluster: FakeCluster, client: Client, log: Log) -> None:
        bad: list[dict[str, Any]] = [
            {"keys": ["a"], "prefix": "a"},
            {"keys": []},
            {"start": Tail(3)},
        ]
        for options in bad:
            with pytest.raises(lognode.InvalidArgument):
                log.follow(**options)
        with pytest.raises(lognode.LogNotFound):
            client.log("none").follow().open()

    run_sync(test)


def test_a_client_says_what_is_wrong_with_its_arguments() -> None:
    with pytest.raises(lognode.InvalidArgument):
        Client("http://x")
    with pytest.raises(lognode.InvalidArgument):
        Client("x:1", timeout=0)
