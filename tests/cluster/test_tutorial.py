"""The tutorial: its commands and programs run as printed, and run again on the same cluster.

`test_tutorial_groups.py` has the part about groups, whose programs run until they are ended.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
SERVER: Final = "lognode://127.0.0.1:4600"
ENDLESS: Final = ("lognode --data", "lognode follow", "export LOGNODE_SERVER")
"""Commands that run until they are ended, or that name the ports of the page."""
CONFLICT: Final = 5


def parts() -> tuple[dict[str, str], list[str]]:
    """Return the programs of the page by their names, and its commands in order."""
    page = PAGE.read_text("utf-8")
    before, rest = page.split("\n## A group over the flights\n")
    page = before + "\n## " + rest.split("\n## ", 1)[1]
    blocks = re.findall(r"^```([^\n]*)\n(.*?)^```$", page, re.M | re.S)
    programs = {
        kind.partition("file=")[2]: text for kind, text in blocks if kind.startswith("python file=")
    }
    lines = [line for kind, text in blocks if kind in ("", "sh") for line in text.splitlines()]
    return programs, [line for line in lines if not line.startswith(ENDLESS)]


def test_the_commands_and_programs_run_as_printed_and_again(
    three: LocalCluster, tmp_path: Path
) -> None:
    programs, commands = parts()
    assert len(commands) > 20
    assert set(programs) == {"flights.py", "orders.py"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text.replace(SERVER, three.servers))
    environment = {
        **os.environ,
        "LOGNODE_SERVER": three.servers,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    for again in (False, True):
        for line in [*commands, "python orders.py"]:
            done = subprocess.run(
                ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True,
                timeout=90, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            expected = CONFLICT if f"exit code {CONFLICT}" in line else 0
            # The log and the entries are there already, as the page says of conditions.
            may_conflict = again and re.search(r"log create|--expect", line)
            allowed = {expected, CONFLICT} if may_conflict else {expected}
            assert done.returncode in allowed, f"{line}: {done.returncode}: {done.stderr}"
            if "flights N14228" in line or "keys flights" in line:
                assert done.stdout, f"{line} prints nothing"
