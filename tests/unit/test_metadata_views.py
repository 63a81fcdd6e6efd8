"""Views in the metadata: ids, options, bounds, and what goes with a log or a group."""

from typing import Any

import pytest
from metadata_log import Controller

from lognode.client.protocol import limits
from lognode.client.protocol.errors import (
    Conflict,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    RemoteProtocolError,
)
from lognode.partitions import commands, overtaken, proposals, received, views
from lognode.partitions.metadata import Metadata
from lognode.partitions.received_rows import is_row

GROUP: dict[str, Any] = {
    "log": "orders", "name": "billing", "prefix": b"cust/", "patterns": None, "max_deliveries": 5,
    "on_dead": "park", "lease_ms": 30_000, "begin": "earliest", "begin_ms": 0, "waits": False,
    "at_ms": 1_000,
}  # fmt: skip
VIEW: dict[str, Any] = {
    "log": "orders", "name": "search", "group": "billing", "cursor": None, "prefix": b"",
    "policy": "wait", "at_ms": 2_000,
}  # fmt: skip


@pytest.fixture
def controller() -> Controller:
    made = Controller().nodes(1)
    made.metadata.feature_level = 4
    made.metadata.settle()
    made.do("create_log", name="orders")
    made.do("create_log", name="other")
    made.do(commands.CREATE_GROUP, **GROUP)
    return made


def register(controller: Controller, **changes: Any) -> dict[str, Any]:
    return controller.do(commands.REGISTER_VIEW, **{**VIEW, **changes})


def of_cursor(controller: Controller, name: str = "feed", **changes: Any) -> dict[str, Any]:
    return register(
        controller, **{"name": name, "group": None, "cursor": "c", "prefix": b"p", **changes}
    )


def test_a_view_has_an_id_that_no_other_view_gets(controller: Controller) -> None:
    first = register(controller)["ok"]
    assert first == {
        "id": 1, "name": "search", "group": "billing", "cursor": None, "prefix": b"cust/",
        "patterns": None, "policy": "wait", "created_ms": 2_000,
    }  # fmt: skip
    other = of_cursor(controller)["ok"]
    assert (other["id"], other["group"], other["cursor"], other["prefix"]) == (2, None, "c", b"p")
    assert controller.do(commands.DELETE_VIEW, log="orders", name="search") == {"ok": {"id": 1}}
    assert register(controller)["ok"]["id"] == 3
    assert [view.name for view in controller.metadata.views.of_log(1)] == ["feed", "search"]
    again = Metadata.from_image(controller.metadata.image())
    assert dict(again.views) == dict(controller.metadata.views)
    assert again.views_deleted == controller.metadata.views_deleted == 1


def test_a_repetition_answers_with_the_view_and_other_options_are_refused(
    controller: Controller,
) -> None:
    register(controller)
    told = controller.metadata.rehearse(
        99, 1, {"op": commands.REGISTER_VIEW, **VIEW, "at_ms": 9_000}
    )
    assert told is not None, "the leader answers without a proposal"
    assert (told["ok"]["id"], told["ok"]["created_ms"]) == (1, 2_000)
    controller.do(commands.CREATE_GROUP, **{**GROUP, "name": "second"})
    for changes in ({"group": "second"}, {"policy": "live"}, {"group": None, "cursor": "c"}):
        error = register(controller, **changes)["error"]
        assert error["code"] == Conflict.code
        assert "exists with another" in error["message"]


def test_views_go_with_their_group_and_their_log(controller: Controller) -> None:
    register(controller)
    of_cursor(controller)
    of_cursor(controller, log="other")
    controller.do(commands.DELETE_GROUP, log="orders", name="billing")
    assert [view.name for view in controller.metadata.views.of_log(1)] == ["feed"]
    controller.do("delete_log", name="orders")
    assert [view.log_id for view in controller.metadata.views.values()] == [2]
    assert controller.metadata.views_deleted == 2


def test_a_cluster_below_level_4_refuses_views_and_writes_images_as_before() -> None:
    controller = Controller().nodes(1)
    controller.do("create_log", name="orders")
    assert "views need level 4" in of_cursor(controller)["error"]["message"]
    assert "views" not in controller.metadata.image()
    assert "view" not in controller.metadata.image()["next_ids"]


def test_a_log_has_a_bounded_number_of_views(controller: Controller) -> None:
    for at in range(limits.views_per_log_max):
        assert "ok" in of_cursor(controller, f"v{at}")
    assert of_cursor(controller, "more")["error"]["code"] == LimitExceeded.code
    assert "ok" in of_cursor(controller, "more", log="other")


def test_a_view_needs_its_log_and_its_group(controller: Controller) -> None:
    assert "does not exist" in register(controller, log="missing")["error"]["message"]
    assert register(controller, group="missing")["error"]["code"] == NotFound.code
    missing = controller.do(commands.DELETE_VIEW, log="orders", name="missing")
    assert "has no view" in missing["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "a b"}, "unprintable"),
        ({"group": None}, "give one of them"),
        ({"cursor": "c"}, "give one of them"),
        ({"prefix": b"p"}, "leave out the prefix"),
        ({"group": None, "cursor": "c", "policy": "live"}, "is for groups"),
        ({"policy": "never"}, "policy"),
    ],
)
def test_no_node_proposes(controller: Controller, changes: dict[str, Any], told: str) -> None:
    sound = {"op": commands.REGISTER_VIEW, **VIEW}
    assert proposals.checked(sound, controller.metadata.nodes) == sound
    with pytest.raises(InvalidArgument, match=told):
        proposals.checked({**sound, **changes}, controller.metadata.nodes)


def test_x5_a_late_registration_does_not_bring_a_deleted_view_back(controller: Controller) -> None:
    since = controller.metadata.version
    register(controller)
    controller.do(commands.DELETE_VIEW, log="orders", name="search")
    late = {"op": commands.REGISTER_VIEW, **VIEW}
    with pytest.raises(Conflict, match="send the request again"):
        overtaken.check(controller.metadata, late, since)
    overtaken.check(controller.metadata, late, controller.metadata.version)


def test_an_image_with_impossible_views_is_refused(controller: Controller) -> None:
    register(controller)
    of_cursor(controller)

    def refused(change: Any) -> str:
        before = Metadata.from_image(controller.metadata.image())
        forged = Metadata.from_image(controller.metadata.image())
        change(forged)
        forged.version += 1
        forged.settle()
        with pytest.raises((RemoteProtocolError, Conflict)) as caught:
            for _ in received.steps(forged, before):
                pass
        return caught.value.message

    assert "views" in refused(lambda image: image.views.pop(1))
    assert "next_ids of views" in refused(lambda image: image.next_ids.__setitem__("view", 2))

    def change_view(at: int, value: int) -> Any:
        def change(image: Metadata) -> None:
            row = image.views[1].to_image()
            row[at] = value
            image.views[1] = views.ViewRecord.from_image(row)

        return change

    assert "logs of views" in refused(change_view(1, 7))
    assert "groups of views" in refused(change_view(3, 7))
    controller.do(commands.DELETE_VIEW, log="orders", name="search")

    def again(image: Metadata) -> None:
        image.views[1] = views.ViewRecord.from_image([1, *image.views[2].to_image()[1:]])
        image.views_deleted = 0

    assert "views were deleted" in refused(again)


def test_rows_of_views_are_checked(controller: Controller) -> None:
    register(controller)
    row = controller.metadata.views[1].to_image()
    assert is_row("views", row)
    for at, wrong in ((0, -1), (1, "1"), (2, b"x"), (3, -1), (5, "text"), (7, None)):
        assert not is_row("views", [*row[:at], wrong, *row[at + 1 :]])
    assert not is_row("views", row[:-1])
