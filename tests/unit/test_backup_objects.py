"""Objects of backups: where they end, and how they are read ahead."""

import asyncio
import copy
import os
import threading
from collections.abc import Iterator

import pytest

from lognode.client.backup.ahead import AHEAD, ReadAhead
from lognode.client.backup.manifest import LogBackup, Manifest, Object, Part
from lognode.client.backup.pace import Pace
from lognode.client.backup.pieces import Cutter, pack, sum_of
from lognode.client.backup.sealing import CONTENT_BYTES_MAX, Sealing
from lognode.client.backup.store import Store, path_of
from lognode.client.backup.verify import verify
from lognode.client.objects.store import Listed, ObjectStore
from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData
from lognode.client.protocol.types import Entry


def test_an_object_ends_in_time_though_its_entries_are_mostly_headers() -> None:
    """Headers did not count: an object could be larger than a restore takes."""
    headers = {b"h": os.urandom(limits.header_bytes_max - 1)}
    cutter = Cutter()
    for seq in range(20_000):
        if Cutter().add(Entry(b"key", seq, 1, None, b"")):
            continue  # an object may end at this seq however small it is
        if cutter.add(Entry(b"key", seq, 1, headers, b"")):
            assert len(pack(cutter.taken())) < CONTENT_BYTES_MAX / 8
            return
    raise AssertionError("no object ended")


class Counting(ObjectStore):
    """A store in memory whose reads wait until the test lets them end."""

    place = "memory"

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.begun: list[str] = []
        self.gate = threading.Semaphore(0)
        self.full = threading.Event()
        self.under_way = self.most = 0
        self._lock = threading.Lock()

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        self.contents[name] = content
        return True

    def get(self, name: str, bytes_max: int) -> bytes | None:
        with self._lock:
            self.begun.append(name)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            if self.under_way == AHEAD:
                self.full.set()
        assert self.gate.acquire(timeout=20)
        with self._lock:
            self.under_way -= 1
        return self.contents.get(name)

    def get_range(self, name: str, begin: int, end: int) -> bytes | None:
        raise NotImplementedError

    def objects(self, folder: str = "") -> Iterator[Listed]:
        return iter(())

    def delete(self, name: str) -> None:
        del self.contents[name]


def test_objects_are_read_ahead_in_order_and_not_too_many() -> None:
    counting = Counting()
    store = Store(counting, Sealing())
    contents = [b"content %d" % at for at in range(20)]
    names = [store.put_object(each)[0] for each in contents]
    drawn = iter(names)

    async def run() -> list[bytes]:
        async with ReadAhead(store, drawn) as reads:
            first = asyncio.ensure_future(reads.next())
            assert await asyncio.to_thread(counting.full.wait, 20), "the reads run together"
            assert len(list(copy.copy(drawn))) == len(names) - AHEAD, "no other name was taken"
            for _ in names:
                counting.gate.release()
            found = [await first, *[await reads.next() for _ in names[1:]]]
            return [store.opened_object(*each) for each in zip(names, found, strict=True)]

    assert asyncio.run(run()) == contents
    assert counting.most == AHEAD


def test_reads_that_are_left_end_with_their_reader() -> None:
    counting = Counting()
    store = Store(counting, Sealing())
    names = [store.put_object(b"content %d" % at)[0] for at in range(20)]

    async def run() -> None:
        async with ReadAhead(store, names) as reads:
            counting.gate.release()
            await reads.next()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for _ in names:
            counting.gate.release()

    asyncio.run(run())
    assert len(counting.begun) <= AHEAD + 1


def test_a_missing_object_is_named_when_its_turn_comes() -> None:
    counting = Counting()
    counting.gate = threading.Semaphore(10**6)
    store = Store(counting, Sealing())
    names = [store.put_object(b"content %d" % at)[0] for at in range(8)]
    for missing in (names[3], names[4]):
        counting.delete(path_of(missing))

    async def run() -> None:
        async with ReadAhead(store, names) as reads:
            for _ in range(3):
                await reads.next()
            with pytest.raises(CorruptData, match=f"{names[3]} .* the file is missing"):
                await reads.next()

    asyncio.run(run())


def backup(store: Store) -> tuple[Manifest, int]:
    """Two logs of several parts, whose objects are not equal; return the number of entries too."""
    logs, whole, seq = [], 0, 0
    for name in ("one", "two"):
        parts, total, count = [], 0, 0
        for start, end in ((b"", b"g"), (b"g", b"n"), (b"n", None)):
            part = Part(start, end, 0)
            for _ in range(3):
                some = [Entry(start + b"a", seq + at, 1, None, b"v" * at) for at in range(1, 5)]
                seq += len(some)
                part.objects.append(Object(store.put_object(pack(some))[0], len(some), seq))
                part.through_seq, total, count = seq, sum_of(some, total), count + len(some)
            parts.append(part)
        logs.append(LogBackup(name, {}, None, parts, count, total))
        whole += count
    return Manifest("20260101T000000000Z", 1, "cluster", logs), whole


def test_a_verification_reads_ahead_over_parts_and_logs_and_names_the_first_damage() -> None:
    counting = Counting()
    counting.gate = threading.Semaphore(10**6)
    store = Store(counting, Sealing())
    manifest, whole = backup(store)
    names = [
        each.name for log in manifest.logs for part in log.parts for each in part.objects
    ]  # fmt: skip

    def verified() -> int:
        return asyncio.run(verify(store, manifest, Pace(None), lambda *_: None))

    assert verified() == whole
    assert sorted(counting.begun) == sorted(map(path_of, names))
    for at in (13, 7):
        counting.contents[path_of(names[at])] = counting.contents[path_of(names[0])]
        with pytest.raises(CorruptData, match=f"object {names[at]} .* another hash"):
            verified()
