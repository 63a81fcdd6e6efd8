"""Real nodes whose pages are tiny: everything that comes in pages is whole, and stays so."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from live_nodes import LiveCluster, LiveNode, ask, live, until

import lognode
from lognode.client.protocol import limits
from lognode.client.protocol.errors import LognodeError
from lognode.node.directory import meta_keys
from lognode.partitions.producers import FIRST_NAMED_ID
from lognode.statemachine.meta import LmdbMeta

pytestmark = pytest.mark.cluster

PAGES = {
    "image_page_bytes": 1_500, "ranges_page_max": 5, "logs_page_max": 2, "status_page_max": 7,
    "producers_page_max": 3,
}  # fmt: skip


@pytest.fixture
def tiny_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in PAGES.items():
        monkeypatch.setattr(limits, limit, value)


def images(cluster: LiveCluster) -> list[dict[str, object]]:
    """What every node knows of what every node is told."""
    found = []
    for each in cluster.nodes:
        image = each.node._view.metadata.image()
        del image["named"], image["producer_ids"]
        found.append(image)
    return found


@pytest.mark.usefixtures("tiny_pages")
def test_nodes_and_clients_get_all_of_the_metadata_in_tiny_pages(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await client.create_log("wide", ranges=40)
            for number in range(7):
                await client.create_log(f"log{number}", exist_ok=True)
            await cluster.healthy(3)
            fourth = await cluster.join()
            await until(lambda: len({str(image) for image in images(cluster)}) == 1, "one image")
            assert len(fourth.node._view.metadata.ranges) == 47
            assert len(await client.logs()) == 8
            assert len(await client.admin.ranges()) == 47
            assert len((await client.log("wide").describe())["ranges"]) == 40
            status = await client.status()
            assert [row["id"] for row in status["ranges"]] == list(range(48))
            assert len(status["logs"]) == 8
            assert [node["id"] for node in status["nodes"]] == [1, 2, 3, 4]
            assert {"cluster", "disk", "operations", "damaged"} <= status.keys()
            held = {(row["range"], row["generation"]) for row in status["replicas"]}
            assert len(held) == len(status["replicas"]) > 7
            await client.admin.split("wide", at=b"\x01\x23")
            await client.delete_log("log3")
            await until(lambda: len({str(image) for image in images(cluster)}) == 1, "one image")
            before = images(cluster)[0]
            # What is stored is what was known, also where it came in small parts.
            await fourth.stop()
            await client.alter_log("log1", retention_ms=5_000)
            await fourth.start()
            await until(lambda: len({str(image) for image in images(cluster)}) == 1, "one image")
            assert images(cluster)[0] != before

    asyncio.run(run())


@pytest.mark.by_hand
@pytest.mark.usefixtures("tiny_pages")
def test_a_controller_of_many_pages_moves_to_other_nodes(tmp_path: Path) -> None:
    """A push of the next generation has many pages; so has a base for a member that was away."""

    async def run() -> None:
        async with live(tmp_path, 1) as cluster, lognode.AsyncClient(cluster.address) as client:
            await client.create_log("wide", ranges=64)
            for number in range(40):
                async with client.log("wide").producer(name=f"p{number}"):
                    pass
            for _ in range(2):
                await cluster.join()
            await cluster.healthy(3)
            away = cluster.nodes[2]
            await away.stop()
            for number in range(30):  # so many that the log alone does not bring it back
                await client.alter_log("wide", retention_ms=1_000 + number)
            leader = next(
                each for each in cluster.nodes[:2] if each.host.controller.leads
            )  # fmt: skip
            await leader.host.checkpoint_controller(leader.host.controller)
            await away.start()
            await cluster.settled()

            def all_equal() -> bool:
                held = [each.host.controller for each in cluster.nodes]
                return None not in held and len({str(r.metadata.image()) for r in held}) == 1

            await until(all_equal, "every member has all of it")
            assert len(away.host.controller.metadata.producers) == 40
            for each in cluster.nodes:
                assert [key for key, _ in each.host.meta.items(meta_keys.CONTROLLER)] == [
                    meta_keys.controller_key(each.host.controller.gid.generation)
                ]

    asyncio.run(run())


async def applied(node: LiveNode) -> tuple[int, int]:
    """Entries of the controller, and the version of the metadata."""
    return node.host.controller.applied_index, node.host.controller.metadata.version


def test_commands_that_change_nothing_are_not_written(tmp_path: Path) -> None:
    """A loop of them wrote the WAL, and made every node fetch an image each time."""

    async def run() -> None:
        async with live(tmp_path, 1) as cluster, lognode.AsyncClient(cluster.address) as client:
            (node,) = cluster.nodes
            await client.create_log("a", retention_ms=7_000)
            before = await applied(node)
            for _ in range(20):
                await client.create_log("a", exist_ok=True)
                await client.alter_log("a", retention_ms=7_000)
                with pytest.raises(lognode.LogExists):
                    await client.create_log("a")
                with pytest.raises(lognode.LogNotFound):
                    await client.delete_log("b")
                with pytest.raises(lognode.InvalidArgument):
                    await client.alter_log("a", cleanup="compact", retention_ms=5)
                with pytest.raises(lognode.NotFound):
                    await client.admin.delete_producer("b")
                with pytest.raises(lognode.LognodeError):
                    await client.admin.drain(1)
            assert await applied(node) == before
            await client.alter_log("a", retention_ms=8_000)
            assert await applied(node) == (before[0] + 1, before[1] + 1)

    asyncio.run(run())


@pytest.mark.usefixtures("tiny_pages")
def test_S8_names_of_producers_are_listed_deleted_and_forgotten_and_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("a")
            version = cluster.nodes[0].node._view.metadata.version
            held = log.producer(name="import")
            await held.open()
            await (await held.submit(b"k", b"1", number=1)).result()
            for number in range(8):
                async with log.producer(name=f"p{number}"):
                    pass
            names = [row["name"] for row in await client.admin.producers()]
            assert names == ["import", *(f"p{n}" for n in range(8))]
            assert cluster.nodes[0].node._view.metadata.version == version, "nobody else is told"
            deleted = await client.admin.delete_producer("import")
            assert deleted["id"] >= FIRST_NAMED_ID
            await (await held.submit(b"k", b"2", number=2)).result()  # its holder goes on
            again = log.producer(name="import")
            await again.open()
            with pytest.raises(lognode.Fenced):
                await (await held.submit(b"k", b"3", number=3)).result()
            ticket = await again.submit(b"k", b"2", number=2)
            await ticket.result()  # the range knows the number
            assert await log.count(b"k") == 2
            # Nobody opens a name for 7 days.
            monkeypatch.setattr(limits, "producer_name_expiry_ms", -1_000)
            leading = next(each for each in cluster.nodes if each.host.controller.leads)
            await leading.node._cluster.producers.expire_once()
            assert await client.admin.producers() == []
            await (await again.submit(b"k", b"4", number=4)).result()
            with contextlib.suppress(LognodeError):
                await held.close(0.1)
            await again.close()

    asyncio.run(run())


def test_an_image_of_a_version_before_is_read_and_replaced(tmp_path: Path) -> None:
    """It was one row, and a controller's row had its metadata in it."""

    async def run() -> None:
        async with live(tmp_path, 2) as cluster, lognode.AsyncClient(cluster.address) as client:
            await client.create_log("a", ranges=3)
            await until(lambda: len({str(image) for image in images(cluster)}) == 1, "one image")
            image = cluster.nodes[0].node._view.metadata.image()
            for each in cluster.nodes:
                meta = each.host.meta
                await each.stop_now()
                as_before(each, image)
                assert meta is not None
            for each in cluster.nodes:
                await each.start()
            assert len(await client.admin.ranges()) == 3
            await client.alter_log("a", retention_ms=9_000)
            await until(lambda: len({str(image) for image in images(cluster)}) == 1, "one image")
            observer = cluster.nodes[1]
            stored = observer.host.meta.get(meta_keys.IMAGE)
            assert set(stored) == {"version", "buckets"}
            answer = await ask(observer, "metadata", {"log": "a"})
            assert answer["logs"][0]["policy"]["retention_ms"] == 9_000

    asyncio.run(run())


def as_before(node: LiveNode, image: dict[str, object]) -> None:
    """Make the directory that of a version that stored whole images."""
    old = {name: value for name, value in image.items() if name not in ("named", "producer_ids")}
    old["producers"] = {}
    old["next_ids"] = {**old["next_ids"], "producer": 5_000}  # type: ignore[dict-item]
    meta = LmdbMeta(node.config.data / "meta.mdb")
    try:
        for key, row in meta.items(meta_keys.CONTROLLER):
            whole = {
                name: value for name, value in row.items() if name not in ("version", "buckets")
            }
            meta.commit({key: {**whole, "image": old}}, (), (meta_keys.CONTROLLER_BUCKETS,))
        if meta.get(meta_keys.IMAGE) is not None:
            meta.commit({meta_keys.IMAGE: old}, (), (meta_keys.IMAGE_BUCKETS,))
    finally:
        meta.close()
