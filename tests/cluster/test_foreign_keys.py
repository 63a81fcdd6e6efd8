"""A client with a scope of keys: it works over all its keys, and no other key ever reaches it.

Bounds of ranges are keys. Here all bounds outside the client's keys have a marker, and everything
that the client's connections receive is searched for the marker.
"""

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lognode
from lognode import testing
from lognode.client.protocol.appends import APPEND, LEASE_TAKE
from lognode.client.protocol.frame import Frame
from lognode.client.protocol.reads import EXPORT, FOLLOW, READ_SPAN, RESOLVE, SCAN
from lognode.client.transport import FrameTransport

pytestmark = pytest.mark.cluster

MARKER = "MARKER"
LOW, HIGH, BESIDE = "a-MARKER", "z-MARKER", "m-MARKER"
"""Bounds from the beginning on: `user-` lies within one range with foreign bounds at both ends."""


class Received:
    """Everything that the connections of one thread have received."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.thread = threading.get_ident()
        self.data: list[bytes] = []
        self.frames: list[str] = []
        take, give = FrameTransport.data_received, FrameTransport._give

        def data_received(transport: FrameTransport, data: bytes) -> None:
            if threading.get_ident() == self.thread:
                self.data.append(data)
            take(transport, data)

        def give_(transport: FrameTransport, message: Frame) -> None:
            if threading.get_ident() == self.thread:
                self.frames.append(repr(message.body))
            give(transport, message)

        monkeypatch.setattr(FrameTransport, "data_received", data_received)
        monkeypatch.setattr(FrameTransport, "_give", give_)

    def has(self, text: str) -> bool:
        """Whether the text came, as bytes or in a body that was packed."""
        return text.encode() in b"".join(self.data) or any(text in each for each in self.frames)


@pytest.fixture(scope="module")
def three(module_path: Path) -> Iterator[testing.LocalCluster]:
    with testing.cluster(module_path, 3, auth=True) as cluster:
        testing.wait_healthy(cluster)
        yield cluster


class Administrator:
    """Works in a thread of its own, so that what it receives is not the client's."""

    def __init__(self, cluster: testing.LocalCluster) -> None:
        self.client = lognode.Client(cluster.servers, timeout=30)
        self.cluster = cluster

    async def do(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of the client, or of `admin.`."""
        target: Any = self.client
        for part in name.split("."):
            target = getattr(target, part)
        return await asyncio.to_thread(target, *args, **options)

    async def log(self, name: str) -> lognode.Log:
        keys = [LOW, BESIDE, HIGH]
        await self.do("create_log", name, split_at=[LOW, HIGH])
        log = self.client.log(name)
        await asyncio.to_thread(log.append_many, [(f"{key}-entry", b"v") for key in keys])
        return log

    async def token(self, name: str, *scopes: str) -> str:
        made: str = (await self.do("admin.create_token", name, scopes))["token"]
        return made


def run(three: testing.LocalCluster, test: Any) -> None:
    async def main() -> None:
        administrator = Administrator(three)
        try:
            async with asyncio.timeout(150):
                await test(administrator)
        finally:
            await asyncio.to_thread(administrator.client.close)

    asyncio.run(main())


async def listed(source: Any) -> list[Any]:
    return [each async for each in source]


def address(cluster: testing.LocalCluster) -> str:
    return cluster.servers.partition("?")[0]


async def refused(call: Any) -> None:
    with pytest.raises(lognode.Unauthorized):
        await call


def test_no_foreign_key_reaches_a_client_that_uses_its_own_over_splits_and_merges(
    three: testing.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = Received(monkeypatch)

    async def test(administrator: Administrator) -> None:
        await administrator.log("own")
        token = await administrator.token("reader", "read,append,trim own user-*", "describe")
        async with lognode.AsyncClient(address(three), token=token, timeout=30) as client:
            log = client.log("own")
            sent: dict[bytes, list[bytes]] = {}

            async def append(turn: int) -> None:
                records = [(f"user-{n}", b"%d" % turn) for n in range(10)]
                await log.append_many(records)
                for key, value in records:
                    sent.setdefault(key.encode(), []).append(value)

            await append(0)
            read: dict[bytes, list[bytes]] = {}
            keyed: list[lognode.Entry] = []
            async with (
                log.follow(prefix="user-", start="earliest") as feed,
                log.follow(keys=["user-2", "user-8"], start="latest") as feed_of_keys,
            ):
                entries, entries_of_keys = feed.entries(), feed_of_keys.entries()
                for turn, (verb, at) in enumerate(
                    [("split", "user-5"), ("split", BESIDE), ("split", "v-MARKER"),
                     ("split", "user-3"), ("merge", "user-5"), ("merge", BESIDE)], 1
                ):  # fmt: skip
                    change = asyncio.create_task(
                        administrator.do(f"admin.{verb}", "own", at=at, timeout=60)
                    )
                    await append(turn)
                    await change
                    for n in (2, 8):
                        assert len(await listed(log.scan(f"user-{n}"))) == turn + 1
                    while sum(map(len, read.values())) < sum(map(len, sent.values())):
                        entry = await anext(entries)
                        read.setdefault(entry.key, []).append(entry.value or b"")
                    assert read == sent
                    while len(keyed) < 2 * turn:
                        keyed.append(await anext(entries_of_keys))
            assert sorted(e.value or b"" for e in keyed) == sorted(
                [b"%d" % turn for turn in range(1, 7)] * 2
            )
            await _whole_surface(client, log)
        assert (await administrator.do("metadata"))["ranges"]

    run(three, test)
    assert received.has("user-5"), "what is received is recorded"
    assert not received.has(MARKER), _around(received)


async def _whole_surface(client: lognode.AsyncClient, log: lognode.AsyncLog) -> None:
    """Ask for whatever there is, allowed or not."""
    assert await listed(log.keys(prefix="user-")) == [b"user-%d" % n for n in range(10)]
    assert await log.count("user-1") == 7
    latest = await log.latest("user-9")
    assert latest is not None
    await log.trim("user-9", before=latest.seq)
    assert await log.count("user-9") == 1
    rows = (await log.describe())["ranges"]
    assert [(row["start"], row["end"]) for row in rows] == [
        (b"user-", b"user-3"), (b"user-3", b"user."),
    ]  # fmt: skip
    assert len(await client.admin.ranges("own")) == 2
    assert (await client.metadata())["ranges"]
    async with log.producer(name="named") as producer:
        ticket = await producer.submit("user-1", b"n", number=1)
        await ticket
    await client.status()
    await client.health()
    for key in ("a", BESIDE, "user", "user.", "z"):
        await refused(log.append(key, b"v"))
        await refused(log.append_batch([("user-1", b"v"), (key, b"v")]))
        await refused(listed(log.scan(key)))
        await refused(listed(log.keys(prefix=key)))
        await refused(log.follow(keys=[key]).open())
        await refused(log.follow(prefix=key).open())
        with pytest.raises(lognode.PartialFailure):
            await log.append_many([("user-1", b"w"), (key, b"v")])
    await refused(listed(log.keys()))
    await refused(log.follow().open())
    await refused(log.snapshot())


def test_no_refusal_tells_a_foreign_key(
    three: testing.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of its own asks every node for every range at every generation, the ranges of
    others too."""
    received = Received(monkeypatch)

    async def test(administrator: Administrator) -> None:
        await administrator.log("told")
        await administrator.do("admin.split", "told", at="user-5", timeout=60)
        await administrator.do("admin.split", "told", at=BESIDE, timeout=60)
        ranges = (await administrator.do("metadata"))["ranges"]
        token = await administrator.token("prober", "read,append,trim told user-*")
        codes: set[str] = set()
        async with lognode.AsyncClient(address(three), token=token, timeout=30) as client:
            cluster = client._cluster
            await client.log("told").count("user-1")
            span = {"start_key": b"user-", "end_key": b"user-1"}
            requests: list[tuple[Any, dict[str, Any]]] = [
                (SCAN, {"key": b"user-1"}), (SCAN, {"key": b"a"}), (READ_SPAN, span),
                (EXPORT, span), (RESOLVE, {"start": "latest", **span}),
                (RESOLVE, {"start": "snapshot", "key": b"user-1"}),
                (READ_SPAN, {"start_key": b"", "end_key": b"c"}),
                (LEASE_TAKE, {"lease": "l", "through": 0, "lease_ms": 9, **span}),
                (APPEND, {"batches": [b""]}),
            ]  # fmt: skip
            for node in (1, 2, 3):
                for row in ranges:
                    for generation in (1, row["generation"], row["generation"] + 1):
                        where = {"range": row["id"], "generation": generation}
                        for operation, body in requests:
                            try:
                                await cluster.ask_node(
                                    node, operation, {**where, **body}, time.monotonic() + 10
                                )
                            except lognode.LognodeError as error:
                                codes.add(error.code)
                        stream = await (await cluster._connect(node, cluster.now() + 10)).stream(
                            FOLLOW, {**where, **span}, credit_bytes=1 << 16
                        )
                        try:
                            await asyncio.wait_for(anext(stream), 2)
                        except (lognode.LognodeError, TimeoutError, StopAsyncIteration):
                            pass
                        finally:
                            stream.cancel()
        assert {"GENERATION_MISMATCH", "NOT_LEADER", "UNAUTHORIZED"} <= codes, codes

    run(three, test)
    assert received.has("user-5")
    assert not received.has(MARKER), _around(received)


def test_the_marker_is_found_where_it_is_told(
    three: testing.LocalCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    received = Received(monkeypatch)

    async def test(administrator: Administrator) -> None:
        await administrator.log("all")
        token = await administrator.token("all", "append all", "read all user-*")
        async with lognode.AsyncClient(address(three), token=token, timeout=30) as client:
            await client.log("all").append("user-1", b"v")

    run(three, test)
    assert received.has(MARKER)


def _around(received: Received) -> str:
    return str(
        [m.group() for each in received.frames for m in re.finditer(f".{{80}}{MARKER}", each)][:3]
    )
