"""Snapshots against scripted nodes. The blocking SDK's test is generated from this one."""

import json
from typing import Any

import pytest
from fake_cluster import FakeCluster, FakeNode
from sdk_runs import run_async

import lognode
from lognode import AsyncClient, AsyncLog
from lognode.client.accepting.request import Request
from lognode.client.protocol.appends import LEASE_TAKE
from lognode.client.protocol.errors import Conflict, Overloaded


def test_a_snapshot_reads_the_same_whatever_is_appended_and_removed() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([(key, b"%d" % n) for n in range(5) for key in ("a", "ab", "x")])
        snapshot = await log.snapshot()
        whole = sorted([(e.key, e.seq, e.value) async for e in snapshot.read()])
        assert len(whole) == 15
        await log.append("a", b"later")
        await log.delete_key("x")
        await log.trim("ab", before=100)
        assert sorted([(e.key, e.seq, e.value) async for e in snapshot.read()]) == whole
        of_key = [(e.key, e.seq, e.value) async for e in snapshot.read("x")]
        assert of_key == [row for row in whole if row[0] == b"x"]
        prefixed = sorted([(e.key, e.seq, e.value) async for e in snapshot.read(prefix="a")])
        assert prefixed == [row for row in whole if row[0] in (b"a", b"ab")]
        assert [e async for e in snapshot.read("absent")] == []
        with pytest.raises(lognode.InvalidArgument, match="a key and a prefix are both given"):
            _ = [e async for e in snapshot.read("a", prefix="a")]
        assert repr(snapshot).endswith("Snapshot of 'log'>")

    run_async(test)


def test_a_saved_snapshot_is_opened_again_also_after_a_split() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([(b"%c" % n, b"v") for n in range(97, 123)])
        snapshot = await log.snapshot(lease_s=60)
        saved = snapshot.to_json()
        assert [part[:2] for part in snapshot.vector.parts] == [(b"", b"m"), (b"m", None)]
        assert snapshot.vector.expires_ms == 1_060_000
        whole = sorted([e.key async for e in snapshot.read()])
        for at in (b"c", b"f", b"t"):
            cluster.split(at)
        await log.append("b", b"later")
        again = log.open_snapshot(saved)
        assert again.vector == snapshot.vector == lognode.AsyncSnapshot.from_json(saved)
        assert sorted([e.key async for e in again.read()]) == whole
        assert [e.key async for e in log.open_snapshot(again.vector).read("d")] == [b"d"]

    run_async(test)


def test_a_range_that_splits_while_it_is_read_is_read_on_in_both_parts() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([(b"%c" % n, b"v") for n in range(97, 109) for _ in range(2)])
        snapshot = await log.snapshot()
        found = []
        for_ever = snapshot.read()
        async for entry in for_ever:
            found.append((entry.key, entry.seq))
            if len(found) in (2, 5, 9):
                cluster.split(b"%c" % (97 + len(found)))
        assert sorted(found) == sorted(set(found))
        assert len(found) == 24

    run_async(test)


def test_a_lease_is_renewed_and_released_and_over_when_it_is_over() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"v")
        snapshot = await log.snapshot(lease_s=1)
        await snapshot.renew(120)
        assert snapshot.vector.expires_ms == 1_120_000
        for _ in range(2):
            await snapshot.release()
        for reading in (snapshot.read(), snapshot.read("k")):
            with pytest.raises(lognode.NotFound, match="has ended, and its entries may be removed"):
                _ = [e async for e in reading]
        with pytest.raises(lognode.NotFound):
            await snapshot.renew()
        assert all(not known.leases for known in cluster.ranges)

    run_async(test)


def test_leases_of_a_failed_snapshot_are_released() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([("a", b"v"), ("x", b"v")])

        def full(node: FakeNode, request: Request, when: str) -> None:
            if when == "lease" and request.body["start_key"] == b"m":
                raise Overloaded("the range has 64 leases", retry_after=60.0)

        cluster.faults.append(full)
        with pytest.raises(lognode.Timeout, match="has 64 leases"):
            await log.snapshot(timeout=0.5)
        assert cluster.count(LEASE_TAKE) >= 2
        assert all(not known.leases for known in cluster.ranges)

    run_async(test)


def test_a_snapshot_whose_lease_met_itself_after_a_merge_is_taken_under_another_name() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([("a", b"v"), ("x", b"v")])
        refused: list[str] = []

        def merged(node: FakeNode, request: Request, when: str) -> None:
            if when == "lease" and request.body["start_key"] == b"m" and len(refused) < 2:
                refused.append(request.body["lease"])
                raise Conflict(f"lease {request.body['lease']} holds other entries")

        cluster.faults.append(merged)
        snapshot = await log.snapshot()
        assert len({*refused, snapshot.vector.lease}) == 3
        assert [list(known.leases) for known in cluster.ranges] == [[snapshot.vector.lease]] * 2
        assert sorted([e.key async for e in snapshot.read()]) == [b"a", b"x"]

    run_async(test)


def test_a_snapshot_of_another_log_or_cluster_is_refused() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"v")
        saved = (await log.snapshot()).to_json()
        other = await client.create_log("other", ranges=1)
        with pytest.raises(lognode.InvalidArgument, match="of log 'log'; this log is 'other'"):
            other.open_snapshot(saved)
        elsewhere = json.dumps({**json.loads(saved), "cluster": "elsewhere"})
        with pytest.raises(
            lognode.InvalidArgument, match="cluster 'elsewhere'; this client is of cluster 'fake'"
        ):
            log.open_snapshot(elsewhere)
        older = json.dumps({**json.loads(saved), "log_id": 99})
        with pytest.raises(lognode.InvalidArgument, match="was deleted"):
            log.open_snapshot(older)

    run_async(test)


@pytest.mark.parametrize("lease_s", [0, -1, 8 * 24 * 3600])
def test_a_lease_of_no_time_or_of_too_much_is_refused(lease_s: float) -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        with pytest.raises(lognode.LimitExceeded, match=r"give 0\.001 s to 7 days"):
            await log.snapshot(lease_s=lease_s)

    run_async(test)


def test_many_keys_of_bytes_other_than_text_travel_as_json() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.split(b"\xff\xfe")
        await log.append(b"\xff\xff", b"v")
        again: Any = log.open_snapshot((await log.snapshot()).to_json())
        assert [part.start for part in again.vector.parts] == [b"", b"m", b"\xff\xfe"]
        assert [e.key async for e in again.read(b"\xff\xff")] == [b"\xff\xff"]

    run_async(test)
