"""What `lognode dev` finds of an earlier run, and what it refuses to start with."""

import fcntl
import socket
from pathlib import Path
from typing import Any

import pytest

from lognode import testing
from lognode.client.protocol.errors import InvalidArgument, Unavailable
from lognode.node.directory import meta_keys
from lognode.node.directory.data_directory import DirectoryInUse, Identity, identity_row
from lognode.node.local.dev import LocalCluster
from lognode.node.local.dev_data import (
    KeptNode,
    check_kept,
    directories_of,
    first_port,
    kept_nodes,
)
from lognode.partitions.metadata import Metadata
from lognode.statemachine.meta import LmdbMeta


def image(
    nodes: int, *, removed: int | None = None, first: int = 4600, http: int | None = None
) -> Metadata:
    found = Metadata()
    commands: list[dict[str, Any]] = [{"op": "found", "cluster": "c", "node": 1}]
    commands += [
        {"op": "register", "incarnation": n, "boot": 1, "process": 1, "node": None, "zone": "",
         "address": f"127.0.0.1:{first + 3 * (n - 1)}",
         "peer": f"127.0.0.1:{first + 3 * (n - 1) + 1}",
         "http": f"127.0.0.1:{first + 3 * (n - 1) + 2 if http is None else http + n - 1}"}
        for n in range(1, nodes + 1)
    ]  # fmt: skip
    if removed is not None:
        commands.append({"op": "node_state", "node": removed, "state": "DEAD"})
        commands.append({"op": "remove_node", "node": removed, "dead": True})
    for index, command in enumerate(commands, 2):
        assert "ok" in found.apply(index, 1, command)
    return found


def make(root: Path, number: int, metadata: Metadata | None, cluster: str = "c") -> Path:
    """The directory of a stopped node; without an image, of a node that never got an identity."""
    data = root / f"node{number}"
    data.mkdir(parents=True)
    (data / "lock").write_text("1\n")
    meta = LmdbMeta(data / "meta.mdb", map_bytes=1 << 20)
    if metadata is not None:
        identity = Identity(cluster, number, number, 1)
        meta.commit({**identity_row(identity), meta_keys.IMAGE: metadata.image()})
    meta.close()
    return data


def kept(root: Path) -> dict[int, KeptNode]:
    return kept_nodes(directories_of(root))


def addresses(nodes: int, first: int = 4600) -> dict[int, str]:
    return {n: f"127.0.0.1:{first + 3 * (n - 1)}" for n in range(1, nodes + 1)}


def test_nodes_are_found_by_their_identity_and_the_newest_metadata(tmp_path: Path) -> None:
    make(tmp_path, 1, image(1))  # it has not heard of the others yet
    make(tmp_path, 2, image(3))
    make(tmp_path, 3, None)
    (tmp_path / "node7").mkdir()
    (tmp_path / "node0").mkdir()
    (tmp_path / "other").mkdir()
    found = kept(tmp_path)
    assert [(n, node.node_id, node.address, node.http) for n, node in found.items()] == [
        (1, 1, "127.0.0.1:4600", "127.0.0.1:4602"), (2, 2, "127.0.0.1:4603", "127.0.0.1:4605"),
    ]  # fmt: skip
    assert first_port(found) == 4600
    check_kept(tmp_path, found, addresses(2))
    check_kept(tmp_path, found, addresses(5))
    assert kept_nodes(directories_of(tmp_path / "none")) == {}


def test_a_cluster_takes_the_addresses_of_the_nodes_that_were_here(tmp_path: Path) -> None:
    for number in (1, 2):
        make(tmp_path, number, image(2, first=7_100))
    again = LocalCluster(tmp_path, 3, default_port=4600)
    assert [node.address for node in again.nodes] == list(addresses(3, 7_100).values())
    assert again.nodes[2].peer == "127.0.0.1:7107"
    assert again.nodes[2].http == "127.0.0.1:7108"


def test_the_first_node_of_a_new_cluster_has_the_ports_of_a_node_without_flags(
    tmp_path: Path,
) -> None:
    made = LocalCluster(tmp_path, 2, default_port=4600, default_http=4680)
    ports = [(node.address, node.peer, node.http) for node in made.nodes]
    assert ports[0] == ("127.0.0.1:4600", "127.0.0.1:4601", "127.0.0.1:4680")
    assert ports[1] == ("127.0.0.1:4603", "127.0.0.1:4604", "127.0.0.1:4681")
    based = LocalCluster(tmp_path, 1, base_port=7_100, default_port=4600, default_http=4680)
    assert based.nodes[0].http == "127.0.0.1:7102"


def test_more_nodes_go_on_in_both_rows_of_ports(tmp_path: Path) -> None:
    for number in (1, 2):
        make(tmp_path, number, image(2, first=7_100, http=7_180))
    assert first_port(kept(tmp_path)) is None
    again = LocalCluster(tmp_path, 3, default_port=4600, default_http=4680)
    assert [node.address for node in again.nodes] == list(addresses(3, 7_100).values())
    assert [node.http for node in again.nodes] == [f"127.0.0.1:{n}" for n in range(7_180, 7_183)]
    assert again.nodes[2].peer == "127.0.0.1:7107"


def test_a_node_of_before_the_port_for_peers_gets_a_free_one(tmp_path: Path) -> None:
    """Its HTTP port is the one after its port for clients."""
    command = {"op": "register", "incarnation": 1, "boot": 1, "process": 1, "node": None,
               "zone": "", "address": "127.0.0.1:7100", "http": "127.0.0.1:7101"}  # fmt: skip
    found = Metadata()
    for index, each in enumerate(({"op": "found", "cluster": "c", "node": 1}, command), 1):
        assert "ok" in found.apply(index, 1, each)
    make(tmp_path, 1, found)
    (node,) = LocalCluster(tmp_path, 1, default_port=4600).nodes
    assert (node.address, node.http) == ("127.0.0.1:7100", "127.0.0.1:7101")
    assert node.peer not in (node.address, node.http)
    assert node.arguments[node.arguments.index("--peer-listen") + 1] == node.peer


def test_fewer_nodes_than_there_are_would_have_no_majority(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        make(tmp_path, number, image(3))
    with pytest.raises(InvalidArgument) as caught:
        check_kept(tmp_path, kept(tmp_path), addresses(1))
    for said in (
        f"{tmp_path} contains the nodes 1, 2, 3",
        "only 1 nodes",
        "-n 3 or more",
        "--data",
    ):
        assert said in caught.value.message


def test_a_removed_node_is_not_waited_for_and_not_started(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        make(tmp_path, number, image(3, removed=3))
    check_kept(tmp_path, kept(tmp_path), addresses(2))
    with pytest.raises(InvalidArgument) as caught:
        check_kept(tmp_path, kept(tmp_path), addresses(3))
    assert "node3 contains node 3, which was removed" in caught.value.message
    assert "Delete the directory" in caught.value.message


def test_nodes_start_again_where_the_others_know_them(tmp_path: Path) -> None:
    for number in (1, 2):
        make(tmp_path, number, image(2))
    with pytest.raises(InvalidArgument) as caught:
        check_kept(tmp_path, kept(tmp_path), addresses(2, 5000))
    for said in (
        "listen on 127.0.0.1:5000",
        "know the node at 127.0.0.1:4600",
        "Give --base-port 4600",
    ):
        assert said in caught.value.message


def test_nodes_of_two_clusters_do_not_start_together(tmp_path: Path) -> None:
    make(tmp_path, 1, image(2))
    make(tmp_path, 2, image(2), cluster="other")
    with pytest.raises(InvalidArgument, match=r"several clusters: node1 of c, node2 of other\."):
        check_kept(tmp_path, kept(tmp_path), addresses(2))


def test_a_node_that_still_runs_is_named_by_its_process(tmp_path: Path) -> None:
    data = make(tmp_path, 1, image(1))
    (data / "lock").write_text("4711\n")
    with open(data / "lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DirectoryInUse, match="process 4711 uses data directory"):
            check_kept(tmp_path, kept(tmp_path), addresses(1))
    check_kept(tmp_path, kept(tmp_path), addresses(1))


def test_a_directory_that_cannot_be_read_is_left_to_its_node(tmp_path: Path) -> None:
    """The node says what is wrong; the others start with it, not after it."""
    make(tmp_path, 1, image(2))
    (make(tmp_path, 2, None) / "meta.mdb").write_bytes(b"\xff" * 65_536)
    found = kept(tmp_path)
    assert found[2] == KeptNode(tmp_path / "node2")
    check_kept(tmp_path, found, addresses(2))


def test_a_port_that_is_taken_stops_the_start_before_any_node_runs(tmp_path: Path) -> None:

    first = testing.free_ports(1)[0]
    with socket.socket() as other:
        other.bind(("127.0.0.1", first))
        other.listen()
        cluster = LocalCluster(tmp_path, 2, flags=("--no-such-flag",))
        cluster.nodes[1].http = f"127.0.0.1:{first}"
        with pytest.raises(Unavailable, match=f"another program uses port {first}"):
            cluster.start()
        assert not any(node.running for node in cluster.nodes)
        assert not list(tmp_path.glob("*.log")), "nothing was started"
