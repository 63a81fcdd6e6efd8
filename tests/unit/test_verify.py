"""`lognode verify`: every kind of damage is found and named, and no byte is changed."""

import asyncio
import contextlib
import hashlib
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import lmdb
import msgpack
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from storage_node import StorageNode, descriptor, numbered_batch

from lognode.node import main
from lognode.node.directory import meta_keys
from lognode.node.directory.data_directory import DataDirectory, Identity, identity_row
from lognode.node.verify.verify import verify
from lognode.raft import wal_format
from lognode.raft.types import GroupId
from lognode.raft.wal_scan import file_number
from lognode.statemachine.range_state import Base
from lognode.statemachine.segment_writer import SegmentInfo


async def fill(root: Path) -> None:
    """Two ranges with segments and a log, a third that only voted, files used again."""
    node = StorageNode(root)
    await node.start()
    identity = Identity("c" * 32, 1, 7, 3)
    node.meta.commit({**identity_row(identity), meta_keys.CLEAN: True})
    number = 1
    for range_id in (1, 2, 3):
        replica = await node.host.create_range(descriptor(range_id), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        for step in range(0 if range_id == 3 else 40):
            reply = await replica.append(numbered_batch(number, [b"a", b"b", b"c"], filler=300))
            assert reply["status"] == "ok"
            number += 3
            if step in (15, 30):
                await node.flusher.flush(replica)
                await node.reclaim()
    await node.rounds.durable()
    node.stop()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verify") / "data"
    asyncio.run(fill(root))
    return root


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Path:
    """A directory of one's own to damage."""
    return Path(shutil.copytree(filled, tmp_path / "data"))


def state_of(root: Path) -> dict[str, Any]:
    """Everything that could have changed: names, bytes, sizes, times of change."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        found[str(path)] = (status.st_size, status.st_mtime_ns, status.st_ino, content)
    return found


def failed(root: Path) -> dict[str, str]:
    """The checks that fail, by name, and what they say; nothing may change."""
    before = state_of(root)
    checks = verify(root)
    assert state_of(root) == before
    assert len({check.name for check in checks}) == len(checks) == 8
    return {check.name: check.row()["found"] for check in checks if check.wrong}


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x10]))


def wal_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "wal").iterdir() if file_number(path.name))


def change_row(root: Path, key: str, change: Callable[[Any], Any]) -> None:
    """Rewrite a row with a checksum that holds."""
    with (
        contextlib.closing(
            lmdb.open(str(root / "meta.mdb"), subdir=False, lock=False, lib_version=0)
        ) as environment,
        environment.begin(write=True) as transaction,
    ):
        data = transaction.get(key.encode())
        value = None if data is None else msgpack.unpackb(data[4:], strict_map_key=False)
        packed = msgpack.packb(change(value))
        checksum = struct.pack(">I", google_crc32c.value(key.encode() + packed))
        transaction.put(key.encode(), checksum + packed)


def test_a_sound_directory_passes_every_check(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failed(copy) == {}
    assert main.main(["verify", str(copy)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert all(line.startswith("PASS\t") for line in lines)
    assert main.main(["verify", str(copy), "--format", "json"]) == 0
    checks = {check["check"]: check["found"] for check in json.loads(capsys.readouterr().out)}
    assert "3 replicas" in checks["replicas"]
    assert "4 segments" in checks["segments"]
    assert "node 1 of cluster cccc" in checks["identity"]
    assert "stopped in order" in checks["identity"]


def test_a_running_node_refuses(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = DataDirectory(copy)
    directory.open()
    try:
        assert main.main(["verify", str(copy)]) == 1
        said = capsys.readouterr().err
        assert f"process {os.getpid()} uses data directory" in said
    finally:
        directory.close()
    assert failed(copy) == {}


@pytest.mark.parametrize("what", ["nothing", "empty", "file"])
def test_a_foreign_directory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    root = tmp_path / "x"
    if what == "empty":
        root.mkdir()
    elif what == "file":
        root.write_bytes(b"")
    assert main.main(["verify", str(root)]) == 1
    assert "is not the data directory of a node" in capsys.readouterr().err
    assert main.main(["verify"]) == 2


# Each kind of damage.


def hit_wal_round(root: Path) -> None:
    flip(wal_files(root)[0], wal_format.HEADER_BYTES + 40)


def hit_wal_header(root: Path) -> None:
    flip(wal_files(root)[0], 20)


def lose_wal_middle(root: Path) -> None:
    wal_files(root)[1].unlink()


def lose_wal_newest(root: Path) -> None:
    wal_files(root)[-1].unlink()


def lose_wal(root: Path) -> None:
    for path in wal_files(root):
        path.unlink()


def cut_wal(root: Path) -> None:
    os.truncate(wal_files(root)[-1], wal_format.HEADER_BYTES + 10)


def lose_segment(root: Path) -> None:
    next(iter((root / "files").iterdir())).unlink()


def cut_segment(root: Path) -> None:
    path = next(iter((root / "files").iterdir()))
    os.truncate(path, path.stat().st_size - 4096)


def hit_segment(root: Path) -> None:
    flip(next(iter((root / "files").iterdir())), 9000)


def hit_meta_row(root: Path) -> None:
    path = root / "meta.mdb"
    flip(path, _row_at(path))


def _row_at(path: Path) -> int:
    """A byte of the identity row's value, in every copy that the file holds."""
    data = path.read_bytes()
    places = [at for at in range(len(data)) if data.startswith(b"\xa7cluster", at)]
    for at in places[1:]:
        flip(path, at + 12)
    return places[0] + 12


def lose_meta(root: Path) -> None:
    (root / "meta.mdb").unlink()


def cut_meta(root: Path) -> None:
    os.truncate(root / "meta.mdb", 4096)


def spoil_meta(root: Path) -> None:
    path = root / "meta.mdb"
    path.write_bytes(random.Random(3).randbytes(path.stat().st_size))


def started_without_created(root: Path) -> None:
    def add(_: Any) -> Any:
        return meta_keys.replica_row(descriptor(9), Base())

    change_row(root, meta_keys.replica_key(GroupId(9, 1)), add)
    change_row(root, meta_keys.mark_key(9), lambda _: 1)


def without_mark(root: Path) -> None:
    change_row(root, meta_keys.mark_key(1), lambda _: 0)


def applied_beyond_log(root: Path) -> None:
    def raise_applied(row: Any) -> Any:
        row["base"]["applied"][0] += 10_000
        return row

    change_row(root, meta_keys.replica_key(GroupId(1, 1)), raise_applied)


def applied_another_term(root: Path) -> None:
    def raise_term(row: Any) -> Any:
        row["base"]["applied"][1] += 1
        return row

    change_row(root, meta_keys.replica_key(GroupId(1, 1)), raise_term)


def applied_below_log(root: Path) -> None:
    def lower_applied(row: Any) -> Any:
        row["base"]["applied"][0] = 1
        return row

    change_row(root, meta_keys.replica_key(GroupId(1, 1)), lower_applied)


def known_damage(root: Path) -> None:
    change_row(
        root, meta_keys.replica_key(GroupId(1, 1)), lambda row: {**row, "damaged": "a checksum"}
    )


def row_of_another_shape(root: Path) -> None:
    change_row(root, meta_keys.replica_key(GroupId(1, 1)), lambda _: [1, 2])


def refused(root: Path) -> None:
    change_row(root, meta_keys.REFUSED, lambda _: "a copy of it was seen")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "check", "says"),
    [
        (hit_wal_round, "wal", "the file is damaged at byte"),
        (hit_wal_header, "wal", "the header of the file is damaged"),
        (lose_wal_middle, "wal", "is missing"),
        (lose_wal_newest, "wal", "is missing"),
        (lose_wal, "replicas", "range 1 generation 1: its log is not in the WAL"),
        (cut_wal, "wal", "is cut at byte"),
        (lose_segment, "segments", "is missing"),
        (cut_segment, "segments", "bytes of"),
        (hit_segment, "segments", "is damaged: its SHA-256 is"),
        (hit_meta_row, "meta", "meta row identity has a wrong checksum"),
        (lose_meta, "meta", "the file is missing"),
        (cut_meta, "meta", "meta.mdb: "),
        (spoil_meta, "meta", "meta.mdb: "),
        (started_without_created, "replicas", "range 9 generation 1: its log is not in the WAL"),
        (without_mark, "replicas", "meta does not say that it was started"),
        (applied_beyond_log, "replicas", "range 1 generation 1: its log ends at entry"),
        (applied_another_term, "replicas", "meta applied that entry of term"),
        (applied_below_log, "replicas", "its log begins after"),
        (known_damage, "replicas", "known as damaged: a checksum"),
        (row_of_another_shape, "meta", "is not valid"),
        (refused, "identity", "the cluster refuses this directory: a copy of it was seen"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_S12_each_kind_of_damage_is_found(
    copy: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    check: str,
    says: str,
) -> None:
    damage(copy)
    found = failed(copy)
    assert says in found.get(check, ""), found
    assert main.main(["verify", str(copy)]) == 3
    (line,) = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith(f"FAIL\t{check}\t")
    ]
    assert len(line.split("\t")) == 4
    assert len(line.split("\t")[3]) > 10, "no repair is named"


# Rows whose checksum holds, and which cannot be.


def of_range(key: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    """Change the stored state of a range."""

    def damage(root: Path) -> None:
        def changed(row: Any) -> Any:
            change(row["base"])
            return row

        change_row(root, key, changed)

    return damage


def swap_segments(base: Any) -> None:
    base["manifest"].reverse()


def overlap_segments(base: Any) -> None:
    base["manifest"][0][4] += 1


def empty_segment(base: Any) -> None:
    base["manifest"][0][2] = 0


def swap_keys(base: Any) -> None:
    base["manifest"][0][5], base["manifest"][0][6] = b"z", b"a"


def swap_timestamps(base: Any) -> None:
    base["manifest"][0][7] += 1 << 40


def lower_next_seq(base: Any) -> None:
    base["tables"]["next_seq"] = 2


def lower_last_timestamp(base: Any) -> None:
    base["tables"]["last_timestamp_ms"] = 1


def strange_producers(base: Any) -> None:
    base["tables"]["producers"] = 7


def strange_next_seq(base: Any) -> None:
    base["tables"]["next_seq"] = "many"


ROW = meta_keys.replica_key(GroupId(1, 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (swap_segments, "from seq 1 on, behind"),
        (overlap_segments, "behind"),
        (empty_segment, "0 entries with seqs from"),
        (swap_keys, "a last key below its first key"),
        (swap_timestamps, "a last timestamp below its first timestamp"),
        (lower_next_seq, "the next seq is 2, but a segment ends at"),
        (lower_last_timestamp, "the last timestamp is 1, but a segment has"),
        (strange_producers, "the tables cannot be read"),
        (strange_next_seq, "the next seq and last timestamp are ('many'"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_S12_a_state_that_no_replica_could_have_is_found(
    copy: Path, change: Callable[[Any], None], says: str
) -> None:
    of_range(ROW, change)(copy)
    told = failed(copy).get("states", "")
    assert "range 1 generation 1: " in told
    assert says in told


def stored(root: Path, key: str) -> Any:
    """A row as it is."""
    kept: list[Any] = []

    def keep(row: Any) -> Any:
        kept.append(row)
        return row

    change_row(root, key, keep)
    return kept[0]


def store(root: Path, key: str, row: Any) -> None:
    change_row(root, key, lambda _: row)


@pytest.mark.parametrize("field", ["min_timestamp_ms", "max_timestamp_ms", "max_key"])
def test_S12_a_manifest_that_its_file_contradicts_is_found(copy: Path, field: str) -> None:
    def change(base: Any) -> None:
        at = SegmentInfo._fields.index(field)
        base["manifest"][0][at] += b"z" if field == "max_key" else -1

    of_range(ROW, change)(copy)
    assert "does not match its manifest" in failed(copy)["segments"]


def test_S12_two_manifests_that_contradict_each_other_are_found(copy: Path) -> None:
    """What is prepared for a next generation names the files of the one before."""
    prepared = {"range": 1, "generation": 1, "base": stored(copy, ROW)["base"]}
    store(copy, meta_keys.prepared_key(5, 1), prepared)
    assert failed(copy) == {}
    prepared["base"]["manifest"][0][1] += 1
    store(copy, meta_keys.prepared_key(5, 1), prepared)
    told = "another manifest has other values of segment"
    assert told in failed(copy)["states"]


@pytest.mark.parametrize(
    "key", [meta_keys.IMAGE, meta_keys.sound_key("abc"), meta_keys.prepared_key(7, 1)]
)
def test_S12_a_row_of_another_shape_is_found_whichever_it_is(copy: Path, key: str) -> None:
    change_row(copy, key, lambda _: [1, 2])
    assert f"meta row {key} is not valid" in failed(copy)["meta"]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key in it, so that what is there can be replaced."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(items):
        yield value, key
        if isinstance(each, dict | list):
            yield from _places(each)


@pytest.mark.slow
def test_S12_any_row_ends_with_a_report(copy: Path) -> None:
    """Rows with right checksums and wrong content: said, and never an error of Python's."""
    rng = random.Random(11)
    strange: list[Any] = [None, -1, 0, 1 << 63, "x", b"x", [], {}, [1, 2], {"a": 1}, True, 1.5]
    for key in (ROW, meta_keys.mark_key(1), meta_keys.CLEAN, "identity"):
        row = stored(copy, key)
        for _ in range(12 if key == ROW else 2):
            changed = msgpack.unpackb(msgpack.packb([row]), strict_map_key=False)
            container, at = rng.choice(list(_places(changed)))
            container[at] = rng.choice(strange)
            store(copy, key, changed[0])
            checks = [check.row() for check in verify(copy)]
            assert len(checks) == 8, changed
            assert all(len(check["found"]) < 4000 for check in checks), changed
        store(copy, key, row)
    assert failed(copy) == {}


# What passes although a start has something to do.


def test_states_that_a_start_repairs_pass_the_check(copy: Path) -> None:
    newest = wal_files(copy)[-1]
    with open(newest, "r+b") as file:  # a torn tail: a header of a round, and no more
        data = newest.read_bytes()
        header = wal_format.decode_header(data)
        assert header is not None
        end, round_ = wal_format.HEADER_BYTES, header.first_round
        while (head := wal_format.decode_head(data, end, header.signature)) is not None:
            end, round_ = head.end, head.round + 1
        parts = wal_format.encode_batch(header.signature, round_, round_ - 1, [bytes(400)])
        file.seek(end)
        file.write(parts[0] + b"torn")
    (copy / "wal" / "spare-0000000099").write_bytes(b"half made")
    (copy / "files" / f"{'0' * 64}.seg").write_bytes(b"of a flush that did not end")
    (copy / "files" / "notes.txt").write_bytes(b"")
    (copy / "tmp" / "build-7").write_bytes(b"")
    assert failed(copy) == {}
    found = {check.name: check.found for check in verify(copy)}
    assert "the next start cuts a round that was never synced" in found["wal"]
    assert "1 that no replica uses" in found["segments"]


# Garbage.


def test_S12_strange_things_in_the_place_of_files(copy: Path) -> None:
    for path in (copy / "files").iterdir():
        path.unlink()
        path.mkdir()
    os.mkfifo(copy / "wal" / "wal-0000000777")
    (copy / "wal" / "wal-3").write_bytes(b"")
    (copy / "wal" / "wal-٣").write_bytes(b"")
    (copy / "wal" / "wal-0000000778").mkdir()
    found = failed(copy)
    assert set(found) == {"segments"}
    shutil.rmtree(copy / "wal")
    (copy / "wal").write_bytes(b"")
    (copy / "meta.mdb").unlink()
    os.mkfifo(copy / "meta.mdb")
    assert set(failed(copy)) >= {"layout", "meta", "wal", "replicas"}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("scratch")
    yield root
    shutil.rmtree(root)


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(seed=st.integers(0, 1 << 32))
def test_S12_any_content_of_the_files_ends_with_a_report(
    filled: Path, scratch: Path, seed: int
) -> None:
    rng = random.Random(seed)
    root = scratch / "data"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(filled, root)
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != "lock")
    hit = []
    for path in rng.sample(files, rng.randint(1, 3)):
        was = path.read_bytes()
        data = bytearray(was)
        how = rng.choice(["flip", "zeros", "noise", "cut", "whole", "grow"])
        at = rng.randrange(len(data))
        if how == "flip":
            data[at] ^= 1 << rng.randrange(8)
        elif how == "zeros":
            data[at : at + 4096] = bytes(len(data[at : at + 4096]))
        elif how == "noise":
            data[at : at + 512] = rng.randbytes(len(data[at : at + 512]))
        elif how == "cut":
            del data[at:]
        elif how == "whole":
            data[:] = rng.randbytes(len(data))
        else:
            data += rng.randbytes(rng.randrange(1, 5000))
        path.write_bytes(data)
        if data != was:  # zeros may hit zeros
            hit.append(f"{how} {path.name} at {at}")
    note("; ".join(hit))
    before = state_of(root)
    checks = [check.row() for check in verify(root)]
    assert state_of(root) == before
    for check in checks:
        assert check["result"] in ("PASS", "FAIL")
        assert len(check["found"]) < 4000
    if any(".seg" in what for what in hit):
        # Not by name where meta is hit as well: then nobody names the segment.
        assert "FAIL" in [check["result"] for check in checks], hit
