"""Images of the metadata from other nodes: taken when they are later or earlier states of one
history, and refused, without an effect or an internal error, when they are anything else."""

import copy
import random
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from metadata_log import Controller
from sent_metadata import Image, head, received, received_change, rows, sent, set_head

from lognode.client.protocol import limits
from lognode.client.protocol.errors import Conflict, CorruptData, LognodeError, RemoteProtocolError
from lognode.partitions import buckets
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Descriptor
from lognode.partitions.received import descriptor
from lognode.partitions.tokens import first_token


def grown() -> Controller:
    """Three nodes, two logs, an operation under way, one that has ended, a log that is gone."""
    controller = Controller().nodes(3)
    for name in ("orders", "gone", "views"):
        controller.do("create_log", name=name, ranges=2)
    controller.do("delete_log", name="gone")
    controller.do("plan", kind="expand", inputs=[[1, 1]],
                  outputs=[{"range": 1, "members": [1, 2, 3]}])  # fmt: skip
    controller.do("sealing", operation=1)
    controller.do("decide", operation=1, lineage=[[1, 1, 10, 2, 5, 7, b"hash"]],
                  members=[[1, 2, 3]])  # fmt: skip
    for node in (1, 2, 3):
        controller.do("installed", operation=1, node=node)
    assert controller.metadata.done == {1: 1}
    controller.do("split_range", log="orders", at=b"m")
    assert controller.metadata.operations
    controller.do("open_named", name="writer", owner="", at_ms=5, key=b"k" * 16)
    controller.do("set_quota", name="gold", limits={"requests": 5})
    controller.do("create_token", **{**first_token("0" * 16, b"d" * 32), "at_ms": 5})
    return controller


@pytest.fixture(scope="module")
def known() -> Metadata:
    return grown().metadata


def test_an_image_is_accepted_by_nodes_that_know_nothing_or_everything(known: Metadata) -> None:
    for mine in (Metadata(), known):
        assert received(sent(known), mine).image() == known.image()


STRANGE: tuple[Any, ...] = (
    None, True, -1, 1 << 63, (1 << 64) - 1, 1.5, "", "text", b"", b"bytes", [], [None],
    [[1, 2, 3]], {}, {"a": 1}, {1: [2]}, [{}], [[]],
)  # fmt: skip


REFUSED = (RemoteProtocolError, Conflict, CorruptData)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each container in the value, and each place in it."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        found += [(value, name) for name in value]
        for each in value.values():
            found += places(each)
    elif isinstance(value, list):
        found += [(value, at) for at in range(len(value))]
        for each in value:
            found += places(each)
    return found


@pytest.mark.parametrize(
    ("table", "number", "data"),
    [
        (None, 0, b""), ("nobody's", 0, b""), ("nodes", -1, b""), ("nodes", True, b""),
        ("nodes", 0, None), ("nodes", 0, "text"), ("nodes", 0, b"\xc1"), ("nodes", 0, b"\x91"),
        ("nodes", 0, b"\x05"), ("nodes", 0, b"\x91\x05"), ("nodes", 0, bytes(9 * limits.MIB)),
    ],
)  # fmt: skip
def test_a_malformed_bucket_is_refused(table: Any, number: Any, data: Any) -> None:
    with pytest.raises(CorruptData):
        buckets.read(Metadata(), table, number, data)


@pytest.mark.slow
def test_an_image_with_one_thing_that_is_wrong_is_refused_or_can_be_used(known: Metadata) -> None:
    """Each value of an image, one after the other, replaced by each strange one, or left out. What
    is taken all the same, an address of any text for one, can be stored and gone on from."""
    taken, told = 0, []
    for number in range(len(places(sent(known)["buckets"]))):
        for strange in (*STRANGE, ...):
            image = sent(known)
            container, place = places(image["buckets"])[number]
            if strange is ...:
                del container[place]
            else:
                container[place] = copy.deepcopy(strange)
            for mine in (Metadata(), known):
                try:
                    metadata = received(image, mine)
                except REFUSED as error:
                    told.append(error.message)
                    continue
                taken += 1
                msgpack.packb(metadata.image())
                metadata.replicas_by_node()
                for range_ in metadata.ranges.values():
                    metadata.name_of(range_)
                    range_.fingerprint()
    assert len(told) > 4 * taken
    assert max(map(len, told)) < 500


def test_images_with_many_things_that_are_wrong(known: Metadata) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(2_000):
        image = sent(known)
        for _ in range(rng.randint(1, 4)):
            container, place = rng.choice(places(image["buckets"]))
            container[place] = copy.deepcopy(rng.choice(STRANGE))
        try:
            received(image, known)
        except REFUSED:
            continue


def emptied(image: Image) -> None:
    for table in ("logs", "ranges", "operations"):
        rows(image, table).clear()


def without_a_log(image: Image) -> None:
    gone = rows(image, "logs").pop(0)["log_id"]
    rows(image, "ranges")[:] = [range_ for range_ in rows(image, "ranges") if range_["log"] != gone]
    rows(image, "operations").clear()


def without_a_range(image: Image) -> None:
    """Of a log that has no operation; the other range of it has all keys."""
    first, second = rows(image, "ranges")[-2:]
    assert first["log"] == second["log"]
    rows(image, "ranges").remove(second)


def without_a_node(image: Image) -> None:
    rows(image, "nodes").pop()
    for range_ in (head(image, "controller"), *rows(image, "ranges")):
        range_["members"] = [1]
    for operation in rows(image, "operations"):
        for output in operation["outputs"]:
            output["members"] = [1]


def of_another_cluster(image: Image) -> None:
    set_head(image, "cluster", "another")


def of_another_node(image: Image) -> None:
    rows(image, "nodes")[1]["incarnation"] += 1


def with_ids_given_again(image: Image) -> None:
    for pair in rows(image, "next_ids"):
        if pair[0] == "operation":
            pair[1] = 1


def with_what_was_over(image: Image) -> None:
    assert rows(image, "done")
    rows(image, "done").clear()


def with_logs_that_come_back(image: Image) -> None:
    assert head(image, "logs_deleted") == 1
    set_head(image, "logs_deleted", 0)
    rows(image, "logs").append({**rows(image, "logs")[0], "log_id": 2, "name": "gone"})
    rows(image, "ranges").append(
        {**rows(image, "ranges")[0], "id": 3, "log": 2, "start": b"", "end": None}
    )


def of_an_earlier_generation(image: Image) -> None:
    for row in rows(image, "ranges"):
        row["generation"] = 0
    for row in rows(image, "operations"):
        row["inputs"] = [[range_id, 0] for range_id, _ in row["inputs"]]


def of_fewer_changes(image: Image) -> None:
    image["version"] = 1
    head(image, "controller")["generation"] += 1


WRONG: list[Callable[[Image], None]] = [
    emptied, without_a_log, without_a_range, without_a_node, of_another_cluster, of_another_node,
    with_ids_given_again, with_what_was_over, with_logs_that_come_back, of_an_earlier_generation,
    of_fewer_changes,
]  # fmt: skip


@pytest.mark.parametrize("spoil", WRONG)
@pytest.mark.parametrize("take", [received, received_change])
def test_a_later_image_that_takes_something_away_is_refused(
    spoil: Callable[[Image], None], take: Callable[[Image, Metadata], Metadata], known: Metadata
) -> None:
    image = sent(known)
    image["version"] += 7
    take(image, known)
    spoil(image)
    with pytest.raises(REFUSED):
        take(image, known)
    head(image, "controller")["generation"] += 1  # nor does a new generation bring it
    with pytest.raises(REFUSED):
        take(image, known)


@pytest.mark.parametrize("spoil", [emptied, without_a_log, without_a_node, of_another_cluster])
def test_an_earlier_image_that_lacks_what_was_there_is_refused(
    spoil: Callable[[Image], None], known: Metadata
) -> None:
    image = sent(known)
    image["version"] -= 1
    received(image, known)
    spoil(image)
    with pytest.raises(REFUSED):
        received(image, known)


def test_a_node_that_was_removed_never_comes_back() -> None:
    controller = Controller().nodes(3)
    controller.do("node_state", node=3, state="DEAD")
    assert "ok" in controller.do("remove_node", node=3, dead=True)
    image = sent(controller.metadata)
    image["version"] += 1
    rows(image, "nodes")[2]["state"] = "ACTIVE"
    with pytest.raises(Conflict, match="node 3 was removed, and is ACTIVE"):
        received(image, controller.metadata)


@pytest.mark.parametrize(
    "body", [None, 5, {}, {"id": 0}, {"id": 0, "generation": (1 << 64) - 1, "members": "abc"}]
)
def test_a_malformed_descriptor_is_refused(body: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        descriptor(body)


def test_a_descriptor_survives_the_wire(known: Metadata) -> None:
    for range_ in known.ranges.values():
        sent = msgpack.unpackb(msgpack.packb(range_.to_wire()))
        assert descriptor(sent) == range_ == Descriptor.from_wire(sent)


def test_an_image_of_before_with_bad_records_is_taken() -> None:
    """Addresses, zones and policies are not looked at: nobody could go on from such an image."""
    metadata = Metadata()
    metadata.apply(1, 1, {"op": "found", "cluster": "c", "node": 1})
    register = {"op": "register", "address": "a..b:4600", "zone": "z" * 9_999, "http": "\0",
                "incarnation": (1 << 64) - 1, "boot": (1 << 64) - 1}  # fmt: skip
    assert "ok" in metadata.apply(2, 1, register)
    create = {"op": "create_log", "name": "log", "retention_ms": (1 << 64) - 1}
    assert "ok" in metadata.apply(3, 1, create)
    for mine in (Metadata(), metadata):
        try:
            assert received(sent(metadata), mine).image() == metadata.image()
        except LognodeError as error:
            raise AssertionError(error) from None
