"""The part of the tutorial with a group over the flights: its programs run as printed, on a small
file of flights."""

import csv
import json
import os
import random
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

import lognode
from lognode import testing
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
SERVER: Final = "lognode://127.0.0.1:4600"
AIRCRAFT: Final = ["N14228", "N24211", "N619AA", "unknown", *(f"N{n}UA" for n in range(16))]


def blocks(servers: str) -> tuple[dict[str, str], list[str]]:
    """Return the programs of the part by their names, and its commands."""
    part = PAGE.read_text("utf-8").split("\n## A group over the flights\n")[1].split("\n## ")[0]
    programs = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", part, re.M | re.S))
    commands = re.findall(r"^```sh\n(.*?)^```$", part, re.M | re.S)
    assert all(SERVER in text for text in programs.values())
    return (
        {name: text.replace(SERVER, servers) for name, text in programs.items()},
        [line for text in commands for line in text.splitlines()],
    )


def run(line: str, servers: str, folder: Path) -> str:
    """Run a command of the page that ends by itself; return its output."""
    words = shlex.split(line)
    program = (
        [sys.executable] if words[0] == "python" else [sys.executable, "-m", "lognode.node.main"]
    )
    done = subprocess.run(
        [*program, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "LOGNODE_SERVER": servers},
    )  # fmt: skip
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


@pytest.mark.by_hand
def test_the_group_over_the_flights_counts_each_flight_once(
    three: LocalCluster, tmp_path: Path
) -> None:
    programs, commands = blocks(three.servers)
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    rng = random.Random(14228)
    minutes: Counter[str] = Counter()
    flights: Counter[str] = Counter()
    with (tmp_path / "flights.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["tailnum", "dep_delay"])
        for _ in range(600):
            aircraft, delay = rng.choice(AIRCRAFT), rng.randrange(-5, 90)
            is_known = rng.random() > 0.1
            flights[aircraft] += 1
            minutes[aircraft] += delay if is_known else 0
            rows.writerow([aircraft, delay if is_known else "NA"])
    with lognode.Client(three.servers, timeout=60) as client:
        run("lognode log create flights --ranges 4", three.servers, tmp_path)
        run("lognode import flights flights.csv --key tailnum", three.servers, tmp_path)

        def totals() -> dict[str, Any]:
            if all(log["name"] != "delays" for log in client.logs()):
                return {}
            log = client.log("delays")
            found = [(key.decode(), log.latest(key)) for key in log.keys(prefix="")]
            return {key: json.loads(last.value or b"") for key, last in found if last is not None}

        def lag() -> int:
            (told,) = [line for line in commands if "group lag" in line]
            found: int = json.loads(run(f"{told} --format json", three.servers, tmp_path))[
                "entries"
            ]
            return found

        working = [
            subprocess.Popen([sys.executable, "delays.py"], cwd=tmp_path, stderr=subprocess.PIPE)
            for _ in range(2)
        ]
        try:
            testing.eventually(
                lambda: sum(each["flights"] for each in totals().values()) > 20,
                timeout_s=120, what="the programs count",
            )  # fmt: skip
            killed = working.pop()
            killed.kill()
            killed.communicate()
            testing.eventually(lambda: lag() == 0, timeout_s=120, what="all flights are counted")
            found = totals()
            assert {key: each["flights"] for key, each in found.items()} == flights
            assert {key: each["minutes"] for key, each in found.items()} == minutes
            (late,) = [line for line in commands if "late.py" in line]
            said = run(late, three.servers, tmp_path)
            assert said.startswith("counted b'")
            assert f'"minutes": {minutes["N14228"] + 12}' in said
            for line in commands:
                if line.startswith("lognode"):
                    assert run(line, three.servers, tmp_path)
        finally:
            for process in working:
                assert process.poll() is None, process.communicate()[1]
                process.kill()
                process.communicate()
