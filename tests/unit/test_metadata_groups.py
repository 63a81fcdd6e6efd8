"""Consumer groups in the metadata: ids, options, bounds, and what goes with a log."""

from typing import Any

import pytest
from metadata_log import Controller

from lognode.client.protocol import limits
from lognode.client.protocol.errors import (
    Conflict,
    InvalidArgument,
    LimitExceeded,
    RemoteProtocolError,
)
from lognode.partitions import commands, groups, overtaken, proposals, received
from lognode.partitions.metadata import Metadata
from lognode.partitions.received_rows import is_row

GROUP: dict[str, Any] = {
    "log": "orders", "name": "billing", "prefix": b"", "patterns": None, "max_deliveries": 5,
    "on_dead": "park", "lease_ms": 30_000, "begin": "earliest", "begin_ms": 0, "waits": False,
    "ordering": "key", "at_ms": 1_000,
}  # fmt: skip


@pytest.fixture
def controller() -> Controller:
    made = Controller().nodes(1)
    made.metadata.feature_level = 4
    made.metadata.settle()
    made.do("create_log", name="orders")
    made.do("create_log", name="dead")
    return made


def create(controller: Controller, **changes: Any) -> dict[str, Any]:
    return controller.do(commands.CREATE_GROUP, **{**GROUP, **changes})


def test_a_group_has_an_id_that_no_other_group_gets(controller: Controller) -> None:
    first = create(controller)["ok"]
    assert (first["id"], first["created"], first["begin_ms"]) == (1, True, 0)
    other = create(controller, name="search")["ok"]
    assert other["id"] == 2
    deleted = controller.do(commands.DELETE_GROUP, log="orders", name="billing")
    assert deleted == {"ok": {"id": 1}}
    again = create(controller)["ok"]
    assert again["id"] == 3
    found = controller.metadata.groups
    assert [record.name for record in found.of_log(1)] == ["billing", "search"]
    assert found.named(1, "billing") == found[3]
    assert controller.metadata.groups_deleted == 1


def test_a_repeated_creation_answers_with_the_group(controller: Controller) -> None:
    create(controller, begin="latest")
    version = controller.metadata.version
    command = {"op": commands.CREATE_GROUP, **GROUP, "begin": "latest", "at_ms": 5_000}
    told = controller.metadata.rehearse(99, 1, command)
    assert told is not None, "the leader answers without a proposal"
    assert told["ok"]["created"] is False
    assert told["ok"]["begin_ms"] == 1_000, "latest: from the creation on, not from the repetition"
    assert create(controller, begin="latest", at_ms=9_000)["ok"]["id"] == 1
    assert controller.metadata.version - version <= 1


@pytest.mark.parametrize(
    "changes",
    [
        {"prefix": b"cust/"}, {"max_deliveries": 6}, {"on_dead": "dead_letter:dead"},
        {"lease_ms": 31_000}, {"begin": "latest"}, {"begin": "time", "begin_ms": 7},
        {"waits": True}, {"patterns": [b"", [b"cust*"]]}, {"ordering": "none"},
    ],
    ids=str,
)  # fmt: skip
def test_other_options_are_refused_with_both_values(
    controller: Controller, changes: dict[str, Any]
) -> None:
    create(controller)
    error = create(controller, **changes)["error"]
    name = next(iter(changes))
    assert error["code"] == Conflict.code
    assert f"{name} " in error["message"]
    assert controller.metadata.groups[1].to_body()["max_deliveries"] == 5


def test_the_groups_of_a_log_go_with_the_log(controller: Controller) -> None:
    create(controller)
    create(controller, name="search")
    create(controller, log="dead", name="watch")
    controller.do("delete_log", name="orders")
    assert [record.name for record in controller.metadata.groups.values()] == ["watch"]
    assert controller.metadata.groups_deleted == 2
    controller.do("create_log", name="orders")
    assert create(controller)["ok"]["id"] == 4


def test_a_cluster_below_level_4_refuses_groups_and_writes_images_as_before() -> None:
    controller = Controller().nodes(1)
    controller.do("create_log", name="orders")
    assert "consumer groups need level 4" in create(controller)["error"]["message"]
    assert "groups" not in controller.metadata.image()
    assert "group" not in controller.metadata.image()["next_ids"]


def test_a_log_has_a_bounded_number_of_groups(controller: Controller) -> None:
    for at in range(limits.groups_per_log_max):
        assert "ok" in create(controller, name=f"g{at}")
    assert create(controller, name="more")["error"]["code"] == LimitExceeded.code
    assert "ok" in create(controller, log="dead", name="more")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"log": "missing"}, "does not exist"),
        ({"name": "a b"}, "without blanks"),
        ({"on_dead": "dead_letter:missing"}, "'missing' does not exist"),
        ({"on_dead": "dead_letter:orders"}, "to the same log"),
    ],
)
def test_apply_refuses(controller: Controller, changes: dict[str, Any], told: str) -> None:
    assert told in create(controller, **changes)["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "a\tb"}, "name"),
        ({"name": "a b"}, "blank"),
        ({"name": ""}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"patterns": [b"", [b"a**"]]}, "a**"),
        ({"patterns": [b"*", [b"a"]]}, "separator"),
        ({"patterns": [b"", []]}, "patterns"),
        ({"patterns": [b"", [b"a*"]], "prefix": b"a"}, "give one of them"),
        ({"max_deliveries": 0}, "max_deliveries"),
        ({"max_deliveries": 1_001}, "max_deliveries"),
        ({"lease_ms": 999}, "lease_ms"),
        ({"begin": "later"}, "begin"),
        ({"begin_ms": 7}, "a time needs `time`"),
        ({"on_dead": "drop"}, "on_dead"),
        ({"on_dead": "dead_letter:"}, "log name"),
    ],
)
def test_no_node_proposes(controller: Controller, changes: dict[str, Any], told: str) -> None:
    sound = {"op": commands.CREATE_GROUP, **GROUP}
    assert proposals.checked(sound, controller.metadata.nodes) == sound
    with pytest.raises(InvalidArgument) as caught:
        proposals.checked({**sound, **changes}, controller.metadata.nodes)
    assert told in caught.value.message


def test_patterns_have_the_separator_of_the_log() -> None:
    sound = {**GROUP, "patterns": [b"/", [b"cust/*"]]}
    groups.check_new(sound, b"/")
    with pytest.raises(InvalidArgument, match="ask for the log again"):
        groups.check_new(sound, b":")


def test_a_deletion_names_the_group_that_it_means(controller: Controller) -> None:
    create(controller)
    for wrong in ({"name": "search"}, {"name": "billing", "id": 2}):
        answer = controller.do(commands.DELETE_GROUP, log="orders", **wrong)
        assert "has no group" in answer["error"]["message"]
    assert "ok" in controller.do(commands.DELETE_GROUP, log="orders", name="billing", id=1)


def test_x5_a_late_creation_does_not_bring_a_deleted_group_back(controller: Controller) -> None:
    since = controller.metadata.version
    create(controller)
    controller.do(commands.DELETE_GROUP, log="orders", name="billing")
    late = {"op": commands.CREATE_GROUP, **GROUP}
    with pytest.raises(Conflict, match="send the request again"):
        overtaken.check(controller.metadata, late, since)
    overtaken.check(controller.metadata, late, controller.metadata.version)


def test_an_image_with_impossible_groups_is_refused(controller: Controller) -> None:
    create(controller)
    create(controller, name="search")
    before = Metadata.from_image(controller.metadata.image())

    def refused(change: Any) -> str:
        forged = Metadata.from_image(controller.metadata.image())
        change(forged)
        forged.version += 1
        forged.settle()
        with pytest.raises((RemoteProtocolError, Conflict)) as caught:
            for _ in received.steps(forged, before):
                pass
        return caught.value.message

    assert "groups" in refused(lambda image: image.groups.pop(1))
    assert "next_ids of groups" in refused(lambda image: image.next_ids.__setitem__("group", 2))

    def vanish(image: Metadata) -> None:
        del image.logs[1]
        image.logs_deleted += 1
        for range_ in image.ranges_of(1).copy():
            del image.ranges[range_.range_id]

    assert "logs of groups" in refused(vanish)
    controller.do(commands.DELETE_GROUP, log="orders", name="billing")
    before = Metadata.from_image(controller.metadata.image())

    def again(image: Metadata) -> None:
        image.groups[1] = groups.GroupRecord.from_image([1, *image.groups[2].to_image()[1:]])
        image.groups_deleted = 0

    assert "consumer groups were deleted" in refused(again)


def test_rows_of_groups_are_checked(controller: Controller) -> None:
    create(controller, patterns=[b"", [b"cust*"]])
    row = controller.metadata.groups[1].to_image()
    assert is_row("groups", row)
    for at, wrong in ((0, -1), (1, "1"), (2, b"x"), (5, ["text"]), (6, None), (11, 1)):
        assert not is_row("groups", [*row[:at], wrong, *row[at + 1 :]])
    assert not is_row("groups", row[:-1])
    assert not is_row("groups", {})
