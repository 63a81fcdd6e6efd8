"""The metadata recognises the repetition of a `create_log`, and deletes the log that was meant."""

import copy
from typing import Any

import msgpack
import pytest
from metadata_log import Controller

from lognode.client.protocol import limits
from lognode.client.protocol.cluster import CREATE_LOG
from lognode.partitions import creations, proposals
from lognode.partitions.metadata import Metadata
from lognode.partitions.received_rows import is_row
from lognode.partitions.records import LOGS

DRAWN = bytes(range(16))
OTHER = bytes(16)


@pytest.fixture
def controller() -> Controller:
    return Controller().nodes(3)


def test_a_repetition_gets_the_answer_of_the_first(controller: Controller) -> None:
    first = controller.do("create_log", name="a", ranges=2, creation=DRAWN)
    version, image = controller.metadata.version, controller.metadata.image()
    assert controller.do("create_log", name="a", ranges=2, creation=DRAWN) == first
    assert controller.metadata.image() == image
    assert controller.metadata.version == version


def test_another_creation_of_the_name_is_refused(controller: Controller) -> None:
    controller.do("create_log", name="a", creation=DRAWN)
    for creation in (OTHER, None, b""):
        answer = controller.do("create_log", name="a", creation=creation)
        assert answer["error"]["code"] == "LOG_EXISTS"
    told = controller.do("create_log", name="a", creation=OTHER, exist_ok=True)["ok"]
    assert told == {"log": 1, "created": False}


def test_a_log_without_a_creation_is_nobodys(controller: Controller) -> None:
    """Old clients give no bytes; the record of their log matches nothing, empty bytes included."""
    controller.do("create_log", name="a")
    for creation in (None, b"", DRAWN):
        answer = controller.do("create_log", name="a", creation=creation)
        assert answer["error"]["code"] == "LOG_EXISTS"


def test_a_repetition_is_answered_without_a_proposal(controller: Controller) -> None:
    command = {"op": "create_log", "name": "a", "creation": DRAWN}
    assert controller.metadata.rehearse(9, 1, command) is None
    answer = controller.do("create_log", name="a", creation=DRAWN)
    assert controller.metadata.rehearse(9, 1, command) == answer


def test_members_that_know_no_creations_count_the_same_versions(controller: Controller) -> None:
    """Both attempts were proposed before the first one was applied. Such a member refuses the
    second one, which leaves its version."""
    old = Controller().nodes(3)
    for _ in range(2):
        controller.do("create_log", name="a", creation=DRAWN)
        old.do("create_log", name="a")
    for _ in range(2):
        controller.do("create_log", name="a", creation=DRAWN, exist_ok=True)
        old.do("create_log", name="a", exist_ok=True)
    assert controller.metadata.version == old.metadata.version


def test_the_creation_outlives_changes_of_the_policy_and_images(controller: Controller) -> None:
    first = controller.do("create_log", name="a", creation=DRAWN)
    controller.do("alter_log", name="a", changes={"retention_ms": 5})
    other = Metadata.from_image(controller.metadata.image())
    for metadata in (controller.metadata, other):
        again = metadata.apply(50, 1, {"op": "create_log", "name": "a", "creation": DRAWN})
        assert again == first


def test_a_deleted_log_can_be_created_again(controller: Controller) -> None:
    first = controller.do("create_log", name="a", creation=DRAWN)["ok"]["log"]
    controller.do("delete_log", name="a")
    assert controller.do("create_log", name="a", creation=DRAWN)["ok"]["log"] > first


def test_the_row_of_a_log_without_creation_is_as_before(controller: Controller) -> None:
    controller.do("create_log", name="a")
    controller.do("create_log", name="b", creation=DRAWN)
    rows = [LOGS.write(log_id, record) for log_id, record in controller.metadata.logs.items()]
    assert [set(row) for row in rows] == [
        {"log_id", "name", "policy"}, {"log_id", "name", "policy", "creation"},
    ]  # fmt: skip
    for row in rows:
        sent = msgpack.unpackb(msgpack.packb(row))
        assert is_row("logs", sent)
        assert LOGS.read(sent) == (row["log_id"], controller.metadata.logs[row["log_id"]])


@pytest.mark.parametrize("creation", [b"x", bytes(17), bytes(1 << 20), "text", 5, None, [1]])
def test_a_row_with_another_creation_is_ignored(controller: Controller, creation: Any) -> None:
    controller.do("create_log", name="a", creation=DRAWN)
    row = copy.deepcopy(LOGS.write(1, controller.metadata.logs[1]))
    assert is_row("logs", row)
    row["creation"] = creation
    assert not is_row("logs", row)


@pytest.mark.parametrize("creation", [b"", bytes(15), bytes(17), "x" * 16, 5])
def test_a_command_with_another_creation_is_never_proposed(creation: Any) -> None:
    command = {**CREATE_LOG.request.check({"name": "a"}), "op": "create_log"}
    assert proposals.checked({**command, "creation": DRAWN}, {})["creation"] == DRAWN
    with pytest.raises(Exception, match="creation"):
        proposals.checked({**command, "creation": creation}, {})


def test_a_creation_is_tied_to_its_principal() -> None:
    ann, bob = (creations.tied(DRAWN, name) for name in ("ann", "bob"))
    assert ann != bob
    assert ann == creations.tied(DRAWN, "ann")
    assert len(ann or b"") == limits.creation_bytes
    assert creations.tied(None, "ann") is None


def test_only_the_log_that_was_meant_is_deleted(controller: Controller) -> None:
    first = controller.do("create_log", name="a")["ok"]["log"]
    controller.do("delete_log", name="a", id=first)
    second = controller.do("create_log", name="a")["ok"]["log"]
    error = controller.do("delete_log", name="a", id=first)["error"]
    assert (error["code"], error["fields"]["id"]) == ("LOG_NOT_FOUND", second)
    assert "ok" in controller.do("delete_log", name="a", id=second)
    third = controller.do("create_log", name="a")["ok"]["log"]
    assert "ok" in controller.do("delete_log", name="a"), f"log {third}, for old clients"
