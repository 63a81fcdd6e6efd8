"""The parts of `lognode serve-tier`: which ranges are served, and what a snapshot keeps."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flushed_range import FlushedRange
from tier_reads import MIB, CountedObjects
from tier_writes import POLICY, TierWrites

import lognode
from lognode.client.accepting import acceptor
from lognode.client.accepting.listener import Listener
from lognode.client.objects.store import Listed
from lognode.client.protocol.errors import (
    Conflict,
    GenerationMismatch,
    LimitExceeded,
    LognodeError,
    NotFound,
    Unavailable,
)
from lognode.node.main import main as run_program
from lognode.node.serve_tier import snapshot_leases
from lognode.node.serve_tier.following import Following, Served, files_of
from lognode.node.serve_tier.snapshot_leases import Part, SnapshotLeases
from lognode.node.serve_tier.tier_service import FilePlaces, TierService
from lognode.node.serve_tier.tier_status import TierStatus
from lognode.node.tier.chunk_cache import ChunkCache
from lognode.node.tier.manifest import LogFacts
from lognode.node.tier.names import Chain
from lognode.node.tier.tier_files import TierFiles
from lognode.node.tier.tier_store import TierStore
from lognode.statemachine import commands
from lognode.statemachine.segments import SegmentStore

KEYS = [b"%02d" % at for at in range(40)]
EVERY = (b"", None)


class Objects(CountedObjects):
    """A store whose listings may be old: `hides` says what a listing does not show."""

    hides: Callable[[str], bool] = staticmethod(lambda name: False)

    def objects(self, folder: str = "") -> Iterator[Listed]:
        return (each for each in super().objects(folder) if not self.hides(each.name))


HOST = "10.0.0.1"


class Process:
    """The parts of a process, and what the leaders of the cluster write."""

    def __init__(self, root: Path) -> None:
        self.objects = Objects(root / "tier")
        self.writes = TierWrites(self.objects)
        self.made = FlushedRange(root, cache_bytes=MIB)
        self.now = 100.0
        self.leases = SnapshotLeases(lambda: self.now, lambda: 5_000)
        self.held: dict[str, Any] = {}
        self.cache = ChunkCache(root / "chunks", memory_bytes_max=MIB, disk_bytes_max=0)
        self.files = TierFiles(self.objects, self.cache, lambda name: self.held.get(name))
        self.store = SegmentStore(root / "none", elsewhere=self.files.open)

    def flush(self, times: int = 1) -> None:
        for _ in range(times):
            self.made.append(KEYS)
            self.made.flush()

    def news(self, served: Served) -> None:
        self.leases.move_on(served)
        self.held = files_of([*self.leases.ranges(), *served.ranges.values()])

    def looks(self, *between: Callable[[], Any]) -> list[Served]:
        """What a process finds at its looks; `between` two looks the tier changes."""

        async def look() -> list[Served]:
            following = Following(
                TierStore(self.objects), self.store, "c1", period_s=60.0, on_news=self.news,
                clock=lambda: self.now,
            )  # fmt: skip
            await following.begin()
            found = [following.served]
            for change in between:
                await asyncio.to_thread(change)
                self.now += 1
                await following.begin()
                found.append(following.served)
            following.stop()
            return found

        return asyncio.run(look())


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


def ranges(served: Served, name: str = "orders") -> list[tuple[Any, ...]]:
    found = served.logs[name].ranges
    return [(*each.gid, *each.span, each.state.next_seq) for each in found]


def numbers(served: Served) -> list[int]:
    return [each.source[2] for each in served.logs["orders"].ranges]


def test_a_part_of_a_range_has_an_id_of_its_own_until_all_children_have_published(
    process: Process,
) -> None:
    made, writes = process.made, process.writes
    process.flush()
    writes.publish(made, Chain(7, 2), 1)
    left, both = process.looks(
        lambda: writes.publish(made, Chain(8, 3), 1, (b"", b"20")),
        lambda: writes.publish(made, Chain(9, 3), 1, (b"20", None)),
    )[1:]
    (first, second) = ranges(left)
    assert first == (8, 3, b"", b"20", 41)
    assert second[1:] == (2, b"20", None, 41)
    assert second[0] > 1 << 48
    assert ranges(both) == [(8, 3, b"", b"20", 41), (9, 3, b"20", None, 41)]
    again = process.looks()[0]
    assert ranges(again) == ranges(both), "every process gives the same ids"
    assert left.logs["orders"].of_span((b"20", b"21")) == [left.logs["orders"].ranges[1]]
    assert left.logs["orders"].of_span((b"19", None)) == list(left.logs["orders"].ranges)
    assert left.logs["orders"].of_span((b"", b"20")) == [left.logs["orders"].ranges[0]]


def test_an_old_listing_takes_nothing_back(process: Process) -> None:
    made, writes, objects = process.made, process.writes, process.objects
    process.flush()
    writes.publish(made, Chain(7, 2), 1)
    writes.publish(made, Chain(7, 2), 2)
    before = process.now

    def hide(text: str) -> Callable[[], None]:
        return lambda: setattr(objects, "hides", lambda name: text in name)

    first, *old, last = process.looks(
        hide("/000000000002"), hide("manifests/7.2"), hide("manifests/"), hide("nothing")
    )
    assert numbers(first) == [2]
    for served in old:
        assert numbers(served) == [2], "the log of the look before stays"
        assert served.looked_at == before, "an old listing says nothing about the present"
    assert last.looked_at == before + 4


def test_an_old_listing_of_the_parent_does_not_bring_the_parent_back(process: Process) -> None:
    made, writes, objects = process.made, process.writes, process.objects
    process.flush()
    writes.publish(made, Chain(7, 2), 1)
    writes.publish(made, Chain(7, 3), 1)
    first, old = process.looks(
        lambda: setattr(objects, "hides", lambda name: "manifests/7.3" in name)
    )
    assert ranges(first) == ranges(old) == [(7, 3, *EVERY, 41)]


def test_a_deleted_log_goes_and_a_new_log_gets_its_name(process: Process) -> None:
    made, writes, objects = process.made, process.writes, process.objects
    process.flush()
    writes.publish(made, Chain(7, 2), 1)
    writes.publish(made, Chain(5, 1), 1, log=LogFacts(9, "_audit", POLICY))
    first, other, gone = process.looks(
        lambda: writes.publish(made, Chain(8, 1), 1, log=LogFacts(2, "orders", POLICY)),
        lambda: [objects.delete(each.name) for each in list(objects.objects("manifests"))],
    )
    assert list(first.logs) == ["orders"], "logs of the cluster itself are not served"
    assert ranges(first) == [(7, 2, *EVERY, 41)]
    assert ranges(other) == [(8, 1, *EVERY, 41)], "the manifest of the first log is still there"
    assert not gone.logs


def test_a_look_that_fails_changes_nothing(process: Process) -> None:
    made, writes, objects = process.made, process.writes, process.objects
    process.flush()
    writes.publish(made, Chain(7, 2), 1)
    broken = process.objects.get("tier.json", 1_000)
    assert broken is not None
    with pytest.raises(NotFound, match="has no tier"):
        process.looks(lambda: objects.delete("tier.json"))
    objects.put("tier.json", broken.replace(b"c1", b"c2"))
    with pytest.raises(Unavailable, match="another cluster"):
        process.looks()
    objects.put("tier.json", broken, replace=True)
    objects.put("manifests/7.2/000000000002", b"damaged")
    with pytest.raises(LognodeError, match="is damaged"):
        process.looks()


def asked(through: int, *, start: bytes = b"", end: bytes | None = None, **more: Any) -> Any:
    return {"lease": "l", "start_key": start, "end_key": end, "through": through,
            "lease_ms": 10_000, "renew": False, **more}  # fmt: skip


def test_a_lease_is_taken_renewed_released_and_ends(process: Process) -> None:
    leases = process.leases
    process.flush()
    process.writes.publish(process.made, Chain(7, 2), 1, (b"", b"30"))
    (range_,) = process.looks()[0].logs["orders"].ranges
    assert leases.take(range_, asked(40), HOST) == {"end_key": b"30", "expires_ms": 15_000}
    assert leases.take(range_, asked(40, end=b"20"), HOST)["end_key"] == b"20", "a repetition"
    for body, error in (
        (asked(39), Conflict), (asked(40, renew=True, lease="other"), NotFound),
        (asked(41, lease="other"), Unavailable), (asked(40, start=b"30"), GenerationMismatch),
    ):  # fmt: skip
        with pytest.raises(error):
            leases.take(range_, body, HOST)
    assert leases.count == 1
    assert leases.part("l", b"29") == Part((b"", b"30"), 40, range_)
    with pytest.raises(NotFound):
        leases.part("l", b"30")
    process.now += 9.9
    leases.take(range_, asked(40, renew=True), HOST)
    process.now += 9.9
    assert leases.part("l", b"").range is range_
    process.now += 0.2
    with pytest.raises(NotFound):
        leases.part("l", b"")
    with pytest.raises(NotFound):
        range_.state.scan(b"00", limit=1, bytes_max=MIB, as_of="l")
    leases.take(range_, asked(40), HOST)
    leases.release("l")
    leases.release("l")
    assert not leases.count


def test_leases_are_bounded(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_leases, "LEASES_MAX", 3)
    monkeypatch.setattr(snapshot_leases, "LEASES_OF_HOST_MAX", 2)
    process.flush()
    process.writes.publish(process.made, Chain(7, 2), 1)
    (range_,) = process.looks()[0].logs["orders"].ranges
    for name in ("a", "b", "a"):
        process.leases.take(range_, asked(40, lease=name), HOST)
    with pytest.raises(LimitExceeded, match=r"host 10\.0\.0\.1 would have 3 leases; at most 2"):
        process.leases.take(range_, asked(40, lease="c"), HOST)
    process.leases.take(range_, asked(40, lease="c"), "10.0.0.2")
    with pytest.raises(LimitExceeded, match="this process would have 4 leases; at most 3"):
        process.leases.take(range_, asked(40, lease="d"), "10.0.0.2")
    process.leases.release("a")
    process.leases.take(range_, asked(40, lease="d"), HOST)


def read(process: Process, name: str, key: bytes) -> list[int]:
    state = process.leases.part(name, key).range.state
    return list(state.scan(key, limit=99, bytes_max=MIB, as_of=name).seqs)


def test_a_lease_moves_on_to_manifests_that_show_the_same_and_stays_before_a_trim(
    process: Process,
) -> None:
    made, writes, leases = process.made, process.writes, process.leases
    process.flush(2)
    writes.publish(made, Chain(7, 2), 1)
    taken: list[Part] = []

    def take() -> None:
        served = process.looks()[0]
        leases.take(served.logs["orders"].ranges[0], asked(80), HOST)
        taken.append(leases.part("l", b"00"))

    take()
    before = read(process, "l", b"07")
    assert before == [8, 48]

    def merge() -> None:
        process.flush()
        made.merge(0, 2)
        writes.publish(made, Chain(8, 3), 1, (b"", b"20"))
        writes.publish(made, Chain(9, 3), 1, (b"20", None))

    def trim() -> None:
        made.apply(commands.TRIM_KEYS, [[b"07", 100]])
        process.flush()
        made.merge(0, 2)
        writes.publish(made, Chain(8, 3), 2, (b"", b"20"))

    served = process.looks(merge)[-1]
    parts = [leases.part("l", key) for key in (b"00", b"20")]
    assert [part.range.gid for part in parts] == [(8, 3), (9, 3)]
    assert [part.span for part in parts] == [(b"", b"20"), (b"20", None)]
    assert read(process, "l", b"07") == before
    assert read(process, "l", b"27") == [28, 68]
    served = process.looks(trim)[-1]
    assert [each.source[2] for each in served.logs["orders"].ranges] == [2, 1]
    assert leases.part("l", b"07").range.source[2] == 1, "the trim is not in the snapshot"
    assert read(process, "l", b"07") == before
    present = served.logs["orders"].ranges[0].state
    assert list(present.scan(b"07", limit=99, bytes_max=MIB).seqs) == [128]


def test_the_command_refuses_what_makes_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path)
    for words, told in (
        (["--max-stale", "1s"], "give a longer --max-stale"),
        (["--listen", "0.0.0.0:4799"], "Give such an address with --advertise"),
        (["--listen", "0.0.0.0:4799", "--advertise", "h:1"], "does not know its clients"),
        (["--region", "x"], "Leave the flag out"), (["--cache-bytes", "none"], "is not a size"),
        ([], "has no tier"),
    ):  # fmt: skip
        assert run_program(["serve-tier", place, *words]) in (1, 2)
        assert told in " ".join(capsys.readouterr().err.split()), words


async def _listening(process: Process, following: Following) -> Listener:
    places, files = FilePlaces(), process.files
    status = TierStatus(
        following, process.leases, files, place="here", address=lambda: address,
        max_stale_s=100.0, wall_ms=lambda: 0,
    )  # fmt: skip
    service = TierService(
        following, process.leases, files, process.store, status, places,
        address=lambda: address, max_stale_s=100.0, writers="",
    )  # fmt: skip
    listener = await acceptor.serve(service, "127.0.0.1", 0)
    address = f"127.0.0.1:{listener.port}"
    return listener


def test_a_snapshot_is_read_from_old_parts_while_the_log_has_one_range_again(
    process: Process,
) -> None:
    """The lease has moved on to the two ranges of a split. A trim keeps it there, and the ranges
    were merged since."""
    made, writes = process.made, process.writes
    process.flush(2)
    writes.publish(made, Chain(7, 2), 1)

    def split() -> None:
        writes.publish(made, Chain(8, 3), 1, (b"", b"20"))
        writes.publish(made, Chain(9, 3), 1, (b"20", None))

    def merge_and_trim() -> None:
        made.apply(commands.TRIM_KEYS, [[b"07", 100], [b"33", 100]])
        process.flush()
        writes.publish(made, Chain(8, 4), 1)

    async def read() -> None:
        following = Following(
            TierStore(process.objects), process.store, "c1", period_s=60.0,
            on_news=process.news, clock=lambda: process.now,
        )  # fmt: skip
        await following.begin()
        listener = await _listening(process, following)
        async with lognode.AsyncClient(f"127.0.0.1:{listener.port}", timeout=5) as client:
            log = client.log("orders")
            snapshot = await log.snapshot(lease_s=60)

            async def found() -> list[list[Any]]:
                ordered = [
                    entry async for _, columns in snapshot.read_in_order()
                    for entry in columns.entries()
                ]  # fmt: skip
                keys = [entry for key in (b"07", b"33") async for entry in snapshot.read(key)]
                return [sorted([e async for e in snapshot.read()]), sorted(ordered), keys]

            before = await found()
            assert [len(each) for each in before] == [80, 80, 4]
            for change in (split, merge_and_trim):
                await asyncio.to_thread(change)
                await following.begin()
            parts = [process.leases.part(snapshot.vector.lease, key) for key in (b"", b"20")]
            assert [part.range.gid for part in parts] == [(8, 3), (9, 3)]
            assert await found() == before
            seen = client._cluster.log("orders").session._seen
            assert (8, 4) not in seen, "an index of the old ranges is not an index of this range"
            keys = log.keys()
            assert [key async for key in keys] == KEYS
            assert len([entry async for entry in log.scan(b"07")]) == 1, "the trim is seen"
            assert await found() == before
            process.now += 200.0
            with pytest.raises(Unavailable, match="--max-stale"):
                await log.latest(b"07", timeout=0.5)
            with pytest.raises(NotFound):
                await found()
        following.stop()
        await listener.close()

    asyncio.run(read())
