"""The commands of the page on HTTP print what the page says."""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster
PAGE = Path(__file__).resolve().parents[2] / "docs" / "http.md"
ADDRESS = "127.0.0.1:4680"
DIFFERS = ((r'"timestamp_ms": \d+', "TIME"), (r'"staleness_ms": \d+', "AGE"), (r"id: \S+", "ID"),
           (r'"token": "[\w-]+"', "TOKEN"))  # fmt: skip


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


def is_done(log: lognode.Log) -> bool:
    lag = log.group("resize").lag()
    return lag.begun and not lag.entries


def test_the_worker_of_the_page_does_each_job_once(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (script,) = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    work = tmp_path / "work"
    # The first delivery of job 2 fails.
    work.write_text(
        "#!/bin/bash\n"
        'value=$(grep -o \'"value": "[^"]*"\')\n'
        "if [[ $value == *job-2* && ! -e failed ]]; then touch failed; exit 1; fi\n"
        'echo "$value" >> done\n'
    )
    work.chmod(0o755)
    wanted = [f'"value": "job-{n}"' for n in range(5)]
    with testing.cluster(tmp_path / "cluster", 1) as cluster:
        (node,) = cluster.nodes
        with lognode.Client(cluster.servers) as client:
            log = client.create_log("jobs")
            log.append_many([("photo", b"job-%d" % n) for n in range(5)])
            with log.consume("resize", ordering="none"):
                pass
            worker = subprocess.Popen(
                ["bash", "-c", script.replace(ADDRESS, node.http)], cwd=tmp_path,
                stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                testing.eventually(lambda: is_done(log), what="all jobs are done")
            finally:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
    assert sorted((tmp_path / "done").read_text().splitlines()) == wanted
    assert (tmp_path / "failed").exists()
