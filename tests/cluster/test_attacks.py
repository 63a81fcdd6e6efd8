"""Attacks by a separate program on a real node: its memory stays bounded, and others go on.

The attacker comes from 127.0.0.2: it is another principal than the client beside it.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from metrics_page import metric

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).parents[1] / "attacks"
LOG, KEY = "attacked", "k"
PEER, HTTP, CLIENTS = "{peer}", "{http}", "{address}"
"""The address of one of the node's ports."""
SECONDS = 5.0
MIB = 1 << 20


@pytest.fixture(scope="module")
def attacked(module_path: Path) -> Iterator[testing.LocalCluster]:
    """One node with a key of 32 MiB, and a log of 100 ranges."""
    with testing.cluster(module_path / "attacked", 1) as cluster:
        with lognode.Client(cluster.servers, timeout=60.0) as client:
            client.create_log(LOG, ranges=1)
            client.create_log("wide", ranges=100)
            value = bytes(range(256)) * 256
            for _ in range(8):
                client.log(LOG).append_many([(KEY, value)] * 64)
        yield cluster


@pytest.fixture(scope="module")
def secured(module_path: Path) -> Iterator[testing.LocalCluster]:
    """One node with TLS and tokens."""
    root = module_path / "secured"
    with testing.cluster(root, 1, tls=True, auth=True) as cluster:
        with lognode.Client(cluster.servers, timeout=60.0) as client:
            client.create_log(LOG, ranges=1)
        yield cluster


def rss_mib(node: testing.LocalNode) -> float:
    """The node's resident memory."""
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the node has no memory")


def attack(node: testing.LocalNode, program: str, *flags: str) -> "subprocess.Popen[str]":
    """Start an attack on the node; it ends by itself."""
    ports = {"peer": node.peer, "http": node.http, "address": node.address}
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / f"{program}.py"), "--address", node.address, "--log", LOG,
         "--key", KEY, "--source", "127.0.0.2", "--seconds", str(SECONDS),
         *(flag.format(**ports) for flag in flags)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def held(node: testing.LocalNode) -> float:
    """Bytes that the node's connections hold, of answers and requests."""
    return metric(node, 'lognode_answer_bytes{level="node"}') + metric(
        node, 'lognode_request_bytes{level="node"}'
    )


@pytest.mark.parametrize(
    ("program", "flags", "more_mib"),
    [
        pytest.param("unread_scans", [], 120, id="1000_scans_never_read"),
        pytest.param(
            "unread_scans", ["--connections", "64", "--requests", "60"], 400,
            id="scans_of_64_connections_never_read", marks=pytest.mark.by_hand,
        ),
        pytest.param("unread_follows", [], 100, id="a_follow_with_credit_2^62_never_read"),
        pytest.param(
            "unread_follows", ["--connections", "64", "--requests", "8"], 300,
            id="follows_of_64_connections_never_read", marks=pytest.mark.by_hand,
        ),
        pytest.param("ping_flood", [], 60, id="pings_whose_answers_are_not_read"),
        pytest.param(
            "ping_flood", ["--connections", "64"], 200,
            id="pings_of_64_connections", marks=pytest.mark.by_hand,
        ),
        pytest.param("unread_status", [], 150, id="metadata_and_status_never_read"),
        pytest.param(
            "unread_status", ["--connections", "64"], 300, id="status_of_64_connections_never_read",
            marks=pytest.mark.by_hand,
        ),
        pytest.param(
            "small_credits", ["--connections", "16"], 200,
            id="a_byte_of_credit_a_time", marks=pytest.mark.by_hand,
        ),
        pytest.param("close_flood", ["--connections", "4"], 100, id="460000_closes_of_producers"),
        pytest.param("partial_frames", ["--connections", "128"], 250, id="frames_that_do_not_end"),
        pytest.param("hostile_batches", ["--connections", "8"], 250, id="batches_that_lie"),
        pytest.param("hostile_frames", ["--connections", "8"], 350, id="frames_that_are_none"),
        pytest.param("equal_hashes", ["--connections", "4"], 150, id="maps_of_equal_hashes"),
        pytest.param(
            "backward_numbers", ["--connections", "2"], 150, id="records_numbered_backwards"
        ),
        pytest.param(
            "fake_peers",
            ["--connections", "32", "--address", PEER, "--metadata", CLIENTS], 80,
            id="nodes_that_are_none",
        ),
        pytest.param(
            "unread_http", ["--connections", "32", "--address", HTTP], 150,
            id="status_pages_never_read",
        ),
        pytest.param(
            "unread_rest", ["--connections", "64", "--address", HTTP], 200,
            id="events_and_scans_never_read_and_bodies_that_do_not_end",
        ),
        pytest.param(
            "left_http", ["--connections", "16", "--address", HTTP], 60,
            id="status_pages_of_those_who_left",
        ),
    ],
)  # fmt: skip
def test_an_attack_costs_bounded_memory_and_leaves_room_for_others(
    attacked: testing.LocalCluster, program: str, flags: list[str], more_mib: int
) -> None:
    node = attacked.nodes[0]
    watch(attacked, program, flags, more_mib)
    # What the attacker has sent is worked off first, which costs seconds of processor time.
    testing.eventually(lambda: held(node) == 0.0, timeout_s=120.0, what="everything is given back")
    assert metric(node, "lognode_room_waits") == 0.0


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        pytest.param("half_tls", [], id="half_handshakes_with_the_port_for_clients"),
        pytest.param(
            "half_tls", ["--address", PEER],
            id="half_handshakes_with_the_port_for_peers", marks=pytest.mark.by_hand,
        ),
        pytest.param(
            "half_tls", ["--address", HTTP],
            id="half_handshakes_with_the_http_port", marks=pytest.mark.by_hand,
        ),
        pytest.param("foreign_hosts", ["--address", HTTP, "{tls}"], id="foreign_hosts"),
        pytest.param("slow_http", ["--address", HTTP, "{tls}"], id="requests_that_do_not_end"),
    ],
)  # fmt: skip
def test_X3_an_attack_on_a_node_with_tls_leaves_room_for_others(
    secured: testing.LocalCluster, program: str, flags: list[str]
) -> None:
    """The attacker has the certificate of a client where it ends its handshakes, and no token."""
    assert secured.tls is not None
    files = secured.tls.client
    shown = ["--ca", str(files.ca), "--cert", str(files.cert), "--key-file", str(files.key)]
    flags = ["--connections", "32", *flags]
    if flags[-1] == "{tls}":
        flags = [*flags[:-1], *shown]
    watch(secured, program, flags, 150)


def watch(cluster: testing.LocalCluster, program: str, flags: list[str], more_mib: int) -> None:
    """Check the node's memory and another client while the attack goes on."""
    node = cluster.nodes[0]
    with lognode.Client(cluster.servers, timeout=30.0) as client:
        log = client.log(LOG)
        log.append("neighbour", b"first")
        before = peak = rss_mib(node)
        attacker = attack(node, program, *flags)
        rounds, slowest_s = 0, 0.0
        while attacker.poll() is None:
            began = time.monotonic()
            seq = log.append("neighbour", b"%d" % rounds).seq
            latest = log.latest("neighbour")
            assert latest is not None
            assert latest.seq == seq
            slowest_s = max(slowest_s, time.monotonic() - began)
            rounds += 1
            peak = max(peak, rss_mib(node))
        told: dict[str, Any] = json.loads(attacker.communicate()[0])
    assert told["refused"] == 0, told
    assert peak - before < more_mib, f"{before:.0f} MiB before, {peak:.0f} at most; {told}"
    assert rounds >= 5, f"{rounds} rounds; the slowest took {slowest_s:.1f} s"
    assert slowest_s < 5.0
    assert told["sent_bytes"] > 0
    assert node.running


def test_a_node_closes_readers_whose_room_others_want(attacked: testing.LocalCluster) -> None:
    """The attackers come from the address of the client that wants the room."""
    node = attacked.nodes[0]
    was = metric(node, 'lognode_connections_ended_total{reason="unread"}')
    attacker = attack(
        node, "unread_scans", "--connections", "64", "--requests", "60", "--source", "127.0.0.1",
        "--seconds", "25",
    )  # fmt: skip
    testing.eventually(
        lambda: metric(node, "lognode_room_waits") > 100, what="the attackers take all room"
    )
    with lognode.Client(attacked.servers, timeout=30.0) as client:
        began = time.monotonic()
        while time.monotonic() - began < 12.0:
            assert len(list(client.log(LOG).scan(KEY, limit=4))) == 4
    attacker.terminate()
    attacker.communicate()
    assert metric(node, 'lognode_connections_ended_total{reason="unread"}') > was
    text = node.log_path.read_text()
    assert "bytes of answers unread and made no progress for" in text
    assert "127.0.0.1:" in text
    testing.eventually(lambda: held(node) == 0.0, what="everything is given back")
