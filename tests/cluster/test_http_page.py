"""The commands of the page on HTTP print what the page says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lognode import testing

pytestmark = pytest.mark.cluster
PAGE = Path(__file__).resolve().parents[2] / "docs" / "http.md"
ADDRESS = "127.0.0.1:4680"
DIFFERS = ((r'"timestamp_ms": \d+', "TIME"), (r'"staleness_ms": \d+', "AGE"), (r"id: \S+", "ID"))


def commands() -> list[tuple[str, str]]:
    """Return each command of the page with its output."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def comparable(text: str) -> str:
    """Return the output without what differs from run to run."""
    for pattern, word in DIFFERS:
        text = re.sub(pattern, word, text)
    return text


def test_the_commands_print_what_the_page_says(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    assert len(commands()) >= 8
    with testing.cluster(tmp_path, 1) as cluster:
        for command, output in commands():
            assert ADDRESS in command
            done = subprocess.run(
                ["bash", "-c", command.replace(ADDRESS, cluster.nodes[0].http)],
                capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path,
            )  # fmt: skip
            assert comparable(done.stdout) == comparable(output), command
