"""Appends that wait for views, on real nodes: leaders are killed, views are deleted (G7)."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest
from feature_level import raised

import lognode
from lognode import testing
from lognode.client.protocol.errors import InvalidArgument, NotFound
from lognode.client.view_names import remembered_s
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(three: LocalCluster) -> Iterator[lognode.Client]:
    names = ("orders", "kills", "cursors", "gone", "splits", "any", "stale")
    logs = {name: [] if name == "splits" else [b"m"] for name in names}
    with raised(three, logs=logs) as found:
        yield found


@contextlib.asynccontextmanager
async def group(
    three: LocalCluster, name: str, *, prefix: str | None = None
) -> AsyncIterator[lognode.AsyncLog]:
    """A log with the group `index`, which nobody consumes, and the view `search` of the group."""
    async with lognode.AsyncClient(three.servers, timeout=60) as client:
        log = client.log(name)
        async with log.consume("index", lease_ms=2_000, prefix=prefix):
            pass
        await log.register_view("search", group="index")
        yield log


@contextlib.asynccontextmanager
async def consuming(log: lognode.AsyncLog) -> AsyncIterator[None]:
    async def work() -> None:
        async with log.consume("index") as consumer:
            async for batch in consumer:
                with contextlib.suppress(lognode.Fenced):
                    await batch.ack()

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def appended(log: lognode.AsyncLog, key: bytes | str) -> None:
    while not await log.count(key):  # noqa: ASYNC110  no event to wait for
        await asyncio.sleep(0.02)


async def position(log: lognode.AsyncLog, key: bytes) -> int:
    return (await log.group("index")._key(key, log._deadline(30))).position


def test_G7_a_seen_append_was_acknowledged_by_the_group(
    three: LocalCluster, client: lognode.Client
) -> None:
    async def run() -> None:
        async with group(three, "orders", prefix="k") as log:
            began = time.monotonic()
            ack = await log.append("k-1", b"x", wait_for=["search"], wait_ms=300)
            assert ack.seen == {"search": False}, "nobody consumes"
            assert 0.25 < time.monotonic() - began < 5
            assert (await log.append("k-1", b"y")).seen is None
            with pytest.raises(NotFound, match="nothing was appended"):
                await log.append("k-2", b"x", wait_for=["search", "missing"])
            with pytest.raises(InvalidArgument, match="does not have the key"):
                await log.append("z-2", b"x", wait_for=["search"])
            assert await log.count("k-2") == await log.count("z-2") == 0
            async with consuming(log):
                for n in range(20):
                    key = b"k-%d" % n
                    ack = await log.append(key, b"x", wait_for=["search"], wait_ms=20_000)
                    assert ack.seen == {"search": True}
                    assert await position(log, key) > (ack.seq or 0)
                records = [(b"k-%d" % n, b"many") for n in range(300)]
                acks = await log.append_many(records, wait_for=["search"], wait_ms=20_000)
                assert [ack.seen for ack in acks] == [{"search": True}] * 300
                ack = await log.append_batch(records[:5], wait_for=["search"], wait_ms=20_000)
                assert ack.seen == {"search": True}
                assert len({ack.seen["search"] for ack in await asyncio.gather(
                    *(log.append(b"k-%d" % n, b"x", wait_for=["search"], wait_ms=20_000)
                      for n in range(300)))}) == 1  # fmt: skip

    asyncio.run(run())


def test_G7_a_wait_goes_on_when_the_leader_is_killed(
    three: LocalCluster, client: lognode.Client
) -> None:
    leader = testing.leader_of(client, "kills")

    async def run() -> None:
        async with group(three, "kills") as log:
            appends = [
                asyncio.create_task(log.append(b"a-%d" % n, b"x", wait_for=["search"],
                                               wait_ms=30_000))
                for n in range(20)
            ]  # fmt: skip
            await appended(log, b"a-19")
            await asyncio.sleep(0.3)
            assert not any(task.done() for task in appends)
            three.nodes[leader - 1].kill()
            await asyncio.sleep(1)
            assert not any(task.done() and not task.result().seen for task in appends)
            async with consuming(log):
                acks = await asyncio.gather(*appends)
            assert [ack.seen for ack in acks] == [{"search": True}] * 20
            for n, ack in enumerate(acks):
                assert await log.count(b"a-%d" % n) == 1, "no append is repeated by a wait"
                assert await position(log, b"a-%d" % n) > (ack.seq or 0)

    try:
        asyncio.run(run())
    finally:
        three.nodes[leader - 1].start()
        three.nodes[leader - 1].wait_ready()


def test_G7_a_cursor_is_a_view_once_it_exists(three: LocalCluster, client: lognode.Client) -> None:
    async def run() -> None:
        async with lognode.AsyncClient(three.servers, timeout=60) as own:
            log = own.log("cursors")
            with pytest.raises(NotFound):
                await log.register_view("search", cursor="index")
            cursor = log.cursor("index")
            await cursor.open()
            info = await log.register_view("search", cursor="index")
            assert (info.cursor, info.group) == ("index", None)
            assert await log.views() == [info]
            wait = asyncio.create_task(log.append("a", b"x", wait_for=["search"], wait_ms=20_000))
            async for batch in log.follow(cursor="index", commit_every_ms=10, start="earliest"):
                if batch:  # the first may say only that there is nothing yet
                    break
            await appended(log, "a")
            assert not wait.done()
            entry = await log.latest("a")
            assert entry is not None
            cursor = log.cursor("index")
            await cursor.commit({b"a": entry.seq + 1})
            assert (await wait).seen == {"search": True}
            ack = await log.append("a", b"y", wait_for=["search"], wait_ms=0)
            assert ack.seen == {"search": False}

    asyncio.run(run())


def test_a_view_that_is_deleted_during_a_wait_has_not_seen_the_entry(
    three: LocalCluster, client: lognode.Client
) -> None:
    async def run() -> None:
        async with group(three, "gone") as log:
            wait = asyncio.create_task(log.append("a", b"x", wait_for=["search"], wait_ms=1_000))
            await appended(log, "a")
            await log.delete_view("search")
            assert (await wait).seen == {"search": False}
            with pytest.raises(NotFound):
                await log.append("a", b"x", wait_for=["search"])
            await log.register_view("search", group="index", policy="live")
            began = time.monotonic()
            ack = await log.append("a", b"x", wait_for=["search"], wait_ms=20_000)
            assert ack.seen == {"search": False}, "no consumer lives, so nobody waits"
            assert time.monotonic() - began < 10
            await log.delete_view("search")
            await log.register_view("search", group="index")
            live = lognode.AllOf("search", live=True)
            ack = await log.append("a", b"x", wait_for=live, wait_ms=20_000)
            assert ack.seen == {"search": False}, "the append asks for live views only"
            assert time.monotonic() - began < 10
            await log.group("index").delete()
            assert await log.views() == []
            with pytest.raises(NotFound):
                await log.append("a", b"x", wait_for=["search"])
            assert await log.count("a") == 3

    asyncio.run(run())


def test_G7_an_append_waits_for_any_of_the_views(
    three: LocalCluster, client: lognode.Client
) -> None:
    async def run() -> None:
        async with group(three, "any") as log:
            async with log.consume("other"):
                pass
            await log.register_view("cache", group="other")
            any_view = lognode.AnyOf(1, "search", "cache")
            began = time.monotonic()
            async with consuming(log):
                ack = await log.append("a", b"x", wait_for=any_view, wait_ms=30_000)
                assert ack.seen == {"search": True, "cache": False}
                batch = [(b"b-%d" % n, b"x") for n in range(20)]
                ack = await log.append_batch(batch, wait_for=any_view, wait_ms=30_000)
                assert ack.seen == {"search": True, "cache": False}
                acks = await log.append_many(batch, wait_for=any_view, wait_ms=30_000)
                assert [ack.seen for ack in acks] == [{"search": True, "cache": False}] * 20
                for key, ack in zip((key for key, _ in batch), acks, strict=True):
                    assert await position(log, key) > (ack.seq or 0)
            assert time.monotonic() - began < 25, "nobody waited for the other view"

    asyncio.run(run())


def test_a_client_that_remembers_a_deleted_view_appends_and_says_that_it_has_not_seen(
    three: LocalCluster, client: lognode.Client
) -> None:
    async def run() -> None:
        async with group(three, "stale") as log:
            await log.append("a", b"x", wait_for=["search"], wait_ms=0)
            await asyncio.to_thread(client.log("stale").delete_view, "search")
            ack = await log.append("a", b"x", wait_for=["search"], wait_ms=1_000)
            assert ack.seen == {"search": False}, "the append stands"
            with contextlib.suppress(NotFound):
                until = time.monotonic() + remembered_s + 10
                while True:
                    ack = await log.append("a", b"x", wait_for=["search"], wait_ms=100)
                    assert ack.seen == {"search": False}
                    assert time.monotonic() < until, "the client asks for the names again"
            again = partial(client.log("stale").register_view, "search", group="index")
            await asyncio.to_thread(again)
            async with consuming(log):
                ack = await log.append("a", b"x", wait_for=["search"], wait_ms=20_000)
                assert ack.seen == {"search": True}

    asyncio.run(run())


def test_G7_a_wait_goes_on_after_a_split(three: LocalCluster, client: lognode.Client) -> None:
    async def run() -> None:
        async with group(three, "splits") as log:
            records = [(b"a", b"x"), (b"z", b"x")]
            wait = asyncio.create_task(
                log.append_many(records, wait_for=["search"], wait_ms=30_000)
            )
            await appended(log, "z")
            await asyncio.to_thread(partial(client.admin.split, "splits", at=b"m"))
            async with consuming(log):
                assert [ack.seen for ack in await wait] == [{"search": True}] * 2

    asyncio.run(run())


def test_the_verbs_register_list_and_delete_views(
    three: LocalCluster, client: lognode.Client
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "lognode.node.main", "view", *arguments, "--server",
             three.servers],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    log = client.create_log("verbs-of-views")
    with log.consume("index"):
        pass
    assert run("register", "verbs-of-views", "search")[0] == 2, "neither a group nor a cursor"
    assert run("register", "verbs-of-views", "search", "--group", "missing")[0] == 4
    code, _ = run("register", "verbs-of-views", "search", "--group", "index", "--live")
    assert code == 0
    code, listed = run("list", "verbs-of-views", "--format", "json")
    (row,) = json.loads(listed)
    assert (code, row["name"], row["group"], row["policy"]) == (0, "search", "index", "live")
    (info,) = log.views()
    assert info.name == "search"
    assert log.append("k", b"v", wait_for=["search"], wait_ms=0).seen == {"search": False}
    assert run("delete", "verbs-of-views", "search", "--yes")[0] == 0
    assert log.views() == []
    assert run("delete", "verbs-of-views", "search", "--yes")[0] == 4
