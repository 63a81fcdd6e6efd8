"""Images of the metadata in pages: a node with all pages has the newest version exactly."""

import asyncio
import random
from typing import Any

import msgpack
import pytest
from metadata_log import Controller

from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData, InvalidArgument, RemoteProtocolError
from lognode.client.protocol.peers import CONTROLLER_INSTALL, HEARTBEAT, IMAGE_PAGE
from lognode.node.metadata import image_pages
from lognode.node.metadata.image_pages import Assembly, Image
from lognode.partitions import buckets
from lognode.partitions.metadata import Metadata

PRIVATE = ("named", "producer_ids")


def public(metadata: Metadata) -> dict[str, Any]:
    return {name: value for name, value in metadata.image().items() if name not in PRIVATE}


async def take(observer: Metadata, image: Image) -> Metadata:
    """As a node's view does."""
    if image.full:
        return await image_pages.made(image)
    await image_pages.changed(observer, image)
    return observer


def some_command(controller: Controller, rng: random.Random) -> None:
    """Create, alter, delete, split and plan; some are refused."""
    name = f"log{rng.randrange(6)}"
    do = controller.do
    match rng.randrange(8):
        case 0 | 1:
            do("create_log", name=name, ranges=rng.randrange(1, 90), replicas=1)
        case 2:
            do("alter_log", name=name, changes={"retention_ms": rng.randrange(1, 1000)})
        case 3:
            do("delete_log", name=name)
        case 4:
            do("open_named", name=f"p{rng.randrange(50)}", owner="", at_ms=1, key=bytes(16))
        case 5:
            do("register", incarnation=rng.randrange(1, 40), boot=1, node=None, zone="", process=1,
               address="h:1", http="")  # fmt: skip
        case 6:
            do("split_range", log=name, at=rng.randbytes(2))
        case 7:
            for operation in list(controller.metadata.operations)[:1]:
                do("abort", operation=operation)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("everything", [False, True])
def test_x3_a_node_with_all_pages_has_the_newest_version(
    seed: int, everything: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata changes between pages, and observers come at any time."""
    monkeypatch.setattr(limits, "image_page_bytes", 3_000)
    rng = random.Random(seed)
    controller = Controller().nodes(3)
    tables = buckets.ALL if everything else buckets.PUBLIC

    async def run() -> None:
        observers = [Metadata() for _ in range(3)]
        for _ in range(12):
            for _ in range(rng.randrange(8)):
                some_command(controller, rng)
            at = rng.randrange(len(observers))
            observer = observers[at]
            # What is with the controller's members alone has no version: they get all of it.
            since = 0 if everything else observer.version
            assembly = Assembly(since)
            image, pages = None, 0
            while image is None:
                page = await image_pages.page_of(
                    controller.metadata, since, assembly.after, tables=tables
                )
                assert sum(len(row[2]) for row in page["buckets"]) < 3_000 + 10_000
                image, pages = await assembly.add(page), pages + 1
                if image is None and pages < 20:
                    some_command(controller, rng)
            assert image.version == controller.metadata.version
            observers[at] = observer = await take(observer, image)
            if everything:
                assert observer.image() == controller.metadata.image()
            else:
                assert public(observer) == public(controller.metadata)
                assert not observer.producers
            for record in observer.logs.values():
                observer.check_log(record.log_id)
                assert observer.log_named(record.name) == record

    asyncio.run(run())


def test_changes_are_small_in_a_metadata_of_any_size() -> None:
    """One change of 12,288 ranges went to every node as the whole image: over a megabyte."""
    controller = Controller().nodes(3)
    for name in "abc":
        command = {"op": "create_log", "name": name, "ranges": 4_096, "replicas": 1}
        assert "ok" in controller.metadata.apply(1, 1, command)

    async def run() -> None:
        image = await Assembly().add(await all_of(controller.metadata, 0))
        assert image is not None
        observer = await image_pages.made(image)
        since = observer.version
        controller.metadata.apply(1, 1, {"op": "split_range", "log": "b", "at": b"\x12\x34"})
        page = await image_pages.page_of(controller.metadata, since, tables=buckets.PUBLIC)
        assert page["next"] is None
        assert len(msgpack.packb(page)) < 10_000
        image = await Assembly(since).add(page)
        assert image is not None
        assert not image.full
        await image_pages.changed(observer, image)
        assert observer.image() == controller.metadata.image()

    asyncio.run(run())


async def all_of(metadata: Metadata, since: int) -> dict[str, Any]:
    """All pages as one."""
    page = await image_pages.page_of(metadata, since, tables=buckets.PUBLIC)
    found = list(page["buckets"])
    while page["next"] is not None:
        page = await image_pages.page_of(metadata, since, page["next"], tables=buckets.PUBLIC)
        found += page["buckets"]
    return {**page, "begins": True, "full": since == 0, "buckets": found}


def test_pages_of_another_process_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader changed between two pages: the pages of the first leader are not used."""
    monkeypatch.setattr(limits, "image_page_bytes", 2_000)
    one, other = Controller().nodes(3), Controller().nodes(3)
    for controller in (one, other):
        controller.do("create_log", name="a", ranges=100)
    other.do("create_log", name="b")

    async def run() -> None:
        assembly = Assembly()
        page = await image_pages.page_of(one.metadata, 0, tables=buckets.PUBLIC)
        assert await assembly.add(page) is None
        image = None
        while image is None:
            page = await image_pages.page_of(
                other.metadata, 0, assembly.after, tables=buckets.PUBLIC
            )
            image = await assembly.add(page)
        assert public(await image_pages.made(image)) == public(other.metadata)

    asyncio.run(run())


def test_empty_buckets_are_forgotten_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that creates and deletes a log of many ranges leaves nothing behind."""
    monkeypatch.setattr("lognode.partitions.metadata_state._BUCKETS_MIN", 40)
    controller = Controller().nodes(1)
    observer = Metadata.from_image(controller.metadata.image())

    async def run() -> None:
        for _ in range(60):
            command = {"op": "create_log", "name": "a", "ranges": 64, "replicas": 1}
            assert "ok" in controller.metadata.apply(1, 1, command)
            assert "ok" in controller.metadata.apply(1, 1, {"op": "delete_log", "name": "a"})
        assert len(controller.metadata.changes.order) < 100
        page = await image_pages.page_of(
            controller.metadata, observer.version, tables=buckets.PUBLIC
        )
        assert page["full"], "some buckets that are empty by now are not known any more"
        image = await Assembly().add(page)
        assert image is not None
        assert public(await image_pages.made(image)) == public(controller.metadata)

    asyncio.run(run())


@pytest.mark.parametrize(
    "row",
    [
        ["strange", 0, b""], [5, 0, b""], ["nodes", -1, b""], ["nodes", "0", b""],
        ["nodes", 0, "text"], ["nodes", 0, b"\xc1"], ["nodes", 0, b"\x91\x01"],
        ["ranges", 0, msgpack.packb([{"id": 99}])], ["done", 7, msgpack.packb([[1, 1]])],
        ["logs", 0, b"\x91" * 2_000], ["nodes", 0, bytes(limits.bucket_bytes_max + 1)],
        ["done", 0, msgpack.packb([["1", {}]])], ["operations", 0, msgpack.packb([[]])],
    ],
)  # fmt: skip
def test_a_damaged_bucket_is_refused(row: list[Any]) -> None:
    page = {"begins": True, "full": True, "generation": 1, "version": 5, "buckets": [row],
            "next": None}  # fmt: skip
    with pytest.raises(CorruptData):
        asyncio.run(Assembly().add(page))


@pytest.mark.parametrize(
    "change", [{"buckets": 5}, {"buckets": [[1]]}, {"version": "5"}, {"generation": None}]
)
def test_a_malformed_page_is_refused(change: dict[str, Any]) -> None:
    page = {"begins": True, "full": True, "generation": 1, "version": 5, "buckets": [],
            "next": None, **change}  # fmt: skip
    with pytest.raises(InvalidArgument):
        CONTROLLER_INSTALL.request.check({"descriptor": {}, "applied": [1, 0], "page": page})
    for operation in (IMAGE_PAGE, HEARTBEAT):
        with pytest.raises(RemoteProtocolError):
            operation.check_answer({"leaders": [], "seen": [1, 1, 1], "page": page})


def test_an_image_beyond_all_bounds_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "image_bytes_max", 1_000)
    row = ["done", 0, msgpack.packb([[n, 1 << 40] for n in range(32)])]

    async def run() -> None:
        assembly = Assembly()
        page = {"begins": True, "full": True, "generation": 1, "version": 5, "buckets": [row],
                "next": [1, 2]}  # fmt: skip
        assert await assembly.add(page) is None
        for number in range(1, 10):
            data = msgpack.packb([[32 * number + n, 1 << 40] for n in range(32)])
            await assembly.add({**page, "begins": False, "buckets": [["done", number, data]]})

    with pytest.raises(CorruptData, match="over 1000 bytes"):
        asyncio.run(run())


def test_a_page_has_a_bounded_number_of_buckets_also_where_they_are_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Buckets of deleted logs have no bytes: a page of them would have no end."""
    monkeypatch.setattr(limits, "image_page_buckets_max", 7)
    controller = Controller().nodes(1)
    command = {"op": "create_log", "name": "a", "ranges": 1_024, "replicas": 1}
    assert "ok" in controller.metadata.apply(1, 1, command)
    since = controller.metadata.version
    assert "ok" in controller.metadata.apply(1, 1, {"op": "delete_log", "name": "a"})

    async def run() -> None:
        assembly, after, pages = Assembly(since), None, 0
        image = None
        while image is None:
            page = await image_pages.page_of(
                controller.metadata, since, after, tables=buckets.PUBLIC
            )
            assert len(page["buckets"]) <= 7
            image, after, pages = await assembly.add(page), page["next"], pages + 1
        assert pages > 4
        assert len(image.parts) > 32

    asyncio.run(run())
