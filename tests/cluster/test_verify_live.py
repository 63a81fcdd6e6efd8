"""`lognode verify` on the directories of real nodes: clean, killed, damaged, rebuilt."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

SMALL = ("--wal-file-bytes", "65536")


def verify(node: testing.LocalNode) -> tuple[int, dict[str, Any], str]:
    """Exit code, the checks by name, standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "verify", str(node.data), "--format", "json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    checks = {row["check"]: row for row in json.loads(done.stdout)} if done.stdout else {}
    return done.returncode, checks, done.stderr


def test_S12_verify_of_clean_killed_damaged_and_rebuilt_nodes(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 3, flags=SMALL) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=20) as client:
            log = client.create_log("orders", ranges=3)
            testing.wait_healthy(cluster)
            values = [(b"%d" % (n % 50), os.urandom(700)) for n in range(1500)]
            log.append_many(values)
            node = cluster.nodes[2]

            code, _, said = verify(node)
            assert code == 1
            assert f"process {node.pid} uses data directory" in said

            node.stop()
            assert verify(node)[0] == 0
            for _ in range(3):
                node.start()
                node.wait_ready()
                log.append_many(values[:200])
                node.kill()
                code, checks, _ = verify(node)
                assert code == 0, checks
                assert "stopped without notice" in checks["identity"]["found"]

            (first, *_) = sorted((node.data / "wal").glob("wal-*"))
            with open(first, "r+b") as file:
                file.seek(200)
                byte = file.read(1)
                file.seek(200)
                file.write(bytes([byte[0] ^ 1]))
            code, checks, _ = verify(node)
            assert code == 3
            assert checks["wal"]["wrong"][0].startswith(
                f"{first.name}: the file is damaged at byte "
            )
            assert "and the node rebuilds them from its peers" in checks["wal"]["repair"]

            # And so it is.
            node.start()
            node.wait_ready()
            testing.wait_healthy(cluster)
            log.append_many(values[:50])
            testing.wait_healthy(cluster)
            node.stop()
            code, checks, _ = verify(node)
            assert "the replica is known as damaged" not in str(checks["replicas"]["wrong"]), checks
