"""The commands and programs of README.md run as printed, at the ports of `lognode dev`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from lognode import testing
from lognode.node.config import Config
from lognode.node.local import dev
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster
PAGE: Final = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
SERVER: Final = "127.0.0.1:4600"
HTTP: Final = "127.0.0.1:4680"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.M | re.S)


def test_the_first_node_of_lognode_dev_is_where_the_page_says() -> None:
    assert Config().http == f"127.0.0.1:{dev.DEFAULT_HTTP}" == HTTP
    assert f"127.0.0.1:{dev.DEFAULT_PORT}" == SERVER
    (look,) = [block for block in blocks("sh") if "lognode dev" in block]
    assert "pip install ." in look
    assert f"http://{HTTP}/" in PAGE


def test_the_look_runs_as_printed(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    commands = [
        line.removeprefix("$ ")
        for block in blocks("console")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    assert [line.split()[1] for line in commands] == ["log", "append", "scan", "-s", "-sN"]
    with testing.cluster(tmp_path, 1) as cluster:
        told = [run(line, cluster, tmp_path) for line in commands]
        for program in blocks("python"):
            if "with lognode.Client(" in program:
                lines = run(["python", "-c", program.replace(SERVER, address(cluster))], cluster,
                            tmp_path).splitlines()  # fmt: skip
                assert any("departed" in line for line in lines)
                assert any("landed" in line for line in lines)
    assert '{"origin": "EWR", "dest": "IAH"}' in told[2]
    assert told[3].count('"key": "N14228"') == 1
    assert "event: entries" in told[4]
    assert "EWR" in told[4]


def address(cluster: LocalCluster) -> str:
    return cluster.nodes[0].address


def run(command: str | list[str], cluster: LocalCluster, folder: Path) -> str:
    """Return the output of a command, which must end well."""
    if isinstance(command, str):
        command = ["bash", "-c", command.replace(HTTP, cluster.nodes[0].http)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=folder,
        env={
            **os.environ, "LOGNODE_SERVER": cluster.servers,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
    )  # fmt: skip
    # `--max-time` ends a stream of events by 28.
    assert done.returncode in (0, 28), f"{command}: {done.stderr}"
    return done.stdout
