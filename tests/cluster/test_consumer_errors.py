"""Wrong use of groups and views on real nodes: each error is clear, and other consumers go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from feature_level import raised

import lognode
from lognode.client.protocol.errors import (
    Conflict,
    InvalidArgument,
    LognodeError,
    LogNotFound,
    NotFound,
)
from lognode.client.protocol.groups import GROUP_SETTLE
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster

Act = Callable[[lognode.AsyncClient], Awaitable[Any]]
ERRORS: dict[str, tuple[Act, type[LognodeError], str]] = {
    "a group that does not exist": (
        lambda own: own.log("errors").group("missing").lag(),
        NotFound, "has no consumer group 'missing'",
    ),
    "a view of a group that does not exist": (
        lambda own: own.log("errors").register_view("v", group="missing"), NotFound, "'missing'",
    ),
    "a view of a cursor that does not exist": (
        lambda own: own.log("errors").register_view("v", cursor="missing"), NotFound, "'missing'",
    ),
    "an append that waits for a view that does not exist": (
        lambda own: own.log("errors").append("bad", b"x", wait_for=["v"]),
        NotFound, "no view 'v'.*nothing was appended",
    ),
    "many appends that wait for a view that does not exist": (
        lambda own: own.log("errors").append_many([("bad", b"x")], wait_for=["v"]),
        NotFound, "no view 'v'.*nothing was appended",
    ),
    "a batch that waits for a view that does not exist": (
        lambda own: own.log("errors").append_batch([("bad", b"x")], wait_for=["v"]),
        NotFound, "no view 'v'.*nothing was appended",
    ),
    "a wait that is too long": (
        lambda own: own.log("errors").append("bad", b"x", wait_for=["v"], wait_ms=30_001),
        InvalidArgument, "wait_ms is 30001; give 0 to 30000",
    ),
    "a pattern that does not parse": (
        lambda own: own.log("errors").consume("g", pattern="a**").open(),
        InvalidArgument, "pattern",
    ),
    "other options than the group has": (
        lambda own: own.log("errors").consume("good", max_deliveries=9).open(),
        Conflict, "max_deliveries",
    ),
    "a group of a deleted log": (
        lambda own: own.log("gone").consume("g").open(), LogNotFound, "'gone'",
    ),
    "the lag of a group of a deleted log": (
        lambda own: own.log("gone").group("g").lag(), LogNotFound, "'gone'",
    ),
    "an append to a deleted log that waits": (
        lambda own: own.log("gone").append("k", b"x", wait_for=["v"]), LogNotFound, "'gone'",
    ),
}  # fmt: skip


@pytest.fixture
def servers(three: LocalCluster) -> str:
    with raised(three) as client:
        client.create_log("errors", exist_ok=True, split_at=[b"m"])
        client.create_log("handlers", exist_ok=True)
        client.create_log("gone", exist_ok=True)
        client.delete_log("gone")
    return three.servers


@contextlib.asynccontextmanager
async def working(log: lognode.AsyncLog, done: list[bytes]) -> AsyncIterator[None]:
    """A consumer of the group `good`, which acknowledges everything that comes."""

    async def work() -> None:
        async with log.consume("good", keys_max=4) as consumer:
            async for batch in consumer:
                done.extend(value for value in batch.values if value is not None)
                await batch.ack()

    task = asyncio.create_task(work())
    try:
        yield
        assert not task.done(), "the consumer goes on"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _settle(own: lognode.AsyncClient, group_id: int, key: bytes, token: int) -> list[Any]:
    """Acknowledge a key of a group by a token, as a consumer that nobody knows."""
    cluster = own.log("errors")._cluster
    body = {"group": group_id, "consumer": 99, "acks": [[key, token, 1 << 40]]}
    answer, _ = await cluster.call(
        cluster.log("errors"), key, GROUP_SETTLE, body, deadline=cluster.now() + 20
    )
    found: list[Any] = answer["refused"]
    return found


def test_wrong_requests_have_clear_errors_and_harm_no_other_consumer(servers: str) -> None:
    async def run() -> None:
        async with lognode.AsyncClient(servers, timeout=30) as own:
            log, done, sent = own.log("errors"), list[bytes](), list[bytes]()
            async with working(log, done):

                async def send(value: str) -> None:
                    sent.append(value.encode())
                    await log.append(f"{'az'[len(sent) % 2]}-{len(sent)}", sent[-1])

                for what, (act, kind, message) in ERRORS.items():
                    await send(what)
                    with pytest.raises(kind, match=message):
                        await act(own)
                assert await log.count("bad") == 0, "nothing was appended"
                info = await log.group("good").describe()
                for token in (0, 1, 1 << 40 | 1, (1 << 62) - 1):
                    await send(f"a made up token {token}")
                    for key in (b"a-1", b"z-2"):
                        ((refused, reason, _),) = await _settle(own, info.id, key, token)
                        assert (refused, reason) == (key, "lease")
                while len(done) < len(sent):  # noqa: ASYNC110  no event to wait for
                    await asyncio.sleep(0.02)
            assert sorted(done) == sorted(sent), "each entry once"
            assert (await log.group("good").lag()).entries == 0
            assert await log.group("good").history() == []
            assert [group.name for group in await log.groups()] == ["good"]

    asyncio.run(run())


def test_a_handler_that_raises_or_acknowledges_twice_harms_no_other_key(servers: str) -> None:
    async def run() -> None:
        async with lognode.AsyncClient(servers, timeout=30) as own:
            log = own.log("handlers")
            await log.append_many([("h-bad", b"1"), ("h-good", b"1"), ("h-zest", b"1")])

            async def raises() -> None:
                async with log.consume("g", keys_max=1) as consumer:
                    async for batch in consumer:
                        raise ValueError(f"cannot read {batch.key!r}")

            with pytest.raises(ValueError, match="cannot read"):
                await raises()
            deliveries = {}
            async with log.consume("g") as consumer:
                async for batch in consumer:
                    deliveries[batch.key] = batch.deliveries
                    await batch.ack()
                    with pytest.raises(InvalidArgument, match="settled before"):
                        await batch.ack()
                    if len(deliveries) == 3:
                        break
            assert sorted(deliveries.values()) == [1, 1, 2], "the failed key alone comes again"
            assert (await log.group("g").lag()).entries == 0

    asyncio.run(run())
