"""Images of the metadata in meta: changed in part, never mixed, and never short of a row."""

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client.protocol.errors import CorruptData
from lognode.node.directory import meta_keys
from lognode.node.directory.image_rows import ImageRows
from lognode.node.metadata import image_pages
from lognode.node.metadata.image_pages import Assembly, Image
from lognode.node.metadata.view import View
from lognode.node.replicas.controller_store import ControllerStore
from lognode.node.runtime.sync_thread import SyncThread
from lognode.partitions import buckets
from lognode.partitions.metadata import Metadata
from lognode.raft.types import GroupId
from lognode.statemachine.meta import LmdbMeta, MemoryMeta


def public(metadata: Metadata) -> dict[str, Any]:
    image = metadata.image()
    return {name: image[name] for name in image if name not in ("named", "producer_ids")}


def loaded(meta: Any) -> Metadata:
    stored = ImageRows(meta_keys.IMAGE_BUCKETS)
    return stored.load(meta.items(stored.prefix), meta.get(meta_keys.IMAGE))


async def image_of(metadata: Metadata, since: int) -> Image:
    assembly, image = Assembly(since), None
    while image is None:
        image = await assembly.add(
            await image_pages.page_of(metadata, since, assembly.after, tables=buckets.PUBLIC)
        )
    return image


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_x3_a_node_acts_on_its_stored_image(seed: int, tmp_path: Path) -> None:
    """Images come late, twice and out of order, as a replica of the controller comes and goes, and
    the process starts again."""
    rng = random.Random(seed)
    controller = Controller().nodes(3)
    sync, meta = SyncThread("files"), LmdbMeta(tmp_path / "meta", map_bytes=16 << 20)

    def new_view() -> View:
        return View(meta, sync, on_change=lambda: None, present=lambda _: True)

    async def run() -> None:
        view = new_view()
        late: list[Image] = []
        for step in range(60):
            name = f"log{rng.randrange(4)}"
            match rng.randrange(4):
                case 0:
                    controller.do("create_log", name=name, ranges=rng.randrange(1, 80))
                case 1:
                    controller.do("delete_log", name=name)
                case 2:
                    controller.do("alter_log", name=name, changes={"retention_ms": step + 1})
                case 3:
                    controller.do("split_range", log=name, at=rng.randbytes(2))
            match rng.randrange(6):
                case 0 | 1 | 2:
                    late.append(await image_of(controller.metadata, view.metadata.version))
                case 3 if late:
                    await view.take(rng.choice(late))
                case 4:
                    # The replica here is somewhat behind, as a follower is.
                    view.follow_replica(buckets.copy(controller.metadata, buckets.ALL))
                case 5:
                    view, late = new_view(), []  # what was on its way is gone
                    view.load()
            if late and rng.random() < 0.7:
                taken = late[-1]
                await asyncio.gather(view.take(taken), view.take(rng.choice(late)))
                assert view.metadata.version >= taken.version
            if meta.get(meta_keys.IMAGE) is not None:
                stored = loaded(meta)
                assert stored.version <= view.metadata.version
                for record in stored.logs.values():
                    stored.check_log(record.log_id)
        await view.take(await image_of(controller.metadata, view.metadata.version))
        if view.metadata.version > loaded(meta).version:  # it had it from the replica
            controller.do("alter_log", name="x", changes={})
            controller.do("register", incarnation=99, boot=1, node=None, zone="", address="h:1",
                          http="", process=1)  # fmt: skip
            await view.take(await image_of(controller.metadata, view.metadata.version))
        assert public(loaded(meta)) == public(view.metadata) == public(controller.metadata)

    try:
        asyncio.run(run())
    finally:
        sync.close()
        meta.close()


def test_the_feature_level_is_noted_with_the_image_that_has_it(tmp_path: Path) -> None:
    """Between the two an earlier version would start on the directory, or find a strange image."""
    commits: list[dict[str, Any]] = []

    class Noting(LmdbMeta):
        def commit(self, puts: Any, deletes: Any = (), prefixes: Any = ()) -> None:
            super().commit(puts, deletes, prefixes)
            commits.append(dict(puts))

    controller = Controller().nodes(3)
    sync, meta = SyncThread("files"), Noting(tmp_path / "meta", map_bytes=16 << 20)

    async def run() -> None:
        view = View(meta, sync, on_change=lambda: None, present=lambda _: True)
        await view.take(await image_of(controller.metadata, 0))
        nodes = [[n.node_id, n.boot, n.process] for n in controller.metadata.nodes.values()]
        controller.do("finalize", level=2, nodes=nodes)
        for name in ("a", "b"):
            controller.do("create_log", name=name)
            await view.take(await image_of(controller.metadata, view.metadata.version))
        assert view.metadata.feature_level == 2
        replica: Any = SimpleNamespace(
            metadata=controller.metadata, descriptor=controller.metadata.controller,
            gid=GroupId(0, 1), stored=ImageRows(meta_keys.controller_buckets(1)), stored_tick=0,
            stopped=False, packed=lambda: (9, 1),
        )  # fmt: skip
        meta.commit({meta_keys.LEVEL: None, meta_keys.REFUSED: None})
        await ControllerStore(meta, sync).checkpoint(replica)

    try:
        asyncio.run(run())
    finally:
        sync.close()
        meta.close()
    noted = [meta_keys.LEVEL in puts for puts in commits]
    assert noted == [False, True, False, True, True], "with the first image that has it, and once"


def stored_image() -> tuple[MemoryMeta, Metadata]:
    controller = Controller().nodes(3)
    controller.do("create_log", name="a", ranges=100)
    meta, stored = MemoryMeta(), ImageRows(meta_keys.IMAGE_BUCKETS)
    metadata = controller.metadata
    packed = {b: buckets.pack(metadata, b) for _, b in metadata.changes.after(0)}
    head, puts = stored.all(metadata.version, packed)
    meta.commit({**puts, meta_keys.IMAGE: head})
    return meta, metadata


def test_S12_a_row_that_is_missing_is_found() -> None:
    """It would be a bucket without records: a log with a hole, a node that nobody knows."""
    meta, metadata = stored_image()
    assert loaded(meta).image() == metadata.image()
    victim = next(key for key, _ in meta.items("image/ranges/"))
    meta.commit({}, (victim,))
    with pytest.raises(CorruptData, match="rows of the metadata"):
        loaded(meta)


@pytest.mark.parametrize("row", [("image/ranges/strange", b""), ("image/none/000000000000", b"")])
def test_S12_a_malformed_row_is_found(row: tuple[str, bytes]) -> None:
    meta, _ = stored_image()
    meta.commit(dict([row]))
    with pytest.raises(CorruptData):
        loaded(meta)


@pytest.mark.parametrize("store", ["memory", "lmdb"])
def test_rows_go_by_their_prefix_in_the_transaction_that_puts_others(
    store: str, tmp_path: Path
) -> None:
    meta = MemoryMeta() if store == "memory" else LmdbMeta(tmp_path / "m", map_bytes=1 << 20)
    meta.commit({f"image/{n}": n for n in range(9)} | {"image": 1, "imagf": 2, "imag": 3})
    meta.commit({"image/5": "new"}, ("imag",), ("image/", "none/"))
    assert meta.items("") == [("image", 1), ("image/5", "new"), ("imagf", 2)]


def test_rows_are_committed_to_the_room_that_a_new_store_has(tmp_path: Path) -> None:
    """On a disk that was filled from outside the node ended at its next commit."""
    meta = LmdbMeta(tmp_path / "m")
    size = (tmp_path / "m").stat().st_size
    assert size > 4 << 20
    for number in range(300):
        meta.commit({f"row/{number % 20}": bytes(20_000), "number": number})
    assert (tmp_path / "m").stat().st_size < size + (256 << 10)
    meta.close()
