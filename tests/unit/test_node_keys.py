"""The TLS keys of nodes in the metadata: a node is the key with which it registered."""

import asyncio
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client.protocol.errors import InvalidArgument, Unauthorized
from lognode.node.serving.cluster_service import ClusterService
from lognode.partitions.metadata import Metadata

OURS, THEIRS = "ab" * 32, "cd" * 32


@pytest.fixture
def one() -> Controller:
    controller = Controller()
    controller.do("found", cluster="c", node=1, founders=9)  # who need no invitation
    controller.register(1)
    return controller


def key_of(controller: Controller, node: int) -> str:
    return controller.metadata.nodes[node].key


def test_an_incarnation_cannot_be_claimed_with_another_key(one: Controller) -> None:
    assert one.register(77, key=OURS)["ok"]["node"] == 2
    assert one.register(77, key=OURS)["ok"]["node"] == 2  # its answer was lost
    for node in (None, 2):
        refused = one.register(77, node=node, boot=2, key=THEIRS)["error"]
        assert refused["code"] == "UNAUTHORIZED"
        assert f"lognode node rekey 2 --key {THEIRS}" in refused["message"]
    assert key_of(one, 2) == OURS
    assert one.register(78, key=OURS)["ok"]["node"] == 3  # another directory of the same machine


def test_a_key_stays_through_a_start_without_tls(one: Controller) -> None:
    one.register(77, key=OURS)
    assert "ok" in one.register(77, node=2, boot=2)
    assert key_of(one, 2) == OURS
    assert "error" in one.register(77, node=2, boot=3, key=THEIRS)


def test_a_node_gets_its_key_with_its_first_start_with_tls(one: Controller) -> None:
    assert "ok" in one.register(1, node=1, boot=2, key=OURS)
    assert key_of(one, 1) == OURS
    assert "error" in one.register(1, node=1, boot=3, key=THEIRS)


def test_a_key_stays_through_the_states_of_a_node(one: Controller) -> None:
    one.register(77, key=OURS)
    for state in ("DEAD", "ACTIVE"):
        one.do("node_state", node=2, state=state)
    for undo in (False, True):
        one.do("drain_node", node=2, undo=undo)
    assert key_of(one, 2) == OURS


def test_an_operator_binds_a_node_to_another_key(one: Controller) -> None:
    one.register(77, key=OURS)
    for _ in range(2):
        answer = one.do("rekey_node", node=2, key=THEIRS)["ok"]
        assert (answer["node"], answer["state"]) == (2, "ACTIVE")
    assert key_of(one, 2) == THEIRS
    assert "error" in one.register(77, node=2, boot=2, key=OURS)
    assert "ok" in one.register(77, node=2, boot=2, key=THEIRS)
    assert one.do("rekey_node", node=9, key=OURS)["error"]["code"] == "NODE_NOT_FOUND"
    one.do("node_state", node=2, state="DEAD")
    one.do("remove_node", node=2, dead=True)
    assert one.do("rekey_node", node=2, key=OURS)["error"]["code"] == "CONFLICT"


@pytest.mark.parametrize("key", ["", "ab", "AB" * 32, "xy" * 32, "ab" * 33, "ab" * 32 + "\n", 7])
def test_a_malformed_fingerprint_is_refused(one: Controller, key: Any) -> None:
    refused = one.do("rekey_node", node=1, key=key)["error"]
    assert refused["code"] == "INVALID_ARGUMENT"
    if key:
        assert one.register(77, key=key)["error"]["code"] == "INVALID_ARGUMENT"


def test_an_image_has_keys_only_where_nodes_have(one: Controller) -> None:
    """A node of before reads images without keys, and this one reads those of before."""
    image = one.metadata.image()
    assert "key" not in image["nodes"][0]
    assert Metadata.from_image(image).nodes[1].key == ""
    one.register(77, key=OURS)
    image = one.metadata.image()
    assert [node.get("key") for node in image["nodes"]] == [None, OURS]
    assert Metadata.from_image(image).nodes[2].key == OURS


REGISTER = {
    "op": "register", "node": 2, "incarnation": 5, "boot": 1, "process": 7, "address": "h:1",
    "http": "h:2", "zone": "",
}  # fmt: skip


def test_a_node_registers_itself_and_nobody_else() -> None:
    async def run() -> None:
        done: list[dict[str, Any]] = []

        async def execute(command: dict[str, Any]) -> dict[str, Any]:
            done.append(command)
            return {}

        service = ClusterService.__new__(ClusterService)
        service.execute = execute  # type: ignore[method-assign]
        for node in (2, None):
            await service.peer_command(2, {"command": {**REGISTER, "node": node}})
        for node in (3, 1, "2", True):
            with pytest.raises(Unauthorized, match="node 2 cannot register node"):
                await service.peer_command(2, {"command": {**REGISTER, "node": node}})
        with pytest.raises(InvalidArgument):
            await service.peer_command(2, {"command": {"op": "found", "node": 2}})
        assert [command["node"] for command in done] == [2, None]

    asyncio.run(run())
