"""x1.24: nodes that are started together with --bootstrap-expect found one cluster."""

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lognode
from lognode import testing
from lognode.client.ports import free_ports
from lognode.node.dev import LocalNode

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


def test_x1_24_three_nodes_found_one_cluster_whichever_comes_last(tmp_path: Path) -> None:
    for turn, order in enumerate(itertools.islice(itertools.permutations(range(3)), 0, 6, 2)):
        with nodes(tmp_path / str(turn), 3) as found:
            for at in order[:2]:
                found[at].start()
            testing.eventually(
                lambda: all(
                    "waits for the others" in found[at].log_path.read_text()
                    for at in order[:2]  # noqa: B023
                ),
                what="two wait for the third",
            )
            found[order[2]].start()
            for node in found:
                node.wait_ready()
            assert len(clusters(found)) == 1
            wait_healthy(found, 3)


def test_x1_24_a_founder_that_lost_its_disk_joins_the_cluster_that_it_founded(
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
            assert client.status()["cluster"]["answered_by"] == 4, "as another node"


def test_x1_24_nobody_founds_without_all_of_them(tmp_path: Path) -> None:
    with nodes(tmp_path, 3, "--join-timeout", "2") as found:
        for node in found[:2]:
            node.start()
        for node in found[:2]:
            told = end_of(node)
            assert "no cluster of 3 nodes within 2 s: no answer from " in told
            # The other one may have ended before.
            assert found[2].address in told.partition("no answer from ")[2]


def test_as_many_addresses_as_nodes_are_wanted(tmp_path: Path) -> None:
    with nodes(tmp_path, 2, expect=3) as found:
        found[0].start()
        assert "--bootstrap-expect 3 and 2 addresses" in end_of(found[0])


def test_x1_24_a_fresh_founder_that_others_know_by_another_cluster_ends(tmp_path: Path) -> None:
    """Its volume was not mounted, and --bootstrap-expect not given: it founded another cluster."""
    with testing.cluster(tmp_path, 2) as cluster:
        testing.wait_healthy(cluster)
        founder, other = cluster.nodes
        founder.kill()
        shutil.rmtree(founder.data)
        founder.start()
        assert "is that the right directory, and its volume mounted?" in end_of(founder)
        assert other.running
