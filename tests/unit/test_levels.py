"""The feature level of the cluster: who may raise it and when, and which nodes it keeps out."""

from typing import Any

import pytest

from lognode.client.protocol.errors import Conflict, InvalidArgument, LognodeError, from_wire
from lognode.client.protocol.levels import LEVEL_MAX, missing
from lognode.partitions import buckets, commands, levels, proposals, received
from lognode.partitions.levels import Program
from lognode.partitions.metadata import Metadata
from lognode.statemachine.unknown import UnknownCommandError

NODES = {1: [1, 11], 2: [1, 12], 3: [1, 13]}
"""Boot and process of each node."""


class Cluster:
    """The metadata of three nodes, and what the controller's leader has heard of them."""

    def __init__(self) -> None:
        self.metadata = Metadata()
        self.programs: dict[int, Program] = {}
        self.alive = {1, 2, 3}
        self._index = 1
        self.apply(commands.FOUND, cluster="c" * 32, node=1)
        for node, (boot, process) in NODES.items():
            self.register(node, boot, process, (1, LEVEL_MAX))
            self.programs[node] = Program(boot, process, 1, LEVEL_MAX, "9.9")

    def apply(self, op: str, **fields: Any) -> dict[str, Any]:
        self._index += 1
        answer = self.metadata.apply(self._index, 1, {"op": op, **fields})
        if "error" in answer:
            raise from_wire(answer["error"])
        ok: dict[str, Any] = answer["ok"]
        return ok

    def register(self, node: int, boot: int, process: int, known: Any) -> dict[str, Any]:
        own = {} if known is None else {"levels": list(known)}
        known_node = node if node in self.metadata.nodes or node == 1 else None
        return self.apply(
            commands.REGISTER, node=known_node, incarnation=node, boot=boot, process=process,
            address=f"h{node}:1", peer="", http="", zone="", key="", **own,
        )  # fmt: skip

    def completed(self, level: int | None = None) -> dict[str, Any]:
        command = proposals.checked({"op": commands.FINALIZE, "level": level}, {})
        return levels.completed(command, self.metadata, self.programs, self.alive)

    def finalize(self, level: int | None = None) -> int:
        command = proposals.checked(self.completed(level), self.metadata.nodes)
        found: int = self.apply(**command)["level"]
        return found


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_cluster_begins_at_the_first_level_and_is_raised_as_far_as_all_can(
    cluster: Cluster,
) -> None:
    version = cluster.metadata.version
    assert cluster.metadata.feature_level == 1
    assert levels.offered(cluster.metadata, cluster.programs) == LEVEL_MAX
    assert cluster.finalize() == cluster.metadata.feature_level == LEVEL_MAX
    assert cluster.metadata.version == version + 1
    assert levels.offered(cluster.metadata, cluster.programs) is None


def test_a_repetition_changes_nothing(cluster: Cluster) -> None:
    cluster.finalize()
    for level in (None, LEVEL_MAX):
        # The leader answers at once what it finds so, and proposes nothing.
        again = cluster.metadata.rehearse(9, 1, cluster.completed(level))
        assert again == {"ok": {"level": LEVEL_MAX}}
        assert cluster.finalize(level) == cluster.metadata.feature_level == LEVEL_MAX


def test_a_level_is_never_lowered(cluster: Cluster) -> None:
    cluster.finalize()
    with pytest.raises(
        Conflict, match=f"is at feature level {LEVEL_MAX}, and a level is never lowered"
    ):
        cluster.completed(1)
    with pytest.raises(Conflict, match="never lowered"):
        cluster.apply(commands.FINALIZE, level=1, nodes=[[n, *at] for n, at in NODES.items()])
    assert cluster.metadata.feature_level == LEVEL_MAX


def test_all_nodes_that_do_not_know_the_level_are_named(cluster: Cluster) -> None:
    cluster.programs[2] = Program(1, 12, 1, 1, "8.8")
    cluster.alive.remove(3)
    for level in (None, LEVEL_MAX):
        with pytest.raises(Conflict) as caught:
            cluster.completed(level)
        assert caught.value.message == (
            f"the cluster stays at feature level 1, since not all nodes know level {LEVEL_MAX}: "
            "node 2 runs version 8.8, which knows level 1 alone; node 3 is down. Upgrade these "
            "nodes and start them; remove a node that never comes back: `lognode node remove`"
        )
    assert levels.offered(cluster.metadata, cluster.programs) is None


def test_a_node_that_is_down_counts_until_it_is_removed(cluster: Cluster) -> None:
    cluster.alive.remove(3)
    assert levels.offered(cluster.metadata, cluster.programs) == LEVEL_MAX
    cluster.apply(commands.NODE_STATE, node=3, state="DEAD")
    assert levels.offered(cluster.metadata, cluster.programs) is None
    with pytest.raises(Conflict, match="node 3 is down"):
        cluster.completed()
    cluster.apply(commands.REMOVE_NODE, node=3, dead=True)
    assert cluster.finalize() == LEVEL_MAX


def test_a_node_of_an_older_version_tells_no_program(cluster: Cluster) -> None:
    cluster.programs[3] = Program.of_older(cluster.metadata.nodes[3])
    with pytest.raises(Conflict, match="node 3 runs version before feature levels, which knows "
                       "level 1 alone"):  # fmt: skip
        cluster.completed()


@pytest.mark.parametrize(
    "heard", [None, Program(1, 99, 1, LEVEL_MAX, "9.9"), Program(0, 13, 1, LEVEL_MAX, "9.9")]
)
def test_levels_that_another_process_of_a_node_has_told_do_not_count(
    cluster: Cluster, heard: Program | None
) -> None:
    """A node may have come back with an earlier version since its last heartbeat."""
    del cluster.programs[3]
    if heard is not None:
        cluster.programs[3] = heard
    with pytest.raises(Conflict, match="node 3 has not said which levels it knows"):
        cluster.completed(2)
    assert levels.offered(cluster.metadata, cluster.programs) is None


def test_a_level_that_no_program_knows_is_refused(cluster: Cluster) -> None:
    expected = rf"no feature level {LEVEL_MAX + 1} exists .* knows levels 1 to {LEVEL_MAX}"
    with pytest.raises(InvalidArgument, match=expected):
        cluster.completed(LEVEL_MAX + 1)


@pytest.mark.parametrize("between", ["joined", "started again", "rolled back"])
def test_a_node_that_registers_between_the_look_and_the_entry_stops_it(
    cluster: Cluster, between: str
) -> None:
    command = cluster.completed()
    if between == "joined":
        cluster.register(4, 0, 14, None)
    else:
        cluster.register(3, 2, 23, (1, LEVEL_MAX) if between == "started again" else None)
    with pytest.raises(Conflict, match=r"node [34] has joined or started again meanwhile"):
        cluster.apply(**command)
    assert cluster.metadata.feature_level == 1


def test_every_program_registers_at_the_first_level(cluster: Cluster) -> None:
    for boot, known in ((2, None), (3, (1, 1)), (4, (1, 7))):
        assert cluster.register(3, boot, boot, known)["node"] == 3


@pytest.mark.parametrize("known", [None, (1, 1)])
@pytest.mark.parametrize("node", [3, 4])
def test_a_program_that_does_not_know_the_level_is_not_registered(
    cluster: Cluster, node: int, known: Any
) -> None:
    cluster.finalize()
    before = cluster.metadata.image()
    with pytest.raises(LognodeError) as caught:
        cluster.register(node, 0 if node == 4 else 2, 99, known)
    assert caught.value.code == "UNSUPPORTED"
    assert not caught.value.retryable
    assert caught.value.message == (
        f"the cluster is at feature level {LEVEL_MAX}, and this version of lognode knows level 1 "
        f"alone: start a later version, which knows level {LEVEL_MAX}"
    )
    assert cluster.metadata.image() == before
    assert cluster.register(node, 0 if node == 4 else 2, 99, (1, LEVEL_MAX))["node"] == node


def test_a_member_stops_before_a_level_that_its_program_does_not_know(cluster: Cluster) -> None:
    before = cluster.metadata.image()
    level, nodes = LEVEL_MAX + 1, [[n, *at] for n, at in NODES.items()]
    with pytest.raises(UnknownCommandError, match=f"level {level}; this program knows 1, 2, 3"):
        cluster.apply(commands.FINALIZE, level=level, nodes=nodes)
    assert cluster.metadata.image() == before


def test_members_that_keep_other_programs_apply_the_command_alike(cluster: Cluster) -> None:
    """A member of an earlier version that applied the registrations has kept no levels."""
    other = Cluster()
    for node in (2, 3):
        other.register(node, 1, NODES[node][1], None)
    command = cluster.completed()
    assert cluster.apply(**command) == other.apply(**command) == {"level": LEVEL_MAX}
    assert cluster.metadata.image()["nodes"] == other.metadata.image()["nodes"]


def test_images_have_the_level_above_the_first_one(cluster: Cluster) -> None:
    assert "feature_level" not in cluster.metadata.image()
    assert "feature_level" not in cluster.metadata.head, "nodes of earlier versions refuse it"
    assert Metadata.from_image(cluster.metadata.image()).feature_level == 1
    cluster.finalize()
    assert Metadata.from_image(cluster.metadata.image()).feature_level == LEVEL_MAX
    assert buckets.copy(cluster.metadata).feature_level == LEVEL_MAX


def test_x3_an_image_with_a_lower_level_contradicts(cluster: Cluster) -> None:
    known = buckets.copy(cluster.metadata)
    known.feature_level = 2
    later = buckets.copy(cluster.metadata)
    later.version += 1
    with pytest.raises(Conflict, match="was at feature level 2"):
        for _ in received.steps(later, known):
            pass


def test_a_program_that_cannot_serve_is_told_what_to_start() -> None:
    assert missing(1) is missing(2) is None
    told = f"levels 1 to {LEVEL_MAX}: start a later version, which knows level {LEVEL_MAX + 1}"
    assert told in str(missing(LEVEL_MAX + 1))
    assert "levels 2 to 3: start an earlier version, which knows level 1" in str(missing(1, 2, 3))
