"""Why an operation was planned: the records of the metadata hold codes, and readers get words.

The members of the controller must come to the same records. So what is stored is a format, written
down here, and the words may change with every version.
"""

from typing import Any

import msgpack
import pytest
from metadata_log import Controller

from lognode.node.serving import words
from lognode.partitions import reasons
from lognode.partitions.model import Cause, LastOperation, Operation
from lognode.partitions.received_rows import is_row

KEY = "n\u00f6\u0378".encode()
"""A text with a character that Unicode has not assigned: a later Python may call it printable."""
CODES = {
    1: ("MOVED", (int, int)),
    2: ("SPLIT", (bytes,)),
    3: ("RECOVERED", (int,)),
    4: ("MERGED", (int, bytes)),
    5: ("GIVEN_UP", ()),
    6: ("MEMBERS_KEPT", ()),
}
"""A code never gets another meaning. A new code needs a new feature level."""
TEXTS = {
    1: "an operator moves it from node 3 to node 4",
    2: "an operator splits it at key 'm'",
    3: "an operator goes on from node 3 alone",
    4: "an operator merges it with range 3 at key 'm'",
    5: "; given up: not both were sealed and held in time",
    6: "; the old members go on: the new ones were not ready in time",
}
"""What apply stores below level 3, in every version."""
VALUES: dict[int, tuple[Any, ...]] = {1: (3, 4), 2: (b"m",), 3: (3,), 4: (3, b"m"), 5: (), 6: ()}


def test_the_codes_and_the_types_of_their_values_are_a_format() -> None:
    named = {name: code for name, code in vars(reasons).items() if type(code) is int}
    assert named.pop("CAUSES_FROM") == 3
    names = {code: name for name, code in named.items()}
    assert {code: (names[code], types) for code, types in reasons.VALUES.items()} == CODES


@pytest.mark.parametrize("code", CODES)
def test_below_level_3_the_texts_are_those_of_every_version(code: int) -> None:
    cause = Cause(code, VALUES[code])
    for level in (1, 2):
        assert reasons.Reason("why").then(level, cause) == ("why" + TEXTS[code], ())
    assert reasons.Reason("why").then(3, cause) == ("why", ((code, VALUES[code]),))


@pytest.mark.parametrize("code", CODES)
def test_each_cause_has_words_for_all_its_values(code: int) -> None:
    told = words.of_reason("", [Cause(code, VALUES[code])])
    for value in VALUES[code]:
        assert ("'m'" if value == b"m" else str(value)) in told
    assert words.of_reason("too large", [Cause(code, VALUES[code])]) == f"too large; {told}"


def test_the_words_of_a_later_version_are_not_known() -> None:
    assert words.of_reason("", [Cause(99, (7, b"k"))]) == "cause 99 (7, 'k')"
    assert words.of_reason("only a text", ()) == "only a text"


def cluster(level: int) -> Controller:
    """Four nodes, and a log of two ranges on three of them, at the feature level."""
    found = Controller().nodes(3)
    found.do("create_log", name="orders", split_at=[b"m"], replicas=3)
    found.register(4)
    if level > 1:
        nodes = [[n.node_id, n.boot, n.process] for n in found.metadata.nodes.values()]
        assert "ok" in found.do("finalize", level=level, nodes=nodes)
    return found


def stored(found: Controller) -> Any:
    """What the members keep of the operations' reasons, as packed."""
    image = msgpack.unpackb(msgpack.packb(found.metadata.image()), strict_map_key=False)
    return (
        [[each["reason"], each.get("causes")] for each in image["operations"]],
        {range_id: [last[2], *last[5:]] for range_id, last in image["last_operations"].items()},
    )


def ends(found: Controller, *gids: tuple[int, int]) -> list[list[Any]]:
    return [[*gid, 9, 1, 5, 5, b"hash"] for gid in gids]


def test_x2_22_members_store_codes_from_level_3_on() -> None:
    found = cluster(3)
    members = found.metadata.ranges[1].members
    absent = ({1, 2, 3, 4} - set(members)).pop()
    found.do("move_range", **{"range": 1, "from": members[0], "to": absent})
    assert stored(found) == ([["", [[1, [members[0], absent]]]]], {})
    found.do("sealing", operation=1)
    found.do("decide", operation=1, lineage=ends(found, (1, 1)), members=[list(members)])
    assert stored(found)[0] == [["", [[1, [members[0], absent]], [6, []]]]]
    for node in members:
        found.do("installed", operation=1, node=node, at_ms=1)
    last = ["", [[1, [members[0], absent]], [6, []]]]
    assert stored(found) == ([], {1: last})
    found.do("split_range", log="orders", at=KEY)
    found.do("split_range", log="orders", at=b"c", reason="the range is large")
    assert stored(found)[0] == [["", [[2, [KEY]]]], ["the range is large", None]]
    for operation in (2, 3):
        found.do("abort", operation=operation, at_ms=2)
    assert stored(found)[1] == {1: ["the range is large"], 2: ["", [[2, [KEY]]]]}
    found.do("merge_ranges", log="orders", at=b"m")
    assert stored(found)[0] == [["", [[4, [2, b"m"]]]]]
    found.do("sealing", operation=4)
    found.do("apart", operation=4)
    assert stored(found)[0] == [["", [[4, [2, b"m"]], [5, []]]]] * 2


def test_x2_22_a_recovery_is_stored_as_a_code() -> None:
    found = cluster(3)
    members = found.metadata.ranges[1].members
    for node in members[1:]:
        found.do("node_state", node=node, state="DEAD")
    assert "ok" in found.do("recover_range", **{"range": 1, "from": members[0]})
    assert stored(found)[0] == [["", [[3, [members[0]]]]]]


@pytest.mark.parametrize("level", [1, 2])
def test_x2_22_below_level_3_records_are_those_that_earlier_versions_write(level: int) -> None:
    found = cluster(level)
    found.do("merge_ranges", log="orders", at=b"m")
    found.do("sealing", operation=1)
    found.do("apart", operation=1)
    text = (
        "an operator merges it with range 2 at key 'm'"
        "; given up: not both were sealed and held in time"
    )
    assert stored(found)[0] == [[text, None]] * 2


def test_an_operation_goes_on_when_the_level_is_raised_in_its_midst() -> None:
    found = cluster(2)
    found.do("merge_ranges", log="orders", at=b"m")
    found.do("sealing", operation=1)
    nodes = [[n.node_id, n.boot, n.process] for n in found.metadata.nodes.values()]
    found.do("finalize", level=3, nodes=nodes)
    found.do("apart", operation=1)
    assert stored(found)[0] == [["an operator merges it with range 2 at key 'm'", [[5, []]]]] * 2


def test_records_of_earlier_versions_are_read() -> None:
    last = LastOperation.from_image([7, "move", "an operator moves it", "DONE", 5])
    assert last == (7, "move", "an operator moves it", "DONE", 5, ())
    assert last.to_image() == [7, "move", "an operator moves it", "DONE", 5]
    body = {"operation_id": 1, "kind": "move", "inputs": [[1, 1]], "outputs": [],
            "phase": "PLANNED", "reason": "r", "installed": []}  # fmt: skip
    assert Operation.from_image(body).causes == ()
    assert "causes" not in Operation.from_image(body).to_image()


@pytest.mark.parametrize(
    ("causes", "is_good"),
    [
        ([[1, [3, 4]], [6, []]], True), ([[2, [KEY]]], True), ([[99, [1, b"x"]]], True), ([], True),
        ([[1, [3]]], False), ([[2, [5]]], False), ([[6, [5]]], False), ([[1, [True, 4]]], False),
        ([[99, ["text"]]], False), ([["1", []]], False), ([[1]], False), ([1], False),
        ([[True, []]], False), ([[5, {}]], False), ({}, False), (None, False), ("", False),
    ],
)  # fmt: skip
def test_causes_from_another_node_are_checked(causes: Any, *, is_good: bool) -> None:
    body = {"operation_id": 1, "kind": "move", "inputs": [[1, 1]], "outputs": [],
            "phase": "PLANNED", "reason": "r", "installed": [], "causes": causes}  # fmt: skip
    assert is_row("operations", body) is is_good
    assert is_row("last_operations", [1, [7, "move", "r", "DONE", 5, causes]]) is is_good
    assert not is_row("last_operations", [1, [7, "move", "r", "DONE", 5, causes, causes]])
    assert is_row("last_operations", [1, [7, "move", "r", "DONE", 5]])
