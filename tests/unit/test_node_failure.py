"""What no part of a node handles ends it, and is not passed over in silence."""

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from storage_node import StorageNode, descriptor, numbered_batch

from lognode.client.protocol.errors import Fenced, Unavailable
from lognode.client.protocol.invariants import InvariantError
from lognode.node import daemon
from lognode.node.config import Config
from lognode.node.daemon import Node
from lognode.node.directory.disk_room import DiskRoom
from lognode.node.lifecycle.duty_runner import DutyRunner
from lognode.node.links import peers
from lognode.node.links.confirmations import Confirmations
from lognode.node.links.peers import PeerLinks
from lognode.node.links.pings import Pings
from lognode.node.metrics import Metrics
from lognode.node.runtime.surroundings import Surroundings
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Operation
from lognode.raft.types import GroupId, RaftOptions
from lognode.statemachine.range_state import Base


def test_L4_a_round_that_cannot_be_made_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop logged it; the appends of the round were never answered."""

    async def main() -> None:
        node = StorageNode(tmp_path)
        await node.start()
        try:
            replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
            assert replica is not None
            await node.leading(replica)
            broken = RuntimeError("a bug")

            def propose_gathered() -> None:
                raise broken

            monkeypatch.setattr(replica, "propose_gathered", propose_gathered)
            replica.append(numbered_batch(1, [b"a"]))
            async with asyncio.timeout(10):
                while node.failure is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            assert node.failure is broken
        finally:
            node.stop()

    asyncio.run(main())


@pytest.mark.parametrize("error", [RuntimeError("a bug"), Unavailable("later"), OSError("later")])
def test_L4_a_bug_in_a_duty_ends_the_node_and_what_may_pass_does_not(
    tmp_path: Path, error: Exception
) -> None:
    """The duty was begun again each half second, and failed again, in the log alone."""

    async def main() -> None:
        class Broken:
            builds_at_once = True

            def __getattr__(self, name: str) -> Any:
                tried.append(name)
                raise error

        tried: list[str] = []
        node = StorageNode(tmp_path)
        await node.start()
        try:
            replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
            assert replica is not None
            await node.leading(replica)
            replica.propose_seal(5)
            async with asyncio.timeout(10):
                while not replica.is_sealed:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            metadata = Metadata()
            metadata.operations[5] = Operation(5, "repair", ((1, 1),), (), "SEALING")
            unused: Any = None
            flusher: Any = Broken()
            view: Any = SimpleNamespace(metadata=metadata)
            broken: list[BaseException] = []
            duties = DutyRunner(
                node_id=1, host=node.host, view=view, flusher=flusher, fetcher=unused,
                sync=node.files, report=lambda _: asyncio.sleep(0), room=DiskRoom(1, 0),
                on_broken=broken.append,
            )  # fmt: skip
            running = asyncio.ensure_future(duties.run())
            async with asyncio.timeout(10):
                while len(tried) < 2:
                    duties.wake()
                    await asyncio.sleep(0.01)
            running.cancel()
            assert set(tried) == {"flush"}
            assert broken[:1] == ([error] if isinstance(error, RuntimeError) else [])
        finally:
            node.stop()

    asyncio.run(main())


def test_L4_pings_that_cannot_be_sent_end_the_node() -> None:
    """The timer was not set again: this node was missing for all others, and knew nothing."""

    async def main() -> None:
        broken: list[BaseException] = []

        def send() -> None:
            raise error

        error = RuntimeError("a bug")
        pings = Pings(
            boot=1, options=RaftOptions(), rng=random.Random(1), replica=lambda _: None, send=send,
            metrics=Metrics(), on_broken=broken.append,
        )  # fmt: skip
        pings.start()
        await asyncio.sleep(0)
        assert broken == [error]

    asyncio.run(main())


def test_L4_rounds_of_reads_that_cannot_be_sent_end_the_node() -> None:
    """Every linearizable read waited for an answer to a question that nobody was asked."""

    async def main() -> None:
        unused: Any = None  # which fails as soon as it is used
        broken: list[BaseException] = []
        confirmations = Confirmations(
            links=unused, replica=lambda _: None, options=RaftOptions(), on_broken=broken.append
        )
        peer: Any = SimpleNamespace(
            gid=GroupId(1, 1), fingerprint=b"f", read_peers=lambda *, first: [2],
            read_question=lambda: (1, 1),
        )  # fmt: skip
        confirmations.connected(2, 7)
        confirmations.ask(peer)
        async with asyncio.timeout(10):
            while not broken:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        confirmations.stop()

    asyncio.run(main())


def test_L4_the_end_of_a_round_that_cannot_be_told_ends_the_node(tmp_path: Path) -> None:
    """A caller that waited for the round waited for ever."""

    async def main() -> None:
        node = StorageNode(tmp_path)
        await node.start()
        try:
            error = RuntimeError("a bug")

            def synced(gids: object) -> None:
                raise error

            node.rounds._on_synced = synced
            beginning = asyncio.ensure_future(
                node.host.create_range(descriptor(1), Base(), campaign=True)
            )
            async with asyncio.timeout(10):
                while node.failure is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            assert node.failure is error
            beginning.cancel()
        finally:
            node.stop()

    asyncio.run(main())


def peer_links(who: Any, broken: list[BaseException], metrics: Metrics) -> PeerLinks:
    unused: Any = None
    return PeerLinks(
        who=who, secret=None, tls=None, resolve=str, on_up=unused, on_down=unused, on_full=unused,
        on_room=unused, on_queued=lambda: None, on_broken=broken.append, rng=random.Random(1),
        boot=(1, 1), clock_ms=lambda: 0, check_nodes=lambda _: None, ping_to=lambda _: [],
        metrics=metrics,
    )  # fmt: skip


def test_L4_a_link_that_meets_a_broken_invariant_ends_the_node() -> None:
    async def main() -> None:
        def who() -> tuple[str, int, int]:
            raise error

        error = InvariantError("a bug")
        broken: list[BaseException] = []
        links = peer_links(who, broken, Metrics())
        links.set_peers({2: "localhost:1"})
        async with asyncio.timeout(10):
            while not broken:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert broken == [error]
        links.stop()

    asyncio.run(main())


def test_L4_a_link_that_cannot_be_dialled_is_tried_again_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An address is what a peer has registered, and a hello's answer what its listener says: by
    an empty label, or by an error whose fields were none, every node of a cluster ended."""
    monkeypatch.setattr(peers, "_RETRY_UNUSABLE_S", 0.001)

    async def main() -> None:
        def who() -> tuple[str, int, int]:
            tried.append(1)
            if len(tried) > 5:
                raise RuntimeError("a bug")
            return "c", 1, 1

        tried: list[int] = []
        broken: list[BaseException] = []
        metrics = Metrics()
        links = peer_links(who, broken, metrics)
        links.set_peers({2: "a..b:4600"})
        async with asyncio.timeout(10):
            while len(tried) < 10:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert links.connection(2) is None
        with pytest.raises(RuntimeError):
            await links.dial(2)
        assert not broken
        assert metrics.unusable_records.labels("address")._value.get() == 5.0
        links.stop()

    caplog.set_level("ERROR")
    asyncio.run(main())
    told = [(record.levelname, record.message.partition(":")[0]) for record in caplog.records]
    assert told == [
        ("ERROR", "the address of a peer cannot be dialled"),
        ("ERROR", "dialling a peer failed because of a bug"),
    ], "one line a reason, however often it is tried"


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyError("a bug"), [1]), (InvariantError("a bug"), [1]), (Fenced("by another"), [])],
)
def test_a_part_that_meets_a_bug_ends_the_node_at_once_and_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    code: list[int],
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(Surroundings, "end", lambda _, code: codes.append(code))

    async def main() -> None:
        async def part() -> None:
            raise error

        node = Node(Config(data=tmp_path))
        node.parts.begin(part())
        await node.shutdown.asked()

    asyncio.run(main())
    assert codes == code
    if code:
        (record,) = caplog.records
        assert "node stops at once" in record.message
        assert "this is a bug" in record.message


@pytest.mark.parametrize("error", [InvariantError("a bug"), ConnectionError("a peer")])
def test_a_broken_invariant_that_nobody_waits_for_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(Surroundings, "end", lambda _, code: codes.append(code))
    monkeypatch.setattr(daemon, "LmdbMeta", _stop_here)

    async def main() -> None:
        node = Node(Config(data=tmp_path))
        with pytest.raises(_StopHere):
            await node._start()

        def broken() -> None:
            raise error

        asyncio.get_running_loop().call_soon(broken)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert codes == ([1] if isinstance(error, InvariantError) else [])


class _StopHere(Exception):
    """The start goes no further."""


def _stop_here(path: Path) -> None:
    raise _StopHere
