"""The parts of the tier without a node: manifests, names, coverage, local files, the store."""

import asyncio
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tier_model import MemoryObjects

from lognode.client.objects.directory import DirectoryStore
from lognode.client.protocol.errors import (
    CorruptData,
    InvalidArgument,
    LogNotFound,
    NotFound,
    Unavailable,
)
from lognode.node import config
from lognode.node import main as node_main
from lognode.node.metrics import Metrics
from lognode.node.runtime.surroundings import Surroundings
from lognode.node.runtime.workers import Workers
from lognode.node.tier import coverage, local_file, names, node_tier, planning, tier_verbs
from lognode.node.tier.coverage import Needs, Snapshot
from lognode.node.tier.local_file import LocalFile, part_size, parts_of
from lognode.node.tier.manifest import Held, LogFacts, Manifest
from lognode.node.tier.names import Chain, StoredFile
from lognode.node.tier.planning import Own
from lognode.node.tier.restoring import logs_of
from lognode.node.tier.sweeps import Sweep
from lognode.node.tier.tier_progress import TierProgress
from lognode.node.tier.tier_store import TierStore
from lognode.node.tier.uploads import Uploads
from lognode.raft.types import GroupId

IDS = [hashlib.sha256(b"%d" % at).hexdigest() for at in range(9)]
FACTS = LogFacts(3, "orders", {"replicas": 3, "retention_ms": None}, "2f")
CHAIN = Chain(7, 2)
EVERYTHING = (b"", None)


def held(*files: int, chain: Chain = CHAIN, label: int = 1) -> dict[str, Held]:
    return {IDS[at]: Held(at, StoredFile(chain, IDS[at], label).path) for at in files}


def manifest(
    chain: Chain = CHAIN, number: int = 4, span: tuple[bytes, bytes | None] = EVERYTHING,
    files: tuple[int, ...] = (1, 2), base: bytes | None = b"base", **more: Any,
) -> Manifest:  # fmt: skip
    named = tuple(IDS[at] for at in files)
    return Manifest(
        chain, number, more.pop("log", FACTS), span, held(*files, chain=chain), named, (9, 2),
        base, **more,
    )  # fmt: skip


def own(*files: int, index: int = 9, log: LogFacts = FACTS) -> Own:
    return Own(CHAIN, EVERYTHING, log, (index, 2), {IDS[at]: at for at in files}, (Chain(7, 1),))


def test_a_manifest_is_read_as_it_was_written() -> None:
    for each in (manifest(), manifest(base=None, files=()), manifest(span=(b"a", b"b"))):
        assert Manifest.of(each.chain, each.number, each.to_bytes()) == each


def test_a_damaged_manifest_is_never_believed() -> None:
    content = manifest().to_bytes()
    for at in range(len(content)):
        for bad in (content[:at], content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]):
            with pytest.raises(CorruptData, match=r"manifests/7\.2/000000000004 in the"):
                Manifest.of(CHAIN, 4, bad)
    with pytest.raises(CorruptData, match=r"content of manifests/7\.2/000000000004"):
        Manifest.of(CHAIN, 5, content)


@pytest.mark.parametrize(
    "bad",
    [
        replace(manifest(), held={}),
        replace(manifest(), held={IDS[1]: Held(1, "../" + IDS[1]), IDS[2]: held(2)[IDS[2]]}),
        replace(manifest(), held={**held(1), IDS[2]: held(3)[IDS[3]]}),
        replace(manifest(), span=(b"b", b"a")),
        replace(manifest(), log=LogFacts(3, "orders", {}, "no")),
        replace(manifest(), held={**held(1), IDS[2]: Held(-1, held(2)[IDS[2]].path)}),
    ],
)
def test_a_manifest_with_a_sound_hash_is_checked_too(bad: Manifest) -> None:
    with pytest.raises(CorruptData):
        Manifest.of(CHAIN, 4, bad.to_bytes())


def test_names_are_read_as_they_are_written_and_others_are_not() -> None:
    file = StoredFile(CHAIN, IDS[1], 12)
    assert names.manifest_of(names.manifest_name(CHAIN, 4)) == (CHAIN, 4)
    assert names.part_of(file.part(3)) == (file, 3)
    assert names.file_of(file.path) == file
    for name in ("manifests/7.2/4", "manifests/7.2/000000000000", "manifests/07.2/000000000004",
                 f"files/7.2/{IDS[1]}.12", f"files/7.2/{IDS[1]}.0/000001", "x"):  # fmt: skip
        assert names.manifest_of(name) is None
        assert names.part_of(name) is None


@pytest.mark.parametrize(
    ("has", "head", "step"),
    [
        (own(1), None, planning.Begin()),
        (own(1, 2), manifest(), planning.Done()),
        (own(1, 2), manifest(closed=True), planning.Ended()),
        (own(1, 2, 3, index=10), manifest(), planning.Upload(IDS[3], 3)),
        (own(1, index=10), manifest(), planning.Publish()),
        (own(3), manifest(files=(1, 2)), planning.Upload(IDS[3], 3)),  # merged further
        (own(1, 2, 3, index=8), manifest(), planning.Wait()),  # behind
        (own(3, 4, 5), manifest(), planning.Wait()),  # merged less at the same entry
        (own(1, 2, log=replace(FACTS, name="o")), manifest(), planning.Restate()),
        (own(1, index=8, log=replace(FACTS, name="o")), manifest(), planning.Restate()),
        (own(1, 2, index=3), manifest(base=None), planning.Publish()),
        (own(1, 3, index=3), manifest(base=None), planning.Upload(IDS[3], 3)),
    ],
)
def test_the_next_step_of_a_leader(has: Own, head: Manifest | None, step: object) -> None:
    assert planning.next_step(has, head) == step


def test_the_first_manifest_names_only_files_of_closed_parents_that_it_needs() -> None:
    found = planning.first(own(1, 3), [manifest(Chain(7, 1), closed=True)])
    assert (found.number, found.is_whole) == (1, False)
    assert found.held == held(1, chain=Chain(7, 1))


def test_a_file_that_a_head_drops_is_named_by_no_later_manifest() -> None:
    head = planning.based(own(1, index=10), planning.next_of(manifest()), b"new")
    assert head.number == 5
    assert head.held == held(1)
    later = planning.with_file(own(1, 2, 3, index=11), head, IDS[3], held(3, label=5)[IDS[3]])
    assert later.held == held(1) | held(3, label=5)
    assert (later.base, later.applied) == (head.base, head.applied)
    assert planning.next_step(own(1, 2, 3, index=11), later) == planning.Upload(IDS[2], 2)


def test_a_key_belongs_to_the_whole_head_of_the_latest_generation() -> None:
    heads = [
        manifest(Chain(1, 1)), manifest(Chain(1, 2), span=(b"", b"m")),
        manifest(Chain(2, 2), span=(b"m", None), base=None, files=()),
    ]  # fmt: skip
    assert coverage.own_spans(heads) == {
        Chain(1, 1): [(b"m", None)], Chain(1, 2): [(b"", b"m")], Chain(2, 2): [(b"m", None)],
    }  # fmt: skip
    (log,) = coverage.logs(heads)
    assert [(span, head.chain) for span, head in log.pieces] == [
        ((b"", b"m"), Chain(1, 2)), ((b"m", None), Chain(1, 1)),
    ]  # fmt: skip
    assert log.gaps == []
    heads[2] = manifest(Chain(2, 2), span=(b"m", None))
    assert coverage.own_spans(heads)[Chain(1, 1)] == []
    (log,) = coverage.logs(heads[1:2])
    assert log.gaps == [(b"m", None)]


def test_a_covered_manifest_with_a_wrong_clock_does_not_decide_the_policy() -> None:
    """The clock of the parent's leader was days ahead; its manifest stays for the grace time."""
    old = manifest(Chain(7, 1), log=replace(FACTS, policy={"replicas": 1}), written_ms=9_000)
    new = manifest(CHAIN, log=replace(FACTS, policy={"replicas": 5}), written_ms=1_000)
    (log,) = coverage.logs([old, new])
    assert log.newest.log.policy == {"replicas": 5}
    (log,) = coverage.logs([old, replace(new, base=None)])
    assert log.newest.log.policy == {"replicas": 1}, "the parent still has all keys"


def test_a_file_goes_only_below_the_head_or_with_a_covered_chain() -> None:
    old, new = manifest(Chain(7, 1), 3), manifest(CHAIN, 4, files=(1,))
    found = Snapshot({old.chain: [3], new.chain: [2, 4]}, {old.chain: old, new.chain: new})
    needs = Needs(found, lambda log_id: False)
    assert not needs.may_go(StoredFile(CHAIN, IDS[1], 1)), "named"
    assert needs.may_go(StoredFile(CHAIN, IDS[2], 3)), "dropped or left behind"
    assert not needs.may_go(StoredFile(CHAIN, IDS[2], 4)), "an upload under way"
    assert needs.may_go(StoredFile(Chain(7, 1), IDS[2], 3)), "covered"
    assert not needs.may_go(StoredFile(Chain(8, 1), IDS[2], 1)), "the snapshot may be older"
    assert list(needs.manifests_that_may_go(lambda chain: True)) == [
        names.manifest_name(CHAIN, 2)
    ]  # fmt: skip
    assert list(needs.manifests_that_may_go(lambda chain: False)) == [
        names.manifest_name(Chain(7, 1), 3), names.manifest_name(CHAIN, 2),
    ]  # fmt: skip
    gone = Needs(found, lambda log_id: log_id == FACTS.log_id)
    assert gone.may_go(StoredFile(CHAIN, IDS[1], 1)), "the log was deleted"


@pytest.fixture
def segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, LocalFile]]:
    monkeypatch.setattr(local_file, "PART_BYTES", 1_000)
    path = tmp_path / "segment"
    path.write_bytes(bytes(range(256)) * 10)
    content_id = hashlib.sha256(path.read_bytes()).hexdigest()
    file = LocalFile(path, content_id, 2_560)
    yield path, file
    file.close()


def test_a_file_is_read_in_parts_also_after_the_node_deleted_the_file(
    segment: tuple[Path, LocalFile],
) -> None:
    path, file = segment
    whole = path.read_bytes()
    file.check()
    path.unlink()
    assert parts_of(2_560) == 3
    assert [part_size(2_560, at) for at in range(3)] == [1_000, 1_000, 560]
    assert b"".join(map(file.part, range(3))) == whole


def test_a_file_that_rots_before_or_during_the_upload_is_noticed(
    segment: tuple[Path, LocalFile],
) -> None:
    path, file = segment
    file.check()
    with path.open("r+b") as out:
        out.seek(1_500)
        out.write(b"x")
    assert file.part(0)
    with pytest.raises(CorruptData, match="part 1 has changed"):
        file.part(1)
    with pytest.raises(CorruptData, match="its SHA-256 is") as caught:
        file.check()
    assert caught.value.fields["segment"] in str(caught.value)


def test_a_file_is_uploaded_once_and_comes_back(
    segment: tuple[Path, LocalFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lognode.node.tier.tier_store.PART_BYTES", 1_000)
    path, file = segment
    file.check()
    store = TierStore(DirectoryStore(tmp_path / "tier"))
    stored = StoredFile(CHAIN, hashlib.sha256(path.read_bytes()).hexdigest(), 1)
    assert store.missing_parts(stored, 2_560) == [(0, False), (1, False), (2, False)]
    for at in range(3):
        store.put_part(file, stored, at, replace=False)
    assert store.missing_parts(stored, 2_560) == []
    store.fetch(Held(2_560, stored.path), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    torn = tmp_path / "tier" / stored.part(1)
    torn.write_bytes(b"short")
    assert store.missing_parts(stored, 2_560) == [(1, True)]
    with pytest.raises(CorruptData, match=stored.content_id):
        store.fetch(Held(2_560, stored.path), tmp_path / "again")
    store.put_part(file, stored, 1, replace=True)
    store.fetch(Held(2_560, stored.path), tmp_path / "again")
    torn.unlink()
    with pytest.raises(CorruptData, match=r"000001.* is missing"):
        store.fetch(Held(2_560, stored.path), tmp_path / "again")


def test_a_tier_belongs_to_one_cluster_and_begins_in_an_empty_place(tmp_path: Path) -> None:
    store = TierStore(DirectoryStore(tmp_path / "tier"))
    with pytest.raises(NotFound, match="has no tier; nodes with --tier"):
        store.cluster()
    store.begin("c1")
    store.begin("c1")
    assert store.cluster() == "c1"
    with pytest.raises(InvalidArgument, match="tier of cluster c1; this is cluster c2"):
        store.begin("c2")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    with pytest.raises(InvalidArgument, match="has other files and no tier"):
        TierStore(DirectoryStore(tmp_path / "other")).begin("c1")
    told = tmp_path / "tier" / "tier.json"
    told.write_text(json.dumps({"version": 2, "cluster": "c1"}))
    with pytest.raises(InvalidArgument, match="has version 2"):
        store.begin("c1")
    told.write_text("{")
    with pytest.raises(CorruptData, match=r"tier\.json in .* is damaged"):
        store.begin("c1")


def test_a_process_writes_no_manifest_into_another_tier_than_at_its_begin(tmp_path: Path) -> None:
    """A mount goes away and comes back: a manifest is made from the head of the same tier."""
    place, away = tmp_path / "tier", tmp_path / "away"
    store = TierStore(DirectoryStore(place))
    store.begin("c1")
    assert store.publish(manifest())
    place.rename(away)
    place.mkdir()
    following = replace(manifest(), number=manifest().number + 1)
    for call in (lambda: store.begin("c1"), lambda: store.publish(following)):
        with pytest.raises(Unavailable, match="the place has no tier"):
            call()
    assert not list(place.iterdir())
    TierStore(DirectoryStore(place)).begin("c1")
    for call in (lambda: store.begin("c1"), lambda: store.publish(following)):
        with pytest.raises(Unavailable, match="another tier than at the start"):
            call()
    shutil.rmtree(place)
    away.rename(place)
    store.begin("c1")
    assert store.publish(following)


def test_a_store_that_replaces_objects_is_refused() -> None:
    class Replaces(MemoryObjects):
        def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
            return super().put(name, content, replace=True)

    with pytest.raises(InvalidArgument, match="only where there is none"):
        TierStore(Replaces()).begin("c1")
    unsure = MemoryObjects()
    unsure.conditional = False
    with pytest.raises(InvalidArgument, match="only where there is none"):
        TierStore(unsure).begin("c1")


def test_a_damaged_head_is_replaced_by_a_later_manifest_and_stops_sweeps() -> None:
    objects = MemoryObjects()
    store = TierStore(objects)
    store.begin("c1")
    assert store.publish(manifest())
    objects.found[manifest().name] = b"rot"
    head = store.head(CHAIN, own(1, 2))
    assert head is not None
    assert (head.number, head.held, head.is_whole) == (4, {}, False)
    with pytest.raises(CorruptData):
        Sweep(store, 0.0).look(lambda log_id: False)
    with pytest.raises(CorruptData):
        logs_of(store)
    assert store.publish(replace(manifest(), number=5))
    assert [each.newest.number for each in logs_of(store, ["orders"])] == [5]
    with pytest.raises(LogNotFound, match="does not have log 'bills'; the tier has orders"):
        logs_of(store, ["bills"])


def test_a_parent_publishes_nothing_more_once_a_child_has_its_files() -> None:
    """Otherwise a member that wakes up could drop a file, and a sweep remove the file, after the
    child has read which files there are and before its first manifest."""
    store, parent = TierStore(MemoryObjects()), manifest(Chain(7, 1))
    store.publish(parent)
    closing = partial(planning.closing, own(1, 2), parent.chain)
    closed = store.close(parent.chain, own(1, 2), closing)
    assert closed == replace(parent, number=5, closed=True)
    assert not store.publish(planning.based(own(1), planning.next_of(parent), b"later"))
    assert planning.next_step(own(1), store.head(parent.chain, own(1))) == planning.Ended()
    assert store.close(parent.chain, own(1, 2), closing) == closed
    absent = Chain(9, 1)
    empty = store.close(absent, own(1), partial(planning.closing, own(1), absent))
    assert (empty.number, empty.held, empty.closed, empty.is_whole) == (1, {}, True, False)
    assert not store.publish(planning.first(replace(own(1), chain=absent), []))


def test_a_sweep_removes_what_an_old_leader_uploads_after_the_end_of_its_chain() -> None:
    objects = MemoryObjects()
    store = TierStore(objects)
    late = StoredFile(CHAIN, IDS[5], 1)
    objects.put(late.part(0), b"x")
    sweep = Sweep(store, 0.0)
    store.publish(manifest(Chain(8, 3), span=(b"a", b"b")))
    assert sweep.look(lambda log_id: False) == (0, 0)  # the listing may be from before the chain
    named = replace(manifest(Chain(7, 3)), held=held(1, 2))
    store.publish(named)
    for at in (1, 2):
        objects.put(StoredFile(CHAIN, IDS[at], 1).part(0), b"y")
    assert sweep.look(lambda log_id: False) == (1, 1)
    assert late.part(0) not in objects.found


def test_a_sweep_waits_for_the_grace_time() -> None:
    objects, now = MemoryObjects(), [0.0]
    store = TierStore(objects)
    store.publish(manifest())
    part = StoredFile(CHAIN, IDS[5], 2).part(0)
    objects.put(part, b"x")
    sweep = Sweep(store, 60.0, lambda: now[0])
    assert sweep.look(lambda log_id: False) == (0, 0)
    now[0] = 59.0
    assert sweep.look(lambda log_id: False) == (0, 0)
    now[0] = 60.0
    assert sweep.look(lambda log_id: False) == (1, 1)
    assert part not in objects.found
    assert store.head(CHAIN, own(1, 2)) is not None


def test_nothing_waits_of_a_leader_whose_base_is_behind_the_head() -> None:
    """The leader before had flushed more: the status counted a file that nobody uploads, and the
    alert of a tier that is behind could fire."""
    store, progress = TierStore(MemoryObjects()), TierProgress("place", Metrics())
    store.publish(manifest(files=(1, 2)))
    base = SimpleNamespace(
        manifest=[SimpleNamespace(content_id=IDS[3], size=3)], applied_index=5, applied_term=2,
        tables={},
    )  # fmt: skip
    replica = SimpleNamespace(
        gid=GroupId(*CHAIN), leads=True, state=SimpleNamespace(durable_base=base),
        descriptor=SimpleNamespace(
            log_id=3, span=SimpleNamespace(start=b"", end=None), lineage=(), members=(1,)
        ),
    )  # fmt: skip
    policy = SimpleNamespace(to_body=lambda: dict(FACTS.policy))
    record = SimpleNamespace(log_id=3, name="orders", policy=policy, hierarchy=b"/")
    given: Any = {
        "node_id": 1, "cluster": "c1", "host": SimpleNamespace(
            ranges=lambda: (replica,), kept=SimpleNamespace(of=lambda gid: {})
        ),
        "files": None, "store": store, "bytes_per_s": 0, "wall_ms": lambda: 0, "doubt": print,
        "metadata": lambda: SimpleNamespace(logs={3: record}), "progress": progress,
    }  # fmt: skip

    async def run() -> None:
        store.objects.put(names.TIER, b'{"version": 1, "cluster": "c1"}')
        workers = Workers("test", 1)
        uploads = Uploads(**given, workers=workers)
        await uploads._look()
        assert progress.total().files == 1, "the node has not looked yet"
        await asyncio.gather(*uploads._tasks.values())
        for _ in range(2):
            await uploads._look()
            assert progress.total().files == 0
        replica.state.durable_base = SimpleNamespace(**{**vars(base), "applied_index": 30})
        await uploads._look()
        assert progress.total().files == 1, "a later base waits again"
        uploads.stop()

    asyncio.run(run())


def test_progress_counts_what_waits_and_for_how_long() -> None:
    now = [100.0]
    progress = TierProgress("place", Metrics(), lambda: now[0], lambda: 5_000)
    one, two = GroupId(1, 1), GroupId(2, 1)
    progress.waits(one, 2, 30)
    now[0] = 110.0
    progress.waits(one, 3, 40)
    progress.waits(two, 1, 5)
    assert progress.total()[:2] == (4, 45)
    assert progress.waited_s() == 10.0
    progress.failed(Unavailable("the store\nis away"))
    assert progress.row() == {
        "place": "place", "waiting_files": 4, "waiting_bytes": 45, "waiting_s": 10.0,
        "last_success_ms": None, "last_error": "the store is away",
    }  # fmt: skip
    progress.moved_on(one)
    assert progress.waited_s() == 0.0
    progress.succeeded()
    progress.waits(one, 0, 0)
    progress.forget(two)
    assert progress.row() == {
        "place": "place", "waiting_files": 0, "waiting_bytes": 0, "waiting_s": 0.0,
        "last_success_ms": 5_000, "last_error": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tier": "http://h/tier"}, "tier: 'http://h/tier' is not a store"),
        ({"tier": "s3://"}, "is not the name of a bucket"),
        ({"tier": "d/tier", "data": "d"}, "neither may contain the other"),
        ({"tier": "d", "data": "d/data"}, "neither may contain the other"),
        ({"tier_region": "eu"}, "tier_region was given .* and tier is not set"),
        ({"tier": "d", "tier_endpoint": "http://h"}, "tier_endpoint was given .* tier is d;"),
        ({"tier": "s3://b/p", "tier_endpoint": "h"}, "tier: 'h' is not the URL of an endpoint"),
    ],
)
def test_settings_of_a_tier_that_make_no_sense_are_refused(
    flags: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        node_tier.opened(config.load(flags, {}), Surroundings())


def test_a_node_without_a_tier_has_none(tmp_path: Path) -> None:
    assert node_tier.opened(config.load({}, {}), Surroundings()) is None
    found = node_tier.opened(config.load({"tier": str(tmp_path)}, {}), Surroundings())
    assert found is not None
    assert found.place == str(tmp_path)


def test_the_help_of_a_node_names_the_verbs_of_the_tier() -> None:
    told = [(verb.name, verb.help) for verb in tier_verbs.VERBS.values()]
    assert list(node_main._OF_TIER) == told
