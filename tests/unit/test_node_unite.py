"""A merged range on a node: reads, follows, segment merges, retention and verify, and a restart."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from loose_operations import asked
from storage_node import StorageNode, descriptor

from lognode.client.pages import entries_of
from lognode.client.protocol import chunks
from lognode.client.protocol.errors import InvalidArgument, Sealed
from lognode.client.protocol.reads import (
    COUNT_ENTRIES,
    EXPORT,
    FOLLOW,
    KEYS,
    READ_SPAN,
    RESOLVE,
    SCAN,
)
from lognode.client.protocol.records import encode_batch
from lognode.node.directory import meta_keys
from lognode.node.replicas.range_replica import RangeReplica
from lognode.node.serving import reads
from lognode.node.serving.follow import Follow
from lognode.node.verify.verify_bases import KnownBase, check_bases
from lognode.partitions.model import Descriptor, Span
from lognode.raft.types import GroupId
from lognode.statemachine.clip import clipped
from lognode.statemachine.range_state import Base
from lognode.statemachine.unite import Parent, united

LEFT, RIGHT = Span(b"", b"m"), Span(b"m", None)
SEQS = {b"a": [*range(1, 26, 2)], b"b": [*range(2, 26, 2)], b"x": [*range(1, 25), 26]}
"""Of the merged range: what each key has."""
Test = Callable[[StorageNode, RangeReplica], Awaitable[None]]


async def append(replica: RangeReplica, *keys: bytes) -> None:
    reply = await replica.append(
        encode_batch(keys, [b"v"] * len(keys), producer=0, epoch=1, low=1, numbers=1)
    )
    assert reply["status"] == "ok"


async def merged(node: StorageNode) -> RangeReplica:
    """Two ranges with twelve and eight segments, and the one that comes of their merge."""
    bases = []
    for range_id, span, keys, count in ((1, LEFT, [b"a", b"b"], 12), (2, RIGHT, [b"x"] * 3, 8)):
        own = Descriptor(range_id, 1, 1, span, (1,))
        replica = await node.host.create_range(own, Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        for _ in range(count):
            await append(replica, *keys)
            await node.flusher.flush(replica)
        bases.append(Parent(span.start, span.end, replica.state.durable_base))
    whole = await node.host.create_range(descriptor(3), united(bases, 1, 0), campaign=True)
    assert isinstance(whole, RangeReplica)
    await node.leading(whole)
    await append(whole, b"a", b"x")
    return whole


def on_node(root: Path, test: Test) -> None:
    async def main() -> None:
        node = StorageNode(root)
        await node.start()
        try:
            await test(node, await merged(node))
        finally:
            node.stop()

    asyncio.run(main())


async def spans(replica: RangeReplica, **body: Any) -> list[tuple[bytes, int]]:
    """Of all keys, as a client has to ask."""
    found: list[tuple[bytes, int]] = []
    start: bytes | None = b""
    while start is not None:
        at, end, more = 1, None, True
        while more:
            wanted = {"start_key": start, "end_key": end, "start": at, "limit": 5, **body}
            page = await reads.read_span(replica, asked(READ_SPAN, **wanted))
            keys = page["keys"]
            keys = [keys] * len(page["seqs"]) if isinstance(keys, bytes) else keys
            found += zip(keys, page["seqs"], strict=True)
            end = page.get("end_key", end)
            at, more = page["next"], page["more"]
        start = end
    return found


async def exported(replica: RangeReplica, limit: int) -> list[tuple[bytes, int]]:
    """Of all keys, as a client has to ask; each key in the order of seq."""
    found: list[tuple[bytes, int]] = []
    rest: list[tuple[bytes, bytes | None, Any]] = [(b"", None, None)]
    while rest:
        start, end, position = rest.pop()
        wanted = asked(EXPORT, start_key=start, end_key=end, position=position, limit=limit)
        page = msgpack.unpackb(msgpack.packb(await reads.export(replica, wanted)))
        entries = entries_of(chunks.unpacked(page))
        if "end_key" in page:
            rest.append((page["end_key"], end, position))
            end = page["end_key"]
        found += [(entry.key, entry.seq) for entry in entries]
        if page["position"] is not None:
            rest.append((start, end, page["position"]))
    for key in {key for key, _ in found}:
        seqs = [seq for other, seq in found if other == key]
        assert seqs == sorted(set(seqs))
    return found


def expected() -> list[tuple[bytes, int]]:
    return [(key, seq) for key, seqs in SEQS.items() for seq in seqs]


def test_x2_20_pages_say_which_keys_they_are_of(tmp_path: Path) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        page = await reads.read_span(replica, asked(READ_SPAN, start=1, limit=99))
        assert page["end_key"] == b"m"
        assert set(page["keys"]) == {b"a", b"b"}
        assert page["seqs"] == [*range(1, 26)]
        assert sorted(await spans(replica)) == expected()
        page = await reads.read_span(replica, asked(READ_SPAN, start=25, limit=99))
        assert (page["seqs"], "end_key" in page) == ([25, 26], False)
        for key, seqs in SEQS.items():
            found = await reads.scan(replica, asked(SCAN, key=key, limit=99))
            assert found["seqs"] == seqs
            assert (await reads.count(replica, asked(COUNT_ENTRIES, key=key)))["count"] == len(seqs)
        assert (await reads.keys(replica, asked(KEYS)))["keys"] == sorted(SEQS)

    on_node(tmp_path, test)


@pytest.mark.parametrize("limit", [1, 5, 99])
def test_x2_20_everything_of_a_merged_range_is_exported(tmp_path: Path, limit: int) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        assert sorted(await exported(replica, limit)) == expected()

    on_node(tmp_path, test)


@pytest.mark.parametrize(
    "position",
    [
        1, [], [[]], [1, 2], [[], -1], [[], None], [[[1, 2, b"k"]], 3], [[[1, 2, "k", 3]], 3],
        [[[1, 2, b"k", -1]], 3], [[None], 3], [[[1, 2, b"k", 3]] * 1_025, 3], [[], 1, 1],
    ],
)  # fmt: skip
def test_a_malformed_position_is_refused(tmp_path: Path, position: Any) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        with pytest.raises(InvalidArgument, match="position"):
            await reads.export(replica, asked(EXPORT, position=position))

    on_node(tmp_path, test)


def test_x2_21_a_time_is_resolved_span_by_span(tmp_path: Path) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        async def first(**span: Any) -> dict[str, Any]:
            return await reads.resolve(replica, asked(RESOLVE, start=["ts", 1], **span))

        assert await first() == {"seq": 1, "end_key": b"m"}
        assert await first(end_key=b"m") == {"seq": 1}
        assert await first(start_key=b"m") == {"seq": 1}
        assert await first(key=b"x") == {"seq": 1}
        now = asked(RESOLVE, start=["ts", replica.state.last_timestamp_ms + 1])
        assert await reads.resolve(replica, now) == {"seq": 27}

    on_node(tmp_path, test)


class Asker:
    """Takes what a follow pushes until it has so many entries."""

    def __init__(self, wanted: int, **body: Any) -> None:
        self.body = asked(FOLLOW, **body)
        self.answered = False
        self.done = asyncio.Event()
        self.pushes: list[dict[str, Any]] = []
        self._wanted = wanted

    async def wait_credit(self) -> None:
        """There is enough."""

    async def room(self) -> None:
        """There is enough."""

    def leave_room(self) -> None:
        """Nobody else wants any."""

    def push(self, body: dict[str, Any]) -> None:
        self.pushes.append(body)
        if len(self.seqs) >= self._wanted:
            self.done.set()

    @property
    def seqs(self) -> list[int]:
        return [seq for push in self.pushes for seq in push["page"]["seqs"]]


def test_x2_20_a_follow_narrows_itself_once_and_says_so(tmp_path: Path) -> None:
    async def follow(replica: RangeReplica, wanted: int, **body: Any) -> Asker:
        asker = Asker(wanted, **body)
        following = asyncio.create_task(Follow(replica, asker).run())  # type: ignore[arg-type]
        async with asyncio.timeout(20):
            await asker.done.wait()
        following.cancel()
        await asyncio.wait([following])
        return asker

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        left = await follow(replica, 25, from_seq=1)
        assert [push.get("end_key") for push in left.pushes] == [b"m"] + [None] * (
            len(left.pushes) - 1
        )
        assert left.seqs == [*range(1, 26)]
        right = await follow(replica, 25, from_seq=1, start_key=b"m")
        assert right.seqs == [*range(1, 25), 26]
        assert not any("end_key" in push for push in right.pushes)
        both = await follow(replica, 2, from_seq=25)
        assert (both.seqs, "end_key" in both.pushes[0]) == ([25, 26], False)
        keyed = await follow(replica, 7, keys={b"a": 21, b"x": 22})
        assert sorted(keyed.seqs) == [21, 22, 23, 23, 24, 25, 26]
        assert not any("end_key" in push for push in keyed.pushes)

    on_node(tmp_path, test)


def test_x2_20_a_follow_ends_when_another_base_tells_more_apart(tmp_path: Path) -> None:
    """What was told of its span does not hold any more: the asker asks again."""

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        request = SimpleNamespace(body=asked(FOLLOW, from_seq=25))
        follow = Follow(replica, request)  # type: ignore[arg-type]
        (first, *_) = replica.state.manifest
        replica.state.manifest = [first._replace(end_seq=99)]
        with pytest.raises(Sealed, match="has changed"):
            await follow._next_page()
        assert follow._from_seq == 25

    on_node(tmp_path, test)


def test_S3_segments_of_each_parent_are_merged_and_the_node_begins_again(tmp_path: Path) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        assert len(replica.state.manifest) == 20
        await node.flusher.flush(replica)
        before = sorted(await spans(replica))
        merges = 0
        while await node.merges.try_merge(replica):
            merges += 1
        clips = [info.clip for info in replica.state.manifest]
        assert merges == 2
        assert clips == [(b"", b"m")] * 5 + [(b"m", None), (b"", None)]
        assert sorted(await spans(replica)) == before == expected()

    async def again(root: Path) -> None:
        node = StorageNode(root)
        await node.start()
        replica = node.host.replica(GroupId(3, 1))
        assert isinstance(replica, RangeReplica)
        assert sorted(await spans(replica)) == expected()
        gid = GroupId(3, 1)
        row = node.meta.get(meta_keys.replica_key(gid))
        assert row is not None
        base = Base.from_wire(row["base"])
        known = KnownBase("it", Span(b"", None), base, gid)
        assert check_bases(node.directory.files, [known])[1] == []
        child = KnownBase("child", Span(b"", b"c"), clipped(base, b"", b"c"), gid)
        assert child.base.manifest[0].clip != base.manifest[0].clip
        assert check_bases(node.directory.files, [known, child])[1] == [], "of one file, cut twice"
        base.manifest[0], base.manifest[1] = base.manifest[1], base.manifest[0]
        assert "behind" in check_bases(node.directory.files, [known])[1][0]
        base.manifest.sort(key=lambda info: info.first_seq)
        assert check_bases(node.directory.files, [known])[1] == [], "spans are in any order"
        strange = KnownBase("it", Span(b"", b"m"), base, gid)
        assert "for keys of other ranges" in check_bases(node.directory.files, [strange])[1][0]
        node.stop()

    on_node(tmp_path, test)
    asyncio.run(again(tmp_path))
