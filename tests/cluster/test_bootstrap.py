"""x24: nodes that are started together with --bootstrap-expect found one cluster."""

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lognode
from lognode import testing
from lognode.client.connection import dial
from lognode.client.ports import free_ports
from lognode.client.protocol import wire
from lognode.client.protocol.address import split_address
from lognode.client.protocol.private_files import write_private
from lognode.node.local.dev import LocalNode

pytestmark = pytest.mark.cluster


@contextmanager
def nodes(
    root: Path, count: int, *flags: str, expect: int | None = None
) -> Iterator[list[LocalNode]]:
    """Each of them is given all addresses; none is started."""
    ports = free_ports(2 * count)
    join = ",".join(f"127.0.0.1:{port}" for port in ports[:count])
    given = (*flags, "--bootstrap-expect", str(expect or count))
    found = [
        LocalNode(at + 1, root, ports[at], ports[count + at], join, given) for at in range(count)
    ]
    try:
        yield found
    finally:
        for node in found:
            node.kill()


def clusters(found: list[LocalNode]) -> set[str]:
    """Ids of the clusters that they are of."""
    ids = set()
    for node in found:
        with lognode.Client(node.address) as client:
            ids.add(client.status()["cluster"]["id"])
    return ids


def end_of(node: LocalNode) -> str:
    testing.eventually(lambda: not node.running, what="it ends")
    assert node.exit_code == 1
    return node.log_path.read_text().splitlines()[-1]


def wait_healthy(found: list[LocalNode], count: int) -> None:
    servers = "lognode://" + ",".join(node.address for node in found)
    with lognode.Client(servers, timeout=30) as client:
        testing.eventually(lambda: client.health(nodes=count)["ok"], timeout_s=60, what="health")


@pytest.mark.by_hand
def test_x24_three_nodes_found_one_cluster_whichever_comes_last(tmp_path: Path) -> None:
    for turn, order in enumerate(itertools.islice(itertools.permutations(range(3)), 0, 6, 2)):
        with nodes(tmp_path / str(turn), 3) as found:
            for at in order[:2]:
                found[at].start()
            testing.eventually(
                lambda: all(
                    "waits for the other nodes of --join" in found[at].log_path.read_text()
                    for at in order[:2]  # noqa: B023
                ),
                what="two wait for the third",
            )
            found[order[2]].start()
            for node in found:
                node.wait_ready()
            assert len(clusters(found)) == 1
            wait_healthy(found, 3)


def test_x24_a_founder_that_lost_its_disk_joins_the_cluster_that_it_founded(
    tmp_path: Path,
) -> None:
    """Or comes up where its volume is not mounted: it would have founded another one."""
    with nodes(tmp_path, 3) as found:
        for node in found:
            node.start()
        for node in found:
            node.wait_ready()
        wait_healthy(found, 3)
        before = clusters(found)
        founder = min(found, key=lambda node: node.address)
        founder.kill()
        shutil.rmtree(founder.data)
        founder.start()
        founder.wait_ready()
        assert clusters(found) == before
        with lognode.Client(founder.address) as client:
            assert client.status()["cluster"]["answered_by"] == 4, "as a new node"


def test_x24_nobody_founds_without_all_of_them(tmp_path: Path) -> None:
    with nodes(tmp_path, 3, "--join-timeout", "2") as found:
        for node in found[:2]:
            node.start()
        for node in found[:2]:
            told = end_of(node)
            assert "3 nodes did not found a cluster within 2 s: no answer from " in told
            # The other one may have ended before.
            assert found[2].address in told.partition("no answer from ")[2]


def test_as_many_addresses_as_nodes_are_wanted(tmp_path: Path) -> None:
    with nodes(tmp_path, 2, expect=3) as found:
        found[0].start()
        assert "--bootstrap-expect is 3, but --join and this node's own address make 2" in end_of(
            found[0]
        )


@pytest.mark.parametrize("secret", [True, False])
def test_x24_a_fresh_founder_that_others_know_by_another_cluster_ends(
    tmp_path: Path, secret: bool
) -> None:
    """Its volume was not mounted, and --bootstrap-expect not given: it founded another cluster.

    The others prove that they hold the secret, and are believed. Without one nobody can prove
    anything: the founder says what it was told, and refuses them.
    """
    write_private(tmp_path / "secret", b"the secret of this very cluster")
    flags = ("--secret-file", str(tmp_path / "secret")) if secret else ()
    with testing.cluster(tmp_path, 2, flags=flags) as cluster:
        testing.wait_healthy(cluster)
        founder, other = cluster.nodes
        founder.kill()
        shutil.rmtree(founder.data)
        founder.start()
        asked = "check the directory and its volume"
        if secret:
            assert asked in end_of(founder)
        else:
            founder.wait_ready()
            testing.eventually(lambda: asked in founder.log_path.read_text(), what="it says so")
            told = [line for line in founder.log_path.read_text().splitlines() if asked in line]
            assert all('"level": "error"' in line for line in told)
            assert founder.running
        assert other.running


def test_x24_a_hello_of_another_cluster_ends_no_fresh_founder(tmp_path: Path) -> None:
    """One frame of anybody who could reach the port ended a node just founded."""
    write_private(tmp_path / "secret", b"the secret of this very cluster")
    for at, flags in enumerate(((), ("--secret-file", str(tmp_path / "secret")))):
        with testing.cluster(tmp_path / str(at), 1, flags=flags) as cluster:
            (founder,) = cluster.nodes
            asyncio.run(greet(founder.address))
            with lognode.Client(cluster.servers, timeout=20) as client:
                client.create_log("orders").append(b"k", b"v")
            assert founder.running
            lines = founder.log_path.read_text().splitlines()
            told = [
                line for line in lines if "a node of another cluster has called this node" in line
            ]
            assert len(told) <= 2, "a line in ten seconds at most"


async def greet(address: str) -> None:
    """Say hello as clients and nodes of another cluster, without a proof."""
    host, port = split_address(address)
    for number in range(40):
        role: wire.Role = "node" if number % 2 else "client"
        with contextlib.suppress(lognode.LognodeError):
            link = await dial(
                host, port, role=role, cluster=f"another-{number}", node=number or None,
                secret=b"a secret of somebody else" if number % 4 == 1 else None, timeout_s=1.0,
            )  # fmt: skip
            link.close()
