"""Updates of keys: callers in line, batches of changes, turns, failures."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fake_cluster import Drop, FakeCluster, FakeNode
from sdk_faults import once, raising, run

import lognode
from lognode import AsyncClient, AsyncLog
from lognode.client import updates
from lognode.client.accepting.request import Request
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.errors import Overloaded
from lognode.client.protocol.reads import LATEST
from lognode.client.protocol.records import decode_batch


def added(text: bytes) -> Callable[[bytes | None], bytes]:
    """A change that appends a text to the value."""
    return lambda value: (value or b"") + text


def increased(value: bytes | None) -> bytes:
    return b"%d" % (int(value or b"0") + 1)


def rival(times: int) -> Callable[[FakeNode, Request, str], None]:
    """A fault: just before an append is applied, another client appends to its key."""
    left = times

    def fault(node: FakeNode, request: Request, when: str) -> None:
        nonlocal left
        if when == "before" and left:
            left -= 1
            known = node.find(request.body)
            batch = decode_batch(request.body["batches"][0])
            known.entries.append(type(known.entries[0])(batch.keys[0], known.next_seq, 0, None,
                                                        b"100", False))  # fmt: skip
            known.next_seq += 1

    return fault


def test_S9_updates_of_one_key_are_applied_in_the_order_of_their_calls() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        calls = [log.update("k", added(b"%d," % n)) for n in range(20)]
        done = await asyncio.gather(*calls)
        values = cluster.values(b"k")
        assert values[-1] == b"".join(b"%d," % n for n in range(20))
        assert [updated.value for updated in done] == values
        assert [updated.seq for updated in done] == [e.seq for e in cluster.entries()]

    run(test)


def test_S9_many_callers_of_a_client_need_few_requests() -> None:
    """A caller costs no request of its own: one read and one append serve all who wait."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.update("k", increased)
        before = cluster.count(APPEND), cluster.count(LATEST)
        for _ in range(10):
            await asyncio.gather(*(log.update("k", increased) for _ in range(256)))
        assert cluster.values(b"k")[-1] == b"2561"
        assert cluster.count(APPEND) - before[0] == 10
        assert cluster.count(LATEST) - before[1] == 10

    run(test)


def test_S9_an_update_begins_with_what_others_appended_meanwhile() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"1")
        cluster.faults.append(rival(3))
        done = await asyncio.gather(*(log.update("k", increased) for _ in range(5)))
        assert [updated.value for updated in done] == [b"%d" % n for n in range(101, 106)]
        assert cluster.values(b"k")[:4] == [b"1", b"100", b"100", b"100"]
        assert cluster.values(b"k")[4:] == [updated.value for updated in done]

    run(test)


@pytest.mark.parametrize("callers", [1, 7])
@pytest.mark.parametrize("when", ["before", "after"])
def test_S8_S9_a_lost_answer_repeats_no_update(callers: int, when: str) -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Drop()), when))
        done = await asyncio.gather(*(log.update("k", increased) for _ in range(callers)))
        assert cluster.values(b"k") == [b"%d" % n for n in range(1, callers + 1)]
        assert [updated.seq for updated in done] == [e.seq for e in cluster.entries()]

    run(test)


@pytest.mark.parametrize("callers", [1, 7])
def test_S11_an_update_that_may_have_been_applied_is_not_made_again(callers: int) -> None:
    """The first attempt is lost on its way and may still arrive; then another client is faster."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"1")
        cluster.faults += [once(raising(Drop()), "before"), rival(1)]
        done = await asyncio.gather(
            *(log.update("k", increased) for _ in range(callers)), return_exceptions=True
        )
        for error in done:
            assert isinstance(error, lognode.Timeout), error
            assert error.outcome == "unknown"
        assert cluster.values(b"k") == [b"1", b"100"]

    run(test)


def test_an_error_of_a_change_ends_that_call_only() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def refused(value: bytes | None) -> bytes:
            raise ValueError(value)

        calls = [log.update("k", change) for change in (added(b"a"), refused, added(b"b"))]
        _, error, _ = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(error, ValueError)
        assert error.args == (b"a",)
        assert cluster.values(b"k") == [b"a", b"ab"]
        for wrong in (lambda _: 7, str, lambda _: b"x" * (1 << 20) + b"y"):
            with pytest.raises(lognode.LognodeError):
                await log.update("k", wrong)  # type: ignore[arg-type]
        assert len(cluster.values(b"k")) == 2

    run(test)


def test_a_client_that_appends_nothing_gives_its_turn_back() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def refused(value: bytes | None) -> bytes:
            raise ValueError(value)

        def turns() -> list[str]:
            return [body["turn"] for _, operation, body in cluster.requests if operation == LATEST]

        with pytest.raises(ValueError, match="None"):
            await log.update("k", refused)
        while turns() != ["take", "end"]:  # noqa: ASYNC110 - the client tells nobody
            await asyncio.sleep(0.01)

    run(test)


def test_S5_an_error_of_a_change_never_tells_of_a_value_that_was_not_appended() -> None:
    """The second change sees the value of the first, which is refused then: it runs again."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def claim(value: bytes | None) -> bytes:
            if value != b"free":
                raise ValueError(value)
            return b"taken"

        await log.append("k", b"free")
        cluster.faults.append(rival(1))
        done = await asyncio.gather(*(log.update("k", claim) for _ in range(3)),
                                    return_exceptions=True)  # fmt: skip
        assert [error.args for error in done if isinstance(error, ValueError)] == [(b"100",)] * 3

    run(test)


def test_a_tombstone_and_a_key_without_entries_have_no_value() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        seen: list[bytes | None] = []

        def change(value: bytes | None) -> bytes | None:
            seen.append(value)
            return None if value else b"x"

        for _ in range(3):
            await log.update("k", change)
        assert seen == [None, b"x", None]
        assert cluster.values(b"k") == [b"x", None, b"x"]

    run(test)


def test_values_larger_than_a_batch_need_several() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        def change(value: bytes | None) -> bytes:
            return b"%d" % (int((value or b"0")[:3]) + 1) + b" " * 400_000

        await asyncio.gather(*(log.update("k", change) for _ in range(5)))
        assert [int((value or b"")[:3]) for value in cluster.values(b"k")] == [1, 2, 3, 4, 5]
        assert cluster.count(APPEND) == 3

    run(test)


def test_reads_that_wait_for_their_turns_leave_room_for_appends() -> None:
    """Another client holds the turns of 2,000 keys, more than a connection has requests."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        let_go = asyncio.Event()
        waiting = most = 0
        serve = FakeNode.serve

        async def held(node: FakeNode, request: Request) -> dict[str, Any] | None:
            nonlocal waiting, most
            if request.operation == LATEST and request.body["turn"] == "take":
                waiting += 1
                most = max(most, waiting)
                await let_go.wait()
                waiting -= 1
            return await serve(node, request)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeNode, "serve", held)
            keys = [b"%d" % number for number in range(2_000)]
            calls = [asyncio.create_task(log.update(key, increased)) for key in keys]
            await log.append("k", b"beside")
            while waiting < updates._READS_MAX:  # noqa: ASYNC110 - the node tells nobody
                await asyncio.sleep(0.01)
            await log.append("k", b"beside")
            let_go.set()
            await asyncio.gather(*calls)
        assert most == updates._READS_MAX

    run(test, timeout=15)


def test_a_caller_that_leaves_changes_nothing() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append("k", b"0")
        calls = [asyncio.create_task(log.update("k", increased)) for _ in range(4)]
        await asyncio.sleep(0)
        calls[1].cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(done[1], asyncio.CancelledError)
        assert cluster.values(b"k") == [b"0", b"1", b"2", b"3"]

    run(test)


def test_each_caller_has_its_own_deadline() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Overloaded("x", retry_after=0.05)), times=1_000))
        long = asyncio.create_task(log.update("k", increased, timeout=30))
        with pytest.raises(lognode.LognodeError) as told:
            await log.update("k", increased, timeout=0.2)
        assert told.value.outcome in ("not_applied", "unknown")
        assert not long.done()
        cluster.faults.clear()
        assert (await long).value is not None

    run(test)


def test_errors_of_the_read_reach_every_caller() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        calls = [client.log("missing").update("k", increased) for _ in range(3)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, lognode.LogNotFound)
            assert error.outcome == "not_applied"

    run(test)


def test_a_client_that_closes_completes_its_updates() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        calls = [asyncio.create_task(log.update("k", increased)) for _ in range(3)]
        await asyncio.sleep(0)
        await client.close()
        assert [updated.value for updated in await asyncio.gather(*calls)] == [b"1", b"2", b"3"]

    run(test)


def test_a_closed_client_ends_its_updates() -> None:
    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        cluster.faults.append(once(raising(Overloaded("x", retry_after=0.05)), times=1_000))
        calls = [asyncio.create_task(log.update("k", increased)) for _ in range(3)]
        await asyncio.sleep(0.05)
        await client.close(0.1)
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, lognode.LognodeError), error
        assert cluster.values(b"k") == []

    run(test)
