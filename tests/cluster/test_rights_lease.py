"""The lease of rights on real nodes: a node that hears nothing of the controller believes no token
any more, and believes them again when it hears."""

import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import lognode
from lognode import testing
from lognode.client.protocol.errors import LognodeError
from lognode.node.local.dev import LocalNode

pytestmark = pytest.mark.cluster

LEASE_S = 5.0


def status(node: LocalNode, token: str) -> tuple[int, str]:
    """What the node answers to a holder of the token who asks for its status."""
    request = urllib.request.Request(
        f"http://{node.http}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status), ""
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_node_that_hears_nothing_serves_nobody_after_the_lease(tmp_path: Path) -> None:
    flags = ("--auth-lease", f"{LEASE_S:g}", "--balance", "off")
    with testing.cluster(tmp_path, 3, auth=True, flags=flags) as cluster:
        testing.wait_healthy(cluster)
        token = cluster.token
        assert token is not None
        with lognode.Client(cluster.servers, timeout=20) as client:
            client.create_log("log").append("k", b"v")
            testing.wait_healthy(cluster)
            leads = client.status()["cluster"]["controller_leader"]
        alone = next(node for node in cluster.nodes if node.number != leads)
        others = [node for node in cluster.nodes if node is not alone]
        address = f"lognode://{alone.address}"
        with lognode.Client(address, token=token, timeout=2) as client:
            log = client.log("log")

            def read() -> bytes | None:
                found = log.latest("k", consistency="prefix", node=alone.number)
                return None if found is None else found.value

            assert read() == b"v"
            assert status(alone, token)[0] == 200
            for node in others:
                node.signal(signal.SIGSTOP)
            stopped = time.monotonic()
            try:
                testing.eventually(
                    lambda: status(alone, token)[0] == 503, timeout_s=60, what="the refusal"
                )
                # The last answer came a heartbeat ago at most.
                assert time.monotonic() - stopped > LEASE_S - 2.0
                assert "--auth-lease" in status(alone, token)[1]
                with pytest.raises(LognodeError):
                    read()
            finally:
                for node in others:
                    node.signal(signal.SIGCONT)

            def works() -> bool:
                try:
                    return status(alone, token)[0] == 200 and read() == b"v"
                except LognodeError:
                    return False

            testing.eventually(works, timeout_s=60, what="the rights")
