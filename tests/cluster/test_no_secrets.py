"""No secret is shown by processes, logs, status, metrics or texts of objects, and nobody else may
read what nodes write."""

import json
import os
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import lognode
from lognode import testing
from lognode.client.invitation import read_invitation
from lognode.client.protocol.private_files import write_private
from lognode.client.tokens import digest_of
from lognode.node.config import load

pytestmark = pytest.mark.cluster

WRONG = "0123456789abcdef." + "wrong-token-of-a-stranger".ljust(43, "x")


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[testing.LocalCluster]:
    """Two nodes with TLS, tokens and a secret, started by a user who hides nothing."""
    before = os.umask(0)
    try:
        root = module_path
        flags = ("--log-level", "DEBUG")
        with testing.cluster(root, 2, tls=True, auth=True, flags=flags) as made:
            testing.wait_healthy(made)
            yield made
    finally:
        os.umask(before)


def lines_of(path: Path) -> list[str]:
    """The lines of a PEM file that are the key."""
    return [line for line in path.read_text().splitlines() if line and "-----" not in line]


def secrets_of(cluster: testing.LocalCluster) -> dict[str, str]:
    """Every secret of the cluster, by what it is."""
    assert cluster.token is not None
    found = {
        "first token": cluster.token.partition(".")[2],
        "secret of nodes": (cluster.root / "secret").read_text().strip(),
        "wrong token": WRONG.partition(".")[2],
    }
    for path in (cluster.root / "tls").glob("*.key"):
        found |= {f"{path.name} {n}": line for n, line in enumerate(lines_of(path))}
    assert len(found) >= 3 + 4 * 2
    assert all(len(secret) >= 12 for secret in found.values())
    return found


def in_arguments() -> str:
    """The arguments of all processes, as any user sees them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue  # it has ended
    return "\n".join(found)


def test_no_secret_is_shown_anywhere(cluster: testing.LocalCluster, tmp_path: Path) -> None:
    secrets = secrets_of(cluster)
    shown: dict[str, str] = {}

    def run(*verb: str, server: str = cluster.servers, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "lognode.node.main", *verb, "--server", server],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        shown["lognode " + " ".join(verb[:2])] = done.stdout + done.stderr
        return done.stdout

    made: str = json.loads(run("token", "create", "app", "--scope", "all", "--format", "json"))
    shown.pop("lognode token create")  # the one place that shows a token, once
    secrets["token of app"] = made.partition(".")[2]
    run("token", "list")
    invited: str = json.loads(run("node", "invite", "--format", "json"))
    shown.pop("lognode node invite")  # the one place that shows an invitation, once
    third = cluster.add()
    write_private(third._invitation, invited.encode())
    third.data.mkdir()  # so that it takes this invitation
    third.start()
    # The arguments of a program appear a moment after the program has begun.
    named = str(third._invitation)
    shown["arguments while a node joins"] = testing.eventually(
        lambda: found if named in (found := in_arguments()) else None, what="the node's arguments"
    )
    third.wait_ready()
    unused = cluster.root / "unused"
    run("node", "invite", "--out", str(unused))
    for path in (third._invitation, cluster.nodes[1]._invitation, unused):
        invitation = read_invitation(path)
        secrets |= {
            f"secret of invitation {path.name}": invitation.token.partition(".")[2],
            f"digest of invitation {path.name}": digest_of(invitation.token).hex(),
        }
        shown[f"repr of invitation {path.name}"] = f"{invitation!r} {invitation} {[invitation]}"
    run("node", "invites")
    run("node", "invites", "--format", "json")
    run("node", "list")
    other = "y" if invited.strip().endswith("x") else "x"
    (wrong := cluster.root / "wrong").write_text(invited.strip()[:-1] + other)
    wrong.chmod(0o600)
    with pytest.raises(lognode.InvalidArgument) as typing_error:
        read_invitation(wrong)
    shown["typing error"] = f"{typing_error.value!r} {typing_error.value.fields}"
    run("status", "--format", "json")
    nodes = cluster.servers.partition("token=")[0].rstrip("&?")
    for token in (made, WRONG):
        with lognode.Client(nodes, token=token, timeout=5) as client:
            shown[f"client {token[:4]}"] = f"{client!r} {client} {vars(client)!r}"
            if token == WRONG:
                with pytest.raises(lognode.Unauthorized) as caught:
                    client.logs()
                shown["error"] = f"{caught.value!r} {caught.value}"
                continue
            client.create_log("orders").append_many([(f"k{n}", b"v") for n in range(100)])
            shown["in use"] = f"{client!r} {vars(client)!r}"
    for node in cluster.nodes:
        for path in ("/status.json", "/metrics"):
            with node.fetch(path, 5) as page:
                shown[f"node {node.number} {path}"] = page.read().decode()
        assert cluster.tls is not None
        request = urllib.request.Request(node.url + "/status.json")
        request.add_header("Authorization", f"Bearer {WRONG}")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=5, context=cluster.tls.context)
        shown[f"node {node.number} refusal"] = refused.value.read().decode()
        flags = {"secret_file": str(cluster.root / "secret"), "tls_key": node._flags[3],
                 "invitation": str(third._invitation)}  # fmt: skip
        shown[f"node {node.number} settings"] = repr(load(flags, {}))
    shown["arguments"] = in_arguments()
    assert str(cluster.nodes[1].data) in shown["arguments"], "the nodes are among them"
    assert cluster.nodes[1].stop() == 0
    cluster.nodes[1].start()
    cluster.nodes[1].wait_ready()
    for node in cluster.nodes:
        shown[f"log of node {node.number}"] = log = node.log_path.read_text()
        assert '"level": "debug"' in log, "the log has everything"
    found = [
        f"{place} shows the {what}"
        for place, text in shown.items()
        for what, secret in secrets.items()
        if secret in text
    ]
    assert not found


def test_nobody_else_may_read_what_nodes_write(cluster: testing.LocalCluster) -> None:
    """The umask is 0 here: the nodes hide their files by themselves."""
    with lognode.Client(cluster.servers, timeout=30) as client:
        client.create_log("split").append_many([(f"k{n}", b"v") for n in range(100)])
        client.admin.split("split", at="k5")  # makes segments
    data = [node.data for node in cluster.nodes]
    assert any(path.suffix == ".seg" for each in data for path in each.rglob("*"))
    for node in cluster.nodes:
        paths = [node.data, *node.data.rglob("*")]
        open_ = {
            str(path.relative_to(cluster.root)): oct(mode)
            for path in paths
            if path.exists() and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077
        }
        assert not open_
    for path in (cluster.root / "secret", *(cluster.root / "tls").glob("*.key")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
