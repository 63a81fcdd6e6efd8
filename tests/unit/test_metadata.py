"""The metadata state machine and the planner."""

import gc
import random
import re
import weakref
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client.protocol.errors import InvalidArgument, LimitExceeded
from lognode.partitions import allocate
from lognode.partitions.commands import decode
from lognode.partitions.generation_commands import REASON_CHARS_MAX
from lognode.partitions.locks import OPERATIONS_MAX
from lognode.partitions.metadata import Metadata
from lognode.partitions.placement import group_size
from lognode.partitions.planner import node_states, plan, plan_controller
from lognode.partitions.policy import Policy
from lognode.statemachine.unknown import UnknownCommandError


@pytest.fixture
def one() -> Controller:
    return Controller().nodes(1)


def test_an_image_that_nobody_has_any_more_is_gone_at_once() -> None:
    """There is one a change, of all ranges: none is to wait for a collection of garbage."""
    gc.disable()
    try:
        controller = Controller()
        image = weakref.ref(controller.metadata)
        assert image() is not None
        del controller
        assert image() is None
    finally:
        gc.enable()


def test_an_unknown_command_changes_nothing_and_is_void_after_the_seal(one: Controller) -> None:
    before = one.metadata.image()
    with pytest.raises(
        UnknownCommandError,
        match=r"entry 9 is the metadata command 'melt'; this program knows abort, alter_log, .*"
        r"Upgrade this node to the version of the other nodes: the replica then continues with "
        r"entry 9$",
    ):
        one.metadata.apply(9, 1, {"op": "melt"})
    assert one.metadata.image() == before
    one.do("seal_controller", members=[1])
    assert one.metadata.apply(9, 1, {"op": "melt"})["error"]["code"] == "SEALED"


def test_the_same_registration_twice_is_one_node(one: Controller) -> None:
    assert one.register(77)["ok"]["node"] == 2
    assert one.register(77)["ok"]["node"] == 2
    assert one.register(78)["ok"]["node"] == 3


def test_x2_24_a_copied_or_rolled_back_directory_is_refused(one: Controller) -> None:
    one.register(77, boot=5)
    assert "another data directory" in one.register(99, node=2)["error"]["message"]
    assert "error" in one.register(77, node=2, boot=4)
    assert "ok" in one.register(77, node=2, boot=6)


def test_ranges_of_a_log_cover_its_keys_once(one: Controller) -> None:
    one.do("create_log", name="even", ranges=7)
    one.do("create_log", name="split", split_at=[b"m", b"c"])
    for name in ("even", "split"):
        log = one.metadata.log_named(name)
        spans = [range_.span for range_ in one.metadata.ranges_of(log.log_id)]
        for key in [b"\0", b"b", b"c", b"m", b"zz", b"\xff" * 480]:
            assert sum(key in span for span in spans) == 1
    assert [r.span.start for r in one.metadata.ranges_of(2)] == [b"", b"c", b"m"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": ""}, "INVALID_ARGUMENT"),
        ({"name": "a b"}, "INVALID_ARGUMENT"),
        ({"name": "x" * 129}, "LIMIT_EXCEEDED"),
        ({"name": "ok", "ranges": 5000}, "LIMIT_EXCEEDED"),
        ({"name": "ok", "split_at": [b"a", b"a"]}, "INVALID_ARGUMENT"),
        ({"name": "ok", "split_at": [b""]}, "INVALID_ARGUMENT"),
        ({"name": "ok", "replicas": 8}, "INVALID_ARGUMENT"),
        ({"name": "ok", "cleanup": "never"}, "INVALID_ARGUMENT"),
        ({"name": "taken"}, "LOG_EXISTS"),
        ({}, "INVALID_ARGUMENT"),
    ],
)
def test_bad_logs_are_refused(one: Controller, fields: dict[str, Any], code: str) -> None:
    one.do("create_log", name="taken")
    assert one.do("create_log", **fields)["error"]["code"] == code


def test_exist_ok_and_delete(one: Controller) -> None:
    first = one.do("create_log", name="a", ranges=2)["ok"]
    assert one.do("create_log", name="a", exist_ok=True)["ok"]["log"] == first["log"]
    one.do("delete_log", name="a")
    assert not one.metadata.ranges
    assert one.metadata.is_done(1, 1)
    assert one.do("delete_log", name="a")["error"]["code"] == "LOG_NOT_FOUND"
    again = one.do("create_log", name="a")["ok"]
    assert again["log"] != first["log"]
    assert 3 in one.metadata.ranges  # ids are never used again


def test_S9_opening_a_named_producer_raises_its_epoch(one: Controller) -> None:
    first = one.do("open_producer", name="import")["ok"]
    second = one.do("open_producer", name="import")["ok"]
    assert (second["id"], second["epoch"]) == (first["id"], first["epoch"] + 1)
    block = one.do("open_producer")["ok"]
    assert block["id"] > first["id"]
    assert one.do("open_producer")["ok"]["id"] == block["id"] + block["count"]


def lineage(range_id: int, generation: int) -> list[list[Any]]:
    return [[range_id, generation, 10, 2, 5, 7, b"hash"]]


def test_expand_goes_through_its_phases_and_only_forwards(one: Controller) -> None:
    one.do("create_log", name="a")
    one.register(2)
    assert plan(one.metadata, {1, 2}, {}) == []  # two nodes: still one member
    one.register(3)
    assert plan(one.metadata, {1, 2}, {}) == []  # node 3 is not heard from
    (planned,) = plan(one.metadata, {1, 2, 3}, {})
    assert planned.members == (1, 2, 3)
    fields: dict[str, Any] = {
        "kind": planned.kind, "inputs": [[planned.range_id, planned.generation]],
        "outputs": [{"range": planned.range_id, "members": planned.members}],
    }  # fmt: skip
    operation = one.do("plan", **fields)["ok"]["operation"]
    assert one.do("plan", **fields)["error"]["code"] == "OPERATION_IN_PROGRESS"
    assert plan(one.metadata, {1, 2, 3}, {}) == []
    decide: dict[str, Any] = {"operation": operation, "lineage": lineage(1, 1),
                              "members": [[1, 2, 3]]}  # fmt: skip
    assert "error" in one.do("decide", **decide)
    one.do("sealing", operation=operation)
    assert "error" in one.do("abort", operation=operation)  # x25: no way back
    assert "error" in one.do("decide", **{**decide, "lineage": lineage(1, 7)})
    one.do("decide", **decide)
    range_ = one.metadata.ranges[1]
    assert (range_.generation, range_.members) == (2, (1, 2, 3))
    assert range_.lineage[0].final_index == 10
    for node in (1, 2):
        one.do("installed", operation=operation, node=node)
        assert not one.metadata.is_done(1, 1)
    one.do("installed", operation=operation, node=3)
    assert one.metadata.is_done(1, 1)
    assert not one.metadata.operations
    assert one.metadata.ranges[1].operation == 0


def test_an_operation_ends_without_members_that_are_gone_once_most_hold_its_outputs(
    one: Controller,
) -> None:
    for node in (2, 3):
        one.register(node)
    one.do("create_log", name="a")
    one.do("plan", kind="repair", inputs=[[1, 1]], outputs=[{"range": 1, "members": [1, 2, 3]}])
    one.do("sealing", operation=1)
    one.do("decide", operation=1, lineage=lineage(1, 1), members=[[1, 2, 3]])
    one.do("installed", operation=1, node=1)
    assert "most of its members" in one.do("done", operation=1)["error"]["message"]
    assert not one.metadata.is_done(1, 1)
    one.do("installed", operation=1, node=3)
    assert "ok" in one.do("done", operation=1)
    assert one.metadata.is_done(1, 1)
    assert one.metadata.ranges[1].operation == 0


def test_x7_a_late_target_is_left_out(one: Controller) -> None:
    one.do("create_log", name="a")
    for node in (2, 3):
        one.register(node)
    one.do("plan", kind="expand", inputs=[[1, 1]], outputs=[{"range": 1, "members": [1, 2, 3]}])
    one.do("sealing", operation=1)
    one.do("decide", operation=1, lineage=lineage(1, 1), members=[[1]])
    assert one.metadata.ranges[1].members == (1,)
    assert one.metadata.ranges[1].generation == 2
    one.do("installed", operation=1, node=1)
    assert not one.metadata.operations


@pytest.fixture
def four() -> Controller:
    """Four nodes and a range on the first three."""
    controller = Controller().nodes(3)
    controller.do("create_log", name="a")
    controller.register(4)
    return controller


def test_a_move_puts_one_node_in_the_place_of_another(four: Controller) -> None:
    answer = four.do("move_range", **{"range": 1, "from": 2, "to": 4})["ok"]
    assert answer == {
        "operation": 1, "generation": 2, "members": [1, 3, 4], "version": four.metadata.version,
    }  # fmt: skip
    operation = four.metadata.operations[1]
    assert (operation.kind, operation.phase, operation.inputs) == ("move", "PLANNED", ((1, 1),))
    assert operation.reason == "an operator moves it from node 2 to node 4"
    (output,) = operation.outputs
    assert (output.range_id, output.generation, output.span) == (1, 2, four.metadata.ranges[1].span)
    assert four.metadata.ranges[1].operation == 1
    assert four.metadata.ranges[1].members == (1, 2, 3), "nothing has moved yet"
    four.do("sealing", operation=1)
    four.do("decide", operation=1, lineage=lineage(1, 1), members=[[4, 1, 3]])
    assert four.metadata.ranges[1].members == (1, 3, 4)
    for node in (1, 3):
        four.do("installed", operation=1, node=node)
        assert not four.metadata.is_done(1, 1), "x2.17: who leaves keeps its replica until then"
    four.do("installed", operation=1, node=4)
    assert four.metadata.is_done(1, 1)
    assert four.metadata.ranges[1].operation == 0
    back = four.do("move_range", **{"range": 1, "from": 4, "to": 2})["ok"]
    assert (back["generation"], back["members"]) == (3, [1, 2, 3])


def test_x25_a_move_may_be_given_up_while_it_is_planned(four: Controller) -> None:
    four.do("move_range", **{"range": 1, "from": 2, "to": 4})
    assert "ok" in four.do("abort", operation=1)
    range_ = four.metadata.ranges[1]
    assert (range_.generation, range_.members, range_.operation) == (1, (1, 2, 3), 0)


@pytest.mark.parametrize(
    ("asked", "code", "told"),
    [
        ((9, 1, 4), "RANGE_NOT_FOUND", "range 9 does not exist"),
        ((0, 1, 4), "INVALID_ARGUMENT", "range 0 is the controller"),
        ((1, 2, 2), "INVALID_ARGUMENT", "node 2 is given as source and target"),
        (
            (1, 4, 5),
            "NODE_NOT_FOUND",
            "node 4 has no replica of range 1; the members of the range are 1, 2, 3",
        ),
        ((1, 99, 4), "NODE_NOT_FOUND", "node 99 has no replica of range 1"),
        ((1, 1, 3), "CONFLICT", "node 3 has a replica of range 1 already; choose node 4"),
        ((1, 1, 99), "NODE_NOT_FOUND", "node 99 does not exist; choose node 4"),
        ((1, 1, 5), "CONFLICT", "node 5 is DRAINING and takes no replica: .*, or choose node 4"),
        ((1, 1, 6), "CONFLICT", "node 6 is DEAD and takes no replica: start the node"),
        ((1, 1, 7), "CONFLICT", "node 7 is REMOVED"),
        ((1, 1, 8), "CONFLICT", "node 8 is JOINING"),
        ((1, "1", 4), "INVALID_ARGUMENT", "from is '1'; give an integer"),
    ],
)
def test_a_move_that_cannot_be_is_refused_and_says_why(
    four: Controller, asked: tuple[Any, ...], code: str, told: str
) -> None:
    for node, state in enumerate(("DRAINING", "DEAD", "REMOVED", "JOINING"), 5):
        four.register(node)
        four.do("node_state", node=node, state=state)
    error = four.do("move_range", **dict(zip(("range", "from", "to"), asked, strict=True)))["error"]
    assert error["code"] == code
    assert re.search(told, error["message"]), error["message"]
    assert not four.metadata.operations


def test_a_move_is_refused_where_nobody_could_take_the_replica(four: Controller) -> None:
    four.do("node_state", node=4, state="DEAD")
    error = four.do("move_range", **{"range": 1, "from": 1, "to": 4})["error"]
    assert "no other node could take the replica" in error["message"]


def test_a_move_of_a_range_in_an_operation_names_that(four: Controller) -> None:
    assert "ok" in four.do("move_range", **{"range": 1, "from": 2, "to": 4})
    for move in ({"from": 2, "to": 4}, {"from": 3, "to": 4}):
        error = four.do("move_range", range=1, **move)["error"]
        assert error["code"] == "OPERATION_IN_PROGRESS"
        assert error["fields"] == {"range": 1, "operation": 1}
        assert "range 1 is in operation 1" in error["message"]


def test_only_so_many_moves_are_under_way_at_once(four: Controller) -> None:
    four.do("create_log", name="b", ranges=OPERATIONS_MAX)

    def move(range_id: int) -> dict[str, Any]:
        members = four.metadata.ranges[range_id].members
        (spare,) = {1, 2, 3, 4} - set(members)
        answer: dict[str, Any] = four.do(
            "move_range", **{"range": range_id, "from": members[0], "to": spare}
        )
        return answer

    for range_id in range(1, OPERATIONS_MAX + 1):
        assert "ok" in move(range_id)
    error = move(OPERATIONS_MAX + 1)["error"]
    assert error["code"] == "LIMIT_EXCEEDED"
    assert error["fields"] == {"limit": "operations_max", "value": OPERATIONS_MAX + 1,
                               "allowed": OPERATIONS_MAX}  # fmt: skip
    four.do("abort", operation=1)
    assert "ok" in move(OPERATIONS_MAX + 1)


def test_x29_the_last_record_names_the_next_members(one: Controller) -> None:
    assert plan_controller(one.metadata, {1}, {}) is None
    for node in (2, 3):
        one.register(node)
    planned = plan_controller(one.metadata, {1, 2, 3}, {})
    assert planned is not None
    assert (planned.kind, planned.members) == ("expand", (1, 2, 3))
    assert "error" in one.do("seal_controller", members=[1, 2])
    one.do("seal_controller", members=planned.members)
    assert one.metadata.sealed
    controller = one.metadata.controller
    assert (controller.generation, controller.members) == (2, (1, 2, 3))
    assert controller.lineage[0].final_index == len(one.log) + 1
    assert one.do("create_log", name="late")["error"]["code"] == "SEALED"
    one.metadata.begin_generation()
    assert "ok" in one.do("create_log", name="late")


def test_group_sizes_are_odd() -> None:
    assert [group_size(3, n) for n in range(1, 6)] == [1, 1, 3, 3, 3]
    assert group_size(5, 4) == 3
    assert group_size(1, 9) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_commands_keep_the_invariants(seed: int) -> None:
    rng = random.Random(seed)
    controller = Controller().nodes(3)
    ops = ["register", "create_log", "alter_log", "delete_log", "plan", "move_range",
           "split_range", "sealing", "decide", "installed", "abort", "open_producer",
           "node_state", "drain_node", "remove_node"]  # fmt: skip
    for _ in range(150):
        range_id, generation = rng.randrange(1, 8), rng.randrange(1, 4)
        controller.do(
            rng.choice(ops),
            changes={rng.choice(["retention_ms", "cleanup"]): rng.choice([None, 5, "compact"])},
            name=rng.choice("abc"), ranges=rng.randrange(1, 4), exist_ok=rng.random() < 0.5,
            incarnation=rng.randrange(1, 6), boot=rng.randrange(3), address="h:1", http="",
            kind="expand", inputs=[[range_id, generation]],
            outputs=[{"range": range_id, "members": rng.sample([1, 2, 3], rng.choice([1, 3]))}],
            operation=rng.randrange(1, 6), lineage=lineage(range_id, generation),
            members=[rng.sample([1, 2, 3], rng.choice([1, 3]))],
            node=rng.choice([None, 1, 2, 3]), undo=rng.random() < 0.5,
            dead=rng.random() < 0.5, state=rng.choice(["ACTIVE", "DEAD", "odd"]),
            log=rng.choice("abc"), at=rng.choice([b"", b"k", b"m", b"t", 5]),
            **{"range": range_id, "from": rng.randrange(1, 4), "to": rng.randrange(1, 7)},
        )  # fmt: skip
    replayed = Metadata()
    for index, data in enumerate(controller.log, 2):
        command = decode(data)
        assert command is not None
        replayed.apply(index, 1, command)
    assert replayed.image() == controller.metadata.image()


def test_spans_need_sane_borders() -> None:
    with pytest.raises(LimitExceeded):
        allocate.even_spans(0)
    with pytest.raises(InvalidArgument):
        allocate.spans_at([b"x" * 481])


def test_a_silent_node_is_dead_until_it_is_heard() -> None:
    controller = Controller().nodes(3)
    assert node_states(controller.metadata, {1, 2, 3}) == []
    assert node_states(controller.metadata, {1, 3}) == [(2, "DEAD")]
    controller.do("node_state", node=2, state="DEAD")
    assert node_states(controller.metadata, {1, 3}) == []
    assert plan(controller.metadata, {1, 3}, {}) == []
    assert node_states(controller.metadata, {1, 2, 3}) == [(2, "ACTIVE")]
    controller.do("node_state", node=3, state="DRAINING")
    assert node_states(controller.metadata, {1, 2}) == [(2, "ACTIVE")], "draining stays draining"


def test_a_log_is_altered_by_a_command_that_may_come_twice(one: Controller) -> None:
    one.do("create_log", name="a", retention_ms=86_400_000, ranges=2)
    for _ in range(2):
        answer = one.do("alter_log", name="a", changes={"retention_ms": 5})["ok"]
        assert answer["policy"] == {
            "replicas": 3, "retention_ms": 5, "retention_bytes": None, "cleanup": "delete",
            "delete_retention_ms": None, "snapshot_delay_ms": None, "split_bytes": 512 << 20,
            "split_rate": 20_000,
        }  # fmt: skip
    assert one.metadata.log_named("a").policy.ranges_min == 2
    assert one.do("alter_log", name="b", changes={})["error"]["code"] == "LOG_NOT_FOUND"
    assert one.do("alter_log", name="a")["error"]["code"] == "INVALID_ARGUMENT"
    bad = one.do("alter_log", name="a", changes={"replicas": 1})
    assert bad["error"]["code"] == "INVALID_ARGUMENT"


def test_an_image_of_before_these_rules_is_still_read(one: Controller) -> None:
    one.do("create_log", name="a", retention_ms=86_400_000)
    image = one.metadata.image()
    for rule in ("delete_retention_ms", "snapshot_delay_ms"):
        del image["logs"][0]["policy"][rule]
    assert Metadata.from_image(image).log_named("a").policy == Policy(retention_ms=86_400_000)


def expanded(one: Controller, *, at_ms: int) -> None:
    """Range 1 of a log goes on with three members."""
    one.do("plan", kind="expand", inputs=[[1, 1]], reason="needs 3 replicas",
           outputs=[{"range": 1, "members": [1, 2, 3]}])  # fmt: skip
    one.do("sealing", operation=1)
    one.do("decide", operation=1, lineage=lineage(1, 1), members=[[1, 2, 3]])
    for node in (1, 2, 3):
        assert 1 not in one.metadata.last_operations, "it has not ended"
        one.do("installed", operation=1, node=node, at_ms=at_ms + node)


def three(one: Controller) -> None:
    for node in (2, 3):
        one.register(node)
    one.do("create_log", name="a", replicas=1)


def test_why_a_range_was_changed_last_stays_when_the_operation_is_gone(one: Controller) -> None:
    three(one)
    fingerprint = one.metadata.ranges[1].fingerprint()
    expanded(one, at_ms=1_000)
    assert one.metadata.last_operations == {1: (1, "expand", "needs 3 replicas", "DONE", 1_003, ())}
    grown = one.metadata.ranges[1].fingerprint()
    assert grown != fingerprint
    one.do("plan", kind="repair", inputs=[[1, 2]], reason="of node 2: " + "x" * 1_000,
           outputs=[{"range": 1, "members": [1, 2, 3]}])  # fmt: skip
    assert one.metadata.last_operations[1].kind == "expand", "until the next one has ended"
    one.do("abort", operation=2, at_ms=2_000)
    last = one.metadata.last_operations[1]
    assert (last.operation_id, last.kind, last.outcome) == (2, "repair", "ABORTED")
    assert len(last.reason) == REASON_CHARS_MAX
    assert last.reason.startswith("of node 2: xxx")
    assert one.metadata.ranges[1].fingerprint() == grown, "no group notices it"
    one.do("delete_log", name="a")
    assert one.metadata.last_operations == {}


def test_an_operation_that_ends_without_all_members_is_remembered_too(one: Controller) -> None:
    three(one)
    one.do("plan", kind="expand", inputs=[[1, 1]], reason="needs 3 replicas",
           outputs=[{"range": 1, "members": [1, 2, 3]}])  # fmt: skip
    one.do("sealing", operation=1)
    one.do("decide", operation=1, lineage=lineage(1, 1), members=[[1, 2, 3]])
    for node in (1, 2):
        one.do("installed", operation=1, node=node, at_ms=5)
    one.do("done", operation=1, at_ms=6)
    assert one.metadata.last_operations == {1: (1, "expand", "needs 3 replicas", "DONE", 6, ())}


def test_x7_the_reason_says_that_the_new_members_were_left_out(one: Controller) -> None:
    three(one)
    one.do("plan", kind="expand", inputs=[[1, 1]], reason="needs 3 replicas",
           outputs=[{"range": 1, "members": [1, 2, 3]}])  # fmt: skip
    one.do("sealing", operation=1)
    one.do("decide", operation=1, lineage=lineage(1, 1), members=[[1]])
    one.do("installed", operation=1, node=1, at_ms=5)
    assert one.metadata.last_operations[1].reason == (
        "needs 3 replicas; the old members go on: the new ones were not ready in time"
    )


def test_why_the_controller_was_changed_goes_into_its_next_generation(one: Controller) -> None:
    one.do("seal_controller", members=[1], kind="repair", reason="damaged", at_ms=9)
    one.metadata.begin_generation()
    assert one.metadata.last_operations == {0: (0, "repair", "damaged", "DONE", 9, ())}


def test_records_and_images_of_before_there_were_reasons_are_still_read(one: Controller) -> None:
    three(one)
    one.do("plan", kind="expand", inputs=[[1, 1]], outputs=[{"range": 1, "members": [1, 2, 3]}])
    one.do("abort", operation=1)
    assert one.metadata.last_operations == {1: (1, "expand", "", "ABORTED", 0, ())}
    one.do("seal_controller", members=[1])
    assert 0 not in one.metadata.last_operations
    image = one.metadata.image()
    del image["last_operations"]
    assert Metadata.from_image(image).last_operations == {}


def test_records_and_images_of_before_the_port_for_peers_are_still_read(one: Controller) -> None:
    one.register(77)
    image = one.metadata.image()
    assert "peer" not in image["nodes"][1]
    known = Metadata.from_image(image).nodes[2]
    assert (known.peer, known.peer_address) == ("", known.address)
    assert known == one.metadata.nodes[2]


@pytest.mark.parametrize("at_ms", [-1, "now", 1.5])
def test_a_malformed_time_ends_no_operation(one: Controller, at_ms: Any) -> None:
    three(one)
    one.do("plan", kind="expand", inputs=[[1, 1]], outputs=[{"range": 1, "members": [1, 2, 3]}])
    assert one.do("abort", operation=1, at_ms=at_ms)["error"]["code"] == "INVALID_ARGUMENT"
    assert 1 in one.metadata.operations
