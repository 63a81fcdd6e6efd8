"""The node as a process: what keeps it from starting, signals, stopping, joining, the dial map."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lognode
from lognode import testing
from lognode.client.ports import free_ports, free_row
from lognode.node.config import Config
from lognode.node.daemon import Node

pytestmark = pytest.mark.cluster


def run_node(*flags: str, timeout_s: float = 30, **variables: str) -> tuple[int, str]:
    """A node that is not expected to serve: its exit code and what it wrote to stderr."""
    port, http = free_ports(2)
    listen = ("--listen", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{http}")
    own = {flag.split("=")[0] for flag in flags}
    given = [] if "--listen" in own else list(listen[:2])
    given += [] if "--http" in own else list(listen[2:])
    done = subprocess.run(
        [sys.executable, "-m", "lognode.node.main", *flags, *given],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr


def last_line(stderr: str) -> str:
    assert "Traceback" not in stderr
    return stderr.strip().splitlines()[-1]


def a_file(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


BAD: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "no such configuration": (lambda p: ["--config", str(p / "x")], "cannot read configuration"),
    "unknown key": (lambda p: ["--config", a_file(p / "c", "lissen='h:1'")], "unknown setting"),
    "no TOML": (lambda p: ["--config", a_file(p / "c", "=")], "is not TOML"),
    "bad port": (lambda p: ["--listen", "127.0.0.1:99999"], "port of 1 to 65535"),
    "bad http": (lambda p: ["--http", "nowhere"], "http 'nowhere' is not HOST:PORT"),
    "bad join": (lambda p: ["--join", "there"], "join 'there' is not HOST:PORT"),
    "bad timeout": (lambda p: ["--join-timeout", "long"], "bad value 'long'"),
    "bad advertise": (lambda p: ["--advertise", "me"], "advertise 'me' is not HOST:PORT"),
    "every interface": (lambda p: ["--listen", "0.0.0.0:4600"], "listen is 0.0.0.0:4600"),
    "every interface of IPv6": (lambda p: ["--listen", "[::]:4600"], "listen is [::]:4600"),
    "every interface advertised": (
        lambda p: ["--advertise", "0.0.0.0:4600"],
        "Give such an address with --advertise HOST:PORT",
    ),
    "no secret": (lambda p: ["--secret-file", str(p / "x")], "cannot read secret file"),
    "short secret": (lambda p: ["--secret-file", a_file(p / "s", "abc")], "give at least 16"),
    "open secret": (lambda p: ["--secret-file", a_file(p / "s", "a" * 32, 0o640)], "chmod 600"),
    "half of TLS": (lambda p: ["--tls-cert", str(p / "x")], "--tls-key and --tls-ca is not given"),
    "no dial map": (lambda p: ["--dial-map", str(p / "x")], "cannot read dial map"),
    "bad dial map": (lambda p: ["--dial-map", a_file(p / "m", '"h:1" = "x"')], "not HOST:PORT"),
    "no address of this machine": (
        lambda p: ["--listen", "192.0.2.1:4600", "--insecure"],
        "cannot listen on",
    ),
    "no TLS": (lambda p: ["--listen", "192.0.2.1:4600"], "Or accept every client with --insecure"),
    "no TLS for HTTP": (lambda p: ["--http", "0.0.0.0:4680"], "http is 0.0.0.0:4680 (flag --http)"),
    "no directory": (lambda p: ["--data", a_file(p / "f", "")], "cannot use data directory"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_failed_start_is_one_line_and_exit_code_1(what: str, tmp_path: Path) -> None:
    flags, said = BAD[what]
    given = flags(tmp_path)
    data = [] if "--data" in given else ["--data", str(tmp_path / "data")]
    code, stderr = run_node(*given, *data)
    assert code == 1
    assert said in last_line(stderr)
    assert last_line(stderr).startswith("lognode: ")


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    (port,) = free_ports(1)  # and the port after it, at which a node listens for its peers
    with socket.create_server(("127.0.0.1", port)):
        address = f"127.0.0.1:{port}"
        for flag in ("--listen", "--peer-listen", "--http"):
            code, stderr = run_node("--data", str(tmp_path / flag), flag, address)
            assert code == 1
            assert f"cannot listen on {address}" in last_line(stderr)
            assert last_line(stderr).endswith(f"give another address with {flag}")


def test_a_start_that_fails_leaves_no_thread_and_no_listener_behind(tmp_path: Path) -> None:
    """A thread would speak after the error, or find the loop gone."""
    listen, http = free_ports(2)
    with socket.create_server(("127.0.0.1", listen)):
        address = f"127.0.0.1:{listen}"
        config = Config(data=tmp_path / "data", listen=address, http=f"127.0.0.1:{http}")
        with pytest.raises(lognode.Unavailable, match=f"cannot listen on {address}"):
            asyncio.run(Node(config).run())
    threads = {thread.name for thread in threading.enumerate()}
    assert not threads & {"lognode-wal", "lognode-files"}
    for_peers = ("127.0.0.1", listen + 1)  # opened before the port that is taken
    with socket.create_server(for_peers):
        pass


def test_joining_nobody_gives_up_after_the_join_timeout(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    began = time.monotonic()
    code, stderr = run_node(
        "--data", str(tmp_path), "--join", f"127.0.0.1:{port}", "--join-timeout", "1.5"
    )
    assert code == 1
    assert 1.5 <= time.monotonic() - began < 12
    assert f"could not join 127.0.0.1:{port} within 1.5 s" in last_line(stderr)


def test_settings_come_from_the_environment_and_a_file(tmp_path: Path) -> None:
    port, http = free_ports(2)
    config = a_file(tmp_path / "c.toml", f'http = "127.0.0.1:{http}"\nzone = "east"\n')
    node = subprocess.Popen(
        [sys.executable, "-m", "lognode.node.main", "--data", str(tmp_path / "data")],
        env={
            **os.environ,
            "LOGNODE_LISTEN": f"127.0.0.1:{port}",
            "LOGNODE_CONFIG": config,
            "LOGNODE_ADVERTISE": f"localhost:{port}",
        },
        stderr=subprocess.DEVNULL,
    )
    try:
        testing.eventually(lambda: ready(f"127.0.0.1:{http}"), what="the node serves")
        (record,) = json.loads(get(f"127.0.0.1:{http}", "/status.json"))["nodes"]
        assert record["address"] == f"localhost:{port}"
        assert record["zone"] == "east"
    finally:
        node.terminate()
        assert node.wait(20) == 0


def get(http: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{http}{path}", timeout=5) as answer:
        body: bytes = answer.read()
    return body.decode()


def ready(http: str) -> bool:
    with contextlib.suppress(urllib.error.URLError, OSError):
        return get(http, "/readyz") == "ok\n"
    return False


def test_a_node_on_every_interface_tells_others_the_advertised_host(tmp_path: Path) -> None:
    """It told every client and node 0.0.0.0: each of them then dialled its own machine."""
    port, http = free_ports(2)
    with testing.cluster(tmp_path, 1, start=False) as cluster:
        (node,) = cluster.nodes
        advertised = f"127.0.0.1:{port}"
        node.address, node.http = f"0.0.0.0:{port}", f"0.0.0.0:{http}"
        node.start()
        assert node.wait_end() == 1
        assert "listen is 0.0.0.0" in node.log_tail(1)
        assert not node.data.exists(), "nothing was founded"
        node._flags = ("--advertise", advertised, "--insecure")
        node.start()
        node.wait_ready()
        with lognode.Client(advertised) as client:
            (row,) = client.status()["nodes"]
            assert (row["address"], row["http"]) == (advertised, f"127.0.0.1:{http}")
            client.create_log("orders").append(b"k", b"v")


def test_join_is_ignored_with_a_note_once_there_is_an_identity(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 2) as cluster:
        second = cluster.nodes[1]
        assert second.stop() == 0
        second.start()
        second.wait_ready()
        assert "this directory has joined before; --join is ignored" in second.log_path.read_text()


def test_a_node_of_another_cluster_is_refused_by_both_sides(tmp_path: Path) -> None:
    with testing.cluster(tmp_path / "one", 1) as one, testing.cluster(tmp_path / "two", 2) as two:
        stranger = two.nodes[1]
        stranger.stop()
        # The same address now leads to a node of another cluster.
        address = two.nodes[0].peer
        two.nodes[0].stop()
        (here,) = one.nodes
        proxy = a_file(tmp_path / "map", f'"{address}" = "{here.peer}"\n')
        stranger._flags = ("--dial-map", proxy)
        stranger.start()
        testing.eventually(
            lambda: "peer refuses this node" in stranger.log_path.read_text(), what="the refusal"
        )
        assert "is of cluster" in stranger.log_path.read_text()
        status = one.nodes[0].status()
        assert len(status["nodes"]) == 1
        with lognode.Client(one.servers) as client:
            client.create_log("unharmed").append(b"k", b"v")


def test_a_fresh_node_with_another_secret_cannot_join(tmp_path: Path) -> None:
    flags = ("--secret-file", a_file(tmp_path / "secret", "0123456789abcdef"))
    with testing.cluster(tmp_path / "c", 1, flags=flags) as cluster:
        other = a_file(tmp_path / "other", "fedcba9876543210")
        join = ("--join", cluster.nodes[0].address, "--data", str(tmp_path / "d"))
        for secret in ((), ("--secret-file", other)):
            code, stderr = run_node(*join, *secret, "--join-timeout", "5")
            assert code == 1
            assert "secret" in last_line(stderr)


def test_a_second_process_on_the_directory_is_told_the_pid(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 1) as cluster:
        (node,) = cluster.nodes
        code, stderr = run_node("--data", str(node.data))
        assert code == 1
        assert f"process {node.pid} uses data directory" in last_line(stderr)


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[Any]]]:
    """A listener that notes who connects and says nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[Any] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                seen.append(listener.accept())

    threading.Thread(target=accept, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}", seen
    listener.close()
    for connection, _ in seen:
        connection.close()


def test_sighup_reads_the_dial_map_again(tmp_path: Path, proxy: tuple[str, list[Any]]) -> None:
    address, seen = proxy
    path = tmp_path / "map.toml"
    path.write_text("")
    with testing.cluster(tmp_path, 2, flags=("--dial-map", str(path))) as cluster:
        first, second = cluster.nodes
        path.write_text(f'"{second.peer}" = "{address}"\n')
        assert not seen
        first.signal(signal.SIGHUP)
        testing.eventually(lambda: seen, what="the new address is dialled")
        path.write_text("not TOML")
        first.signal(signal.SIGHUP)
        testing.eventually(
            lambda: "the node keeps the old dial map" in first.log_path.read_text(), what="the note"
        )
        path.write_text("")
        first.signal(signal.SIGHUP)
        testing.eventually(
            lambda: first.log_path.read_text().count("dial map read") == 2, what="it is read"
        )
        assert first.running
        with lognode.Client(cluster.servers) as client:
            client.create_log("goes-on").append(b"k", b"v")


def controller_leader(cluster: testing.LocalCluster) -> testing.LocalNode | None:
    """The node that says it leads the controller; None while no node says so."""
    leads = (n for n in cluster.nodes if n.status()["cluster"]["controller_leader"] == n.number)
    return next(leads, None)


def test_L4_sigterm_ends_a_node_in_order_and_hands_over(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 3) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers) as client:
            log = client.create_log("orders", ranges=3)
            for key in range(30):
                log.append(str(key), b"v")
            node = testing.eventually(
                lambda: controller_leader(cluster), what="a controller leader"
            )
            began = time.monotonic()
            assert node.stop(timeout_s=10) == 0
            assert time.monotonic() - began < 10
            text = node.log_path.read_text()
            assert '"message": "handed over the lead", "still_led": 0' in text
            began = time.monotonic()
            for key in range(30):
                log.append(str(key), b"w")
            assert time.monotonic() - began < 2.5


def test_L4_a_second_sigterm_stops_now(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 3) as cluster:
        testing.wait_healthy(cluster)
        victim = testing.eventually(lambda: controller_leader(cluster), what="a controller leader")
        # It cannot hand over: nobody else runs.
        others = [n for n in cluster.nodes if n is not victim]
        for other in others:
            other.signal(signal.SIGSTOP)
        victim.signal(signal.SIGTERM)
        testing.eventually(lambda: "node stops" in victim.log_path.read_text(), what="it stops")
        began = time.monotonic()
        victim.signal(signal.SIGTERM)
        assert victim.wait_end(5) == 1
        assert time.monotonic() - began < 2
        for other in others:
            other.signal(signal.SIGCONT)


@pytest.mark.by_hand
def test_the_others_of_a_dev_cluster_go_on_when_a_node_is_killed(tmp_path: Path) -> None:
    base = free_row(9)
    command = [sys.executable, "-m", "lognode.node.main", "dev", "--data", str(tmp_path),
               "--base-port", str(base)]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in process.stdout:
                if line.startswith("export LOGNODE_SERVER="):
                    break
            os.kill(int((tmp_path / "node3" / "lock").read_text()), signal.SIGKILL)
            told = process.stderr.readline()
            assert "node 3 was killed by SIGKILL" in told
            assert f"--data {tmp_path / 'node3'}" in told
            with lognode.Client(f"lognode://127.0.0.1:{base}", timeout=20) as client:
                client.create_log("goes-on").append(b"k", b"v")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
