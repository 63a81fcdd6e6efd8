"""What a peer is fetching stays: files, and the log behind them (x2.18)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.errors import Overloaded
from lognode.node.lifecycle import base_server
from lognode.node.lifecycle.base_server import BaseServer
from lognode.node.metrics import Metrics
from lognode.node.replicas.log_pins import LogPins
from lognode.node.replicas.pinned_files import PinnedFiles
from lognode.node.runtime.rate import TokenBucket
from lognode.raft.types import GroupId
from lognode.statemachine.range_state import Base
from lognode.statemachine.segment_writer import SegmentInfo

GID = GroupId(1, 1)
LEASE = ("lease", 2, GID)
ASKED = {"range": 1, "generation": 1}
PIECE = {**ASKED, "id": "abc", "offset": 0, "bytes": 100}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_lets_bytes_through_at_its_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(1_000_000, clock)
    assert bucket.piece_bytes == 250_000
    assert [bucket.reserve(500_000) for _ in range(3)] == [0.0, 0.5, 1.0]
    bucket.give_back(500_000)
    clock.now = 1.25  # what was not used in the meantime is not saved up
    assert bucket.reserve(500_000) == 0.0
    assert bucket.reserve(1) == 0.5
    free = TokenBucket(0, clock)
    assert free.piece_bytes == limits.base_chunk_bytes
    assert {free.reserve(1 << 40) for _ in range(3)} == {0.0}


def run(root: Path, test: Callable[[BaseServer, Any], Awaitable[None]], rate: int = 0) -> None:
    """A node with one replica, whose base is of two files."""

    async def main() -> None:
        for name in ("abc", "def"):
            (root / name).write_bytes(b"segment")
        files = [SegmentInfo(name, 7, 1, 1, 2, b"a", b"a", 1, 1) for name in ("abc", "def")]
        replica = SimpleNamespace(
            state=SimpleNamespace(durable_base=Base(40, 3, files), memtable_bytes=7),
            log_pins=LogPins(),
        )
        host: Any = SimpleNamespace(
            pinned=PinnedFiles(), replica=lambda gid: replica if gid == GID else None,
            store=SimpleNamespace(
                bytes_of=lambda name, offset, count: (root / name).read_bytes()[offset:][:count],
                is_suspended=lambda name: False, run_elsewhere=None,
            ),
        )  # fmt: skip
        bucket = TokenBucket(rate, asyncio.get_running_loop().time)
        await test(BaseServer(host, bucket, lambda gid, name, error: None, Metrics()), host)

    asyncio.run(main())


def test_x2_18_progress_renews_the_lease_on_all_files_and_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later files of a base were let go while the first one, a large one, was on its way."""
    monkeypatch.setattr(base_server, "_LEASE_S", 0.2)

    async def fetch_slowly(server: BaseServer, host: Any) -> None:
        loop = asyncio.get_running_loop()
        replica = host.replica(GID)
        await server.describe(2, ASKED)
        begun = loop.time()
        while loop.time() - begun < 0.5:
            assert await server.piece(2, PIECE) == {"data": b"segment"}
            await asyncio.sleep(0.05)
            assert list(host.pinned.content_ids()) == ["abc", "def"], (
                f"gone after {loop.time() - begun} s"
            )
            assert replica.log_pins.indexes() == [40]
        for _ in range(200):
            if not host.pinned:
                break
            await asyncio.sleep(0.01)
        assert not host.pinned
        assert not replica.log_pins.indexes()
        assert await server.piece(2, PIECE) == {"data": b"segment"}, "while it is still there"

    run(tmp_path, fetch_slowly)


def test_a_peer_is_not_kept_waiting_but_told_when_to_come_back(tmp_path: Path) -> None:
    async def test(server: BaseServer, host: Any) -> None:
        async with asyncio.timeout(2):
            await server.piece(2, PIECE)  # 100 bytes at 10 a second
            with pytest.raises(Overloaded) as caught:
                await server.piece(3, PIECE)
        assert 9 < caught.value.fields["retry_after"] <= 10

    run(tmp_path, test, rate=10)
