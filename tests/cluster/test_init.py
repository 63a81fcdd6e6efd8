"""A node starts with the file that `lognode init` writes, as the file was written."""

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from lognode import testing

pytestmark = pytest.mark.cluster
LOGNODE = str(Path(sys.executable).with_name("lognode"))


def test_a_node_starts_with_the_file_as_written(tmp_path: Path) -> None:
    port = testing.free_row(3)
    ports = ["--listen", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{port + 2}"]
    subprocess.run([LOGNODE, "init", *ports, "--zone", "a"], cwd=tmp_path, check=True, timeout=60)
    node = subprocess.Popen([LOGNODE, "--config", "lognode.toml"], cwd=tmp_path)
    try:
        testing.eventually(lambda: ready(port + 2), timeout_s=60, what="the node is ready")
        assert (tmp_path / "lognode-data" / "meta.mdb").exists()
    finally:
        node.terminate()
        assert node.wait(30) == 0


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
            return True
    except OSError:
        return False
