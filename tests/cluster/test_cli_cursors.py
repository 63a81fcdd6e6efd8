"""`lognode cursor`: what its verbs print and change, on a node; and a hierarchy in the status."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from feature_level import raise_level

import lognode
from lognode import testing
from lognode.node.main import main
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster
KEYS = [b"eu/1", b"eu/2", b"us/1"]


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[LocalCluster]:
    with testing.cluster(module_path, 1) as found:
        yield found


@pytest.fixture
def log(cluster: LocalCluster) -> Iterator[lognode.Log]:
    """A log of two ranges with 30 entries, 10 of each key."""
    with lognode.Client(cluster.servers, timeout=60) as client:
        raise_level(client)
        log = client.create_log("shop", hierarchy="/", split_at=[b"m"], replicas=1)
        log.append_many([(key, b"%d" % at) for at in range(10) for key in KEYS])
        yield log


@pytest.fixture
def run(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Run a verb in this process; what it printed, and its error line."""
    monkeypatch.setenv("LOGNODE_SERVER", cluster.servers)

    def call(*arguments: str, code: int = 0) -> tuple[str, str]:
        got = main(arguments)
        out, err = capsys.readouterr()
        assert got == code, f"{arguments}: exit code {got}, not {code}: {err}"
        return out, err

    return call


def test_cursor_verbs_print_and_change_cursors(run: Any, log: lognode.Log, cluster: Any) -> None:
    assert run("cursor", "list", "shop", "--format", "json") == ("[]\n", "")
    out, _ = run("follow", "shop", "--pattern", "eu/*", "--cursor", "eu", "--from", "earliest",
                 "-n", "20", "--format", "jsonl")  # fmt: skip
    assert sorted({json.loads(line)["key"] for line in out.splitlines()}) == ["eu/1", "eu/2"]

    def listed(*options: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            run("cursor", "list", "shop", *options, "--format", "json")[0]
        )
        return found

    (row,) = listed()
    assert (row["name"], row["next"], row["keys"]) == ("eu", 21, 0)
    assert row["holder"] > 0
    assert listed("--prefix", "us/") == []
    assert run("cursor", "set", "shop", "all", "--to", "7", "--yes") == ("", "")
    table, _ = run("cursor", "list", "shop")
    assert [line.split("\t")[0] for line in table.splitlines()] == ["all", "eu"]
    lines = run("cursor", "list", "shop", "--format", "jsonl")[0].splitlines()
    assert [json.loads(line)["next"] for line in lines] == [7, 21]
    # The reader that held the cursor is fenced, and a new reader begins at the set position.
    held = log.cursor("eu", prefix="eu/")
    held.open()
    assert run("cursor", "set", "shop", "eu", "--prefix", "eu/", "--to", "19", "--yes") == ("", "")
    with pytest.raises(lognode.Fenced):
        held.commit({b"eu/1": 20})
    out, _ = run("follow", "shop", "--prefix", "eu/", "--cursor", "eu", "-n", "2",
                 "--format", "jsonl")  # fmt: skip
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [19, 20]
    for to, next_ in (("earliest", 1), ("latest", 21), ("-10m", 1)):
        run("cursor", "set", "shop", "eu", "--prefix", "eu/", "--to", to, "--yes")
        assert listed("--prefix", "eu/")[1]["next"] == next_
    # Patterns choose the spans of a cursor of patterns; other keys keep their positions.
    run("cursor", "set", "shop", "eu", "--pattern", "eu/*", "--to", "5", "--yes")
    assert [row["next"] for row in listed() if row["name"] == "eu"] == [5]
    assert [row["name"] for row in listed("--prefix", "us/")] == ["all"]
    run("cursor", "delete", "shop", "all", "--pattern", "us/>", "--pattern", "!us/1", "--yes")
    assert listed("--prefix", "us/") == []
    run("cursor", "set", "shop", "all", "--to", "7", "--yes")
    _, err = run("cursor", "delete", "shop", "eu", "--prefix", "e", "--pattern", "e*", "--yes",
                 code=2)  # fmt: skip
    assert "give only one of --prefix and --pattern" in err
    # Delete a part, then the whole cursor; a repetition succeeds too.
    assert run("cursor", "delete", "shop", "all", "--prefix", "us/", "--yes") == ("", "")
    assert [row["name"] for row in listed("--prefix", "us/")] == []
    assert [row["name"] for row in listed()] == ["all", "eu"]
    for _ in range(2):
        assert run("cursor", "delete", "shop", "all", "--yes") == ("", "")
        assert [row["name"] for row in listed()] == ["eu"]
    # Errors: one line, and the exit code says which.
    _, err = run("cursor", "set", "shop", "eu", "--to", "snapshot", "--yes", code=2)
    assert "a cursor has a seq, earliest, latest, or a time" in err
    _, err = run("cursor", "list", "nope", code=4)
    assert "nope" in err
    assert err.count("\n") == 1
    _, err = run("follow", "shop", "--pattern", "a*b", "--cursor", "eu", "-n", "1", code=1)
    assert "`*` within a level" in err
    assert err.count("\n") == 1
    # Without a terminal a verb that destroys does nothing unless --yes is given.
    _, err = run("cursor", "delete", "shop", "eu", code=2)
    assert "--yes" in err
    assert [row["name"] for row in listed()] == ["eu"]
    check_status(cluster)


def check_status(cluster: LocalCluster) -> None:
    """Check that the status shows the hierarchy of a log, and none where there is none."""
    with lognode.Client(cluster.servers, timeout=60) as client:
        client.create_log("plain", replicas=1)
        found = {row["name"]: row["hierarchy"] for row in client.status()["logs"]}
    assert (found["shop"], found["plain"]) == (b"/", None)
    with urllib.request.urlopen(f"http://{cluster.nodes[0].http}/status.json") as answer:
        logs = json.load(answer)["logs"]
    assert {row["name"]: row["hierarchy"] for row in logs}["shop"] == "/"
