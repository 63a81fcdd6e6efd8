"""The tutorial in docs/spark.md does what it says: its commands are read out of the page."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import flights
import pytest
from pyspark.sql import SparkSession
from spark_jobs import job

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.by_hand]
ROOT = Path(__file__).resolve().parents[2]
JOBS = ["python", "-m", "lognode.client.spark.jobs"]
SERVER = "127.0.0.1:4600"


def blocks() -> Iterator[tuple[str, str]]:
    """Kind and text of each block of the tutorial."""
    page = (ROOT / "docs" / "spark.md").read_text("utf-8")
    tutorial = page.split("\n## The flights, a tutorial\n")[1]
    yield from re.findall(r"^```(sh|python[^\n]*)\n(.*?)^```$", tutorial, re.M | re.S)


def run(line: str, servers: str) -> None:
    """One command, by this Python, on these nodes."""
    words = [word.replace(SERVER, servers) for word in shlex.split(line)]
    if words[:3] == JOBS:
        assert job(*words[3:]) == 0, line
        return
    assert words[0] == "lognode", line
    done = subprocess.run(
        [sys.executable, "-m", "lognode.node.main", *words[1:]], text=True, check=False,
        env={**os.environ, "LOGNODE_SERVER": servers}, timeout=120, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}: {done.stderr}"
    print(done.stdout)


def test_every_command_of_the_tutorial_does_what_it_says(
    spark: SparkSession, cluster: testing.LocalCluster, client: lognode.Client, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    records = flights.read()
    histories = flights.histories(records)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flights.csv.zip").symlink_to(flights.path())
    found = list(blocks())
    assert [kind.split()[0] for kind, _ in found] == ["sh", "python", "python", "sh", "sh"]
    for kind, shown in found:
        # Spark's Java stays in the directory in which it was started.
        text = shown.replace("lake/flights", str(tmp_path / "lake" / "flights"))
        if kind == "sh":
            for line in text.splitlines():
                run(line, cluster.servers)
        elif "file=" in kind:
            (tmp_path / kind.partition("file=")[2]).write_text(text)
        else:
            exec(text, {"spark": spark.newSession()})
    said = capsys.readouterr().out
    most = sorted(histories, key=lambda key: (-len(histories[key]), key))
    assert f"manifest 1: {flights.ROWS} entries" in said
    for key in most[:5]:
        assert re.search(rf"^{key.decode()} +{len(histories[key])} ", said, re.M), key
    for key in most[1:6]:
        assert re.search(rf"\| *{key.decode()}\| +{len(histories[key])}\|", said), key
    assert f"{len(histories)} keys have a new logical snapshot" in said
    for key in most[:20]:
        last = client.log("flights").latest(key)
        assert last is not None
        rows = [json.loads(value)["dep_delay"] for value in histories[key]]
        minutes = sum(int(row) for row in rows if row != "NA")
        assert last.snapshot
        assert json.loads(last.value or b"") == {"flights": len(rows), "minutes": minutes}
        *copied, total = client.log("flights-copy").scan(key)
        assert [entry.value for entry in copied] == histories[key]
        assert (total.value, total.snapshot) == (last.value, True)
    assert f"manifest 2: {len(histories)} entries" in said
    assert "\n0 keys have a new logical snapshot" in said, "the copy has the totals"
