"""The command line against a real node: every verb in every format, and the exit codes."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from terminal import LOGNODE, Terminal

import lognode
from lognode import testing
from lognode.client.cli.main import VERBS
from lognode.client.cli.printer import FORMATS
from lognode.node.main import main
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[LocalCluster]:
    with testing.cluster(module_path, 1) as found:
        yield found


@pytest.fixture
def run(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Run a verb in this process; the exit code and what it wrote."""
    monkeypatch.setenv("LOGNODE_SERVER", cluster.servers)

    def call(*arguments: str, code: int = 0, stdin: bytes = b"") -> tuple[str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        got = main(arguments)
        out, err = capsys.readouterr()
        assert got == code, f"{arguments}: exit code {got}, not {code}: {err}"
        assert code == 0 or err.count("\n") == 1 or err == "", f"not one line: {err!r}"
        return out, err

    return call


_BENCH = ["bench-{format}", "--seconds", "200ms", "--keys", "50", "--ranges", "1"]
EXAMPLES = {
    "log create": ["verbs-{format}", "--ranges", "2"],
    "log list": [],
    "log describe": ["verbs"],
    "log alter": ["verbs", "--retention", "7d"],
    "log delete": ["verbs-{format}", "--yes"],
    "trim": ["verbs", "k", "--before", "1", "--yes"],
    "delete-key": ["verbs", "nobody", "--yes"],
    "append": ["verbs", "k", "v"],
    "import": ["verbs", "{csv}", "--key", "key"],
    "scan": ["verbs", "k"],
    "latest": ["verbs", "k"],
    "count": ["verbs", "k"],
    "keys": ["verbs"],
    "follow": ["verbs", "k", "--from", "earliest", "-n", "1"],
    "snapshot": ["verbs", "--lease", "1s"],
    "bench append": [*_BENCH, "--batch", "10"],
    "bench poll": _BENCH,
    "bench follow": [*_BENCH, "--followers", "5", "--rate", "100", "--batch", "10"],
    "bench mixed": [*_BENCH, "--rate", "100", "--batch", "10"],
    "range list": ["verbs", "--wide"],
    "range transfer": ["0", "1"],
    "node storage": ["1"],
    "node settings": ["1"],
    "node connections": ["1"],
    "producer list": [],
    "producer delete": ["import-{format}", "--yes"],
    "node list": [],
    "cluster finalize": ["--yes"],
    "status": [],
    "top": ["--once"],
    "health": ["--wait", "10s"],
}


def test_every_verb_has_an_example() -> None:
    more = {
        "range move", "range split", "range merge", "range recover", "node drain", "node remove",
        "node rekey", "token create", "token list", "token revoke", "quota set", "quota list",
        "quota delete", "usage", "cursor list", "cursor set", "cursor delete",
        "group list", "group describe", "group lag", "group parked", "group history",
        "group retry", "group skip", "group reset", "group delete", "consume",
        "view list", "view register", "view delete",
        "node invite", "node invites", "node uninvite", "range hot",
        "backup create", "backup list", "backup verify", "backup restore",
        "backup delete", "backup prune", "restore",
    }  # fmt: skip
    assert {*EXAMPLES, *more} == VERBS.keys(), "those have tests of their own"


def test_a_calm_cluster_has_no_hot_key(run: Any) -> None:
    assert json.loads(run("range", "hot", "--format", "json")[0]) == []


@pytest.mark.parametrize("format_", FORMATS)
def test_every_verb_prints_every_format(
    run: Any, cluster: LocalCluster, tmp_path: Path, format_: str
) -> None:
    csv = tmp_path / "a.csv"
    csv.write_text("key,n\nk,1\nk2,2\n")
    run("log", "create", "verbs", "--exist-ok")
    with lognode.Client(cluster.servers) as client:
        for name in ("kept", f"import-{format_}"):
            with client.log("verbs").producer(name=name):
                pass
    for name in ["append", *(name for name in EXAMPLES if name not in ("append", "log delete"))]:
        arguments = [part.format(format=format_, csv=csv) for part in EXAMPLES[name]]
        out, _ = run(*name.split(), *arguments, "--format", format_)
        assert out, f"{name} prints nothing"
        if format_ == "json" and name != "follow":
            json.loads(out)
        elif format_ != "table":
            for line in out.splitlines():
                json.loads(line)
    arguments = [part.format(format=format_) for part in EXAMPLES["log delete"]]
    assert run("log", "delete", *arguments, "--format", format_) == ("", "")


def test_values_travel_through_the_command_line(run: Any) -> None:
    run("log", "create", "values", "--split-at", "g,p")
    assert run("append", "values", "k", "-", stdin=b"a\n\nc")[0].count("\n") == 3
    run("append", "values", "k", "--tombstone")
    run("append", "values", "--", "-k", "-v")
    out, _ = run("scan", "values", "k", "--format", "jsonl")
    assert [json.loads(line)["value"] for line in out.splitlines()] == ["a", "", "c", None]
    assert run("count", "values", "k")[0] == "4\n"
    assert run("count", "values", "--", "-k")[0] == "1\n"
    assert run("count", "values", "k", "--from", "-10m", "--to", "2")[0] == "1\n"
    assert run("count", "values", "k", "--from", "2")[0] == "3\n"
    assert run("count", "values", "k", "--to", "-10m")[0] == "0\n"
    run("append", "values", "h", "v", "--header", "from=büro", "--header", "empty=")
    run("append", "values", "h", "-", "--header", "a=b=c", stdin=b"1\n2")
    out, _ = run("scan", "values", "h", "--format", "jsonl")
    assert [json.loads(line)["headers"] for line in out.splitlines()] == [
        [["from", "büro"], ["empty", ""]], [["a", "b=c"]], [["a", "b=c"]],
    ]  # fmt: skip
    run("delete-key", "values", "h", "--yes")
    out, _ = run("scan", "values", "k", "--format", "jsonl")
    assert run("keys", "values")[0] == "-k\nk\n"
    assert run("keys", "values", "--prefix", "k")[0] == "k\n"
    assert run("keys", "values", "--after=-k")[0] == "k\n"
    seqs = [json.loads(line)["seq"] for line in out.splitlines()]
    first = run("scan", "values", "k", "--from", str(seqs[1]), "--to", str(seqs[3]), "-n", "1")[0]
    assert first.split("\t")[1] == str(seqs[1])
    newest = run("scan", "values", "k", "--reverse", "-n", "1")[0]
    assert newest.split("\t")[1] == str(seqs[3])
    assert run("scan", "values", "k", "--from", "-10m")[0].count("\n") == 4
    assert run("scan", "values", "k", "--to", "-10m") == ("", "")
    assert run("scan", "values", "k", "--from", "snapshot")[0].count("\n") == 4, "there is none"
    assert run("latest", "values", "nobody") == ("", "")
    assert run("scan", "values", "nobody") == ("", "")
    ranges = json.loads(run("range", "list", "values", "--format", "json")[0])
    assert [row["start"] for row in ranges] == ["", "g", "p"]


def test_names_of_producers_are_listed_and_forgotten(run: Any, cluster: LocalCluster) -> None:
    run("log", "create", "named")
    with lognode.Client(cluster.servers) as client:
        for _ in range(2):
            with client.log("named").producer(name="import/1") as producer:
                producer.submit(b"k", b"v", number=1).result()
    rows = json.loads(run("producer", "list", "--format", "json")[0])
    (row,) = [each for each in rows if each["name"] == "import/1"]
    assert row["opened_ms"] > 1_700_000_000_000
    assert "import/1" in run("producer", "list")[0]
    assert "Give --yes" in run("producer", "delete", "import/1", code=2)[1]
    out, _ = run("producer", "delete", "import/1", "--yes", "--format", "json")
    assert json.loads(out) == {"name": "import/1", "id": row["id"], "epoch": row["epoch"]}
    assert (
        "producer name 'import/1' does not exist"
        in run("producer", "delete", "import/1", "--yes", code=4)[1]
    )


def test_S6_keys_are_trimmed_and_deleted(run: Any) -> None:
    run("log", "create", "removals")
    run("append", "removals", "k", "-", stdin=b"a\nb\nc")
    assert run("trim", "removals", "k", "--before", "2", "--yes")[0] == "k\t2\n"
    out, _ = run("scan", "removals", "k")
    assert [line.split("\t")[1] for line in out.splitlines()] == ["2", "3"]
    assert run("delete-key", "removals", "k", "--yes")[0] == "k\tyes\n"
    assert run("scan", "removals", "k") == ("", "")
    assert run("keys", "removals") == ("", "")
    run("append", "removals", "k", "again", "--expect", "absent")
    assert run("latest", "removals", "k")[0].split("\t")[1] == "4"


def test_a_snapshot_is_printed_as_a_table_and_as_what_opens_it_again(
    run: Any, cluster: LocalCluster
) -> None:
    run("log", "create", "shot", "--split-at", "m")
    run("append", "shot", "k", "-", stdin=b"a\nb")
    out, err = run("snapshot", "shot")
    assert out == "-\tm\t2\nm\t-\t0\n"
    assert "--format json prints text that opens the snapshot again" in err
    saved = run("snapshot", "shot", "--format", "jsonl")[0]
    assert saved.count("\n") == 1
    run("append", "shot", "k", "c")
    with lognode.Client(cluster.servers) as client:
        opened = client.log("shot").open_snapshot(saved)
        assert [entry.value for entry in opened.read()] == [b"a", b"b"]
    assert "log 'nolog' does not exist" in run("snapshot", "nolog", code=4)[1]
    assert "give 0.001 s to 7 days" in run("snapshot", "shot", "--lease", "8d", code=1)[1]


def test_a_snapshot_in_a_file_is_read_by_the_verbs(run: Any, tmp_path: Path) -> None:
    run("log", "create", "filed", "--split-at", "m")
    run("append", "filed", "k", "-", stdin=b"a\nb\nc")
    run("append", "filed", "z", "d")
    saved = tmp_path / "snapshot.json"
    saved.write_text(run("snapshot", "filed", "--format", "json")[0])
    run("append", "filed", "k", "later")
    run("append", "filed", "y", "later")

    def read(verb: str, *arguments: str, **more: Any) -> list[str]:
        out, _ = run(verb, "filed", *arguments, "--snapshot", str(saved), **more)
        return [line.split("\t")[-1] for line in out.splitlines()]

    assert read("scan", "k") == ["a", "b", "c"]
    assert read("scan", "k", "--from", "2", "--to", "3") == ["b"]
    assert read("scan", "k", "--from", "-10m", "-n", "2") == ["a", "b"]
    assert read("scan", "k", "--to", "-10m") == []
    assert read("scan", "k", "--reverse", "-n", "2") == ["c", "b"]
    assert read("scan", "k", "-n", "0") == []
    assert read("latest", "k") == ["c"]
    assert read("latest", "y") == []
    assert read("count", "k") == ["3"]
    assert read("count", "k", "--from", "3") == ["1"]
    assert read("keys") == ["k", "z"]
    assert read("keys", "--prefix", "k") == ["k"]
    assert read("keys", "--after", "k") == ["z"]
    assert read("keys", "-n", "1") == ["k"]
    stdin = saved.read_bytes()
    assert run("count", "filed", "k", "--snapshot", "-", stdin=stdin)[0] == "3\n"
    for flags in (["--node", "1"], ["--through", "1"], ["--reverse"], ["--from", "latest"]):
        _, err = run("scan", "filed", "k", "--snapshot", str(saved), *flags, code=2)
        assert f"--snapshot does not go together with {flags[0]}" in err
    missing = str(tmp_path / "none")
    assert "No such file" in run("keys", "filed", "--snapshot", missing, code=1)[1]
    run("log", "create", "another")
    assert "filed" in run("keys", "another", "--snapshot", str(saved), code=1)[1]


def test_many_keys_are_scanned_and_counted(run: Any, tmp_path: Path) -> None:
    """`lognode scan LOG --prefix P` and `--limit` are what newcomers write first."""
    run("log", "create", "spread", "--split-at", "m", "--hierarchy", "/")
    for key in ("a/1", "a/2", "z/1"):
        run("append", "spread", key, "-", stdin=f"{key} 1\n{key} 2".encode())

    def read(*arguments: str) -> list[str]:
        out, _ = run("scan", "spread", *arguments)
        return sorted(line.split("\t")[-1] for line in out.splitlines())

    everything = ["a/1 1", "a/1 2", "a/2 1", "a/2 2", "z/1 1", "z/1 2"]
    assert read() == read("--prefix", "") == read("--from", "2020-01-01") == everything
    assert read("--prefix", "a/2") == ["a/2 1", "a/2 2"]
    assert read("--pattern", "*/1") == ["a/1 1", "a/1 2", "z/1 1", "z/1 2"]
    assert len(read("--limit", "5")) == 5
    assert (
        read("-n", "0")
        == read("--to", "2020-01-01T00:00:00Z")
        == read("--from", "2100-01-01")
        == []
    )
    assert run("count", "spread")[0] == "6\n"
    assert run("count", "spread", "--prefix", "a/", "--format", "json")[0] == "4\n"
    assert run("count", "spread", "--pattern", "a/*", "--from", "-10m")[0] == "4\n"
    saved = tmp_path / "spread.json"
    saved.write_text(run("snapshot", "spread", "--format", "json")[0])
    run("append", "spread", "a/1", "later")
    at = ("--snapshot", str(saved))
    assert read(*at) == everything
    assert read("--prefix", "a/2", *at) == ["a/2 1", "a/2 2"]
    assert len(read("--to", "2", *at)) == 2, "each range has its seqs"
    assert run("count", "spread", *at)[0] == "6\n"
    assert run("count", "spread")[0] == "7\n"
    assert "log 'nolog' does not exist" in run("scan", "nolog", code=4)[1]
    assert "a scan of many keys starts at" in run("scan", "spread", "--from", "snapshot", code=1)[1]


def test_policies_are_created_altered_and_described(run: Any) -> None:
    run("log", "create", "rules", "--retention", "7d", "--retention-bytes", "10GiB")
    run("log", "alter", "rules", "--retention", "none", "--snapshot-delay", "1h")
    policy = json.loads(run("log", "describe", "rules", "--format", "json")[0])
    assert policy["ranges"][0]["log"] == "rules"
    for name, value in (("retention_ms", None), ("retention_bytes", 10 << 30),
                        ("cleanup", "delete"), ("snapshot_delay_ms", 3_600_000)):  # fmt: skip
        assert policy[name] == value
    (status,) = [
        log for log in json.loads(run("status", "--format", "json")[0])["logs"]
        if log["name"] == "rules"
    ]  # fmt: skip
    assert status["snapshot_delay_ms"] == 3_600_000


def test_a_log_that_no_failure_may_hit_says_so(run: Any) -> None:
    for replicas, told in (("1", True), ("2", True), ("3", False)):
        _, err = run("log", "create", f"replicas-{replicas}", "--replicas", replicas)
        assert ("tolerate the failure of no node" in err) == told


def test_a_terminal_shows_heads_and_times(run: Any, cluster: LocalCluster) -> None:
    run("log", "create", "shown")
    run("append", "shown", "k", "v")
    terminal = Terminal(cluster.servers, "follow", "shown", "--from", "earliest", "-n", "1")
    assert terminal.end() == 0
    head, row = terminal.shown.decode().splitlines()
    assert re.search(r"KEY +SEQ +TIME +VALUE", head)
    assert re.search(r"k +1 +20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z +v", row)


def test_health_says_what_to_do_next(run: Any, cluster: LocalCluster) -> None:
    out, err = run("health", "--nodes", "2", code=3)
    address = cluster.servers.removeprefix("lognode://")
    assert out == "1 nodes are ACTIVE; the check wants 2\n"
    assert err == f"next: start 1 more node with `lognode --join {address}`\n"
    answer = json.loads(run("health", "--nodes", "2", "--format", "json", code=3)[0])
    assert answer["next"] == err.removeprefix("next: ").strip()
    sound = json.loads(run("health", "--format", "json")[0])
    assert sound == {"ok": True, "reasons": [], "next": None}
    assert run("status")[1] == ""


def test_the_ports_for_clients_and_for_http_are_not_confused(
    run: Any, cluster: LocalCluster
) -> None:
    (node,) = json.loads(run("status", "--format", "json")[0])["nodes"]
    _, err = run("log", "list", "--server", node["http"], code=1)
    assert "the port answers HTTP: give the address of the node's --listen" in err
    for address in (node["address"], node["peer"]):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://{address}/healthz", timeout=10)
        with caught.value as answer:
            assert answer.code == 400
            assert b"HTTP is at the address of the node's --http" in answer.read()


def test_S9_conflicts_are_5(run: Any) -> None:
    run("log", "create", "conflicts")
    _, err = run("log", "create", "conflicts", code=5)
    assert "exists already" in err
    run("append", "conflicts", "k", "v", "--expect", "absent")
    _, err = run("append", "conflicts", "k", "v", "--expect", "absent", code=5)
    assert "the key's last seq is 1" in err
    run("append", "conflicts", "k", "v", "--expect", "1")
    assert run("count", "conflicts", "k")[0] == "2\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["append", "nolog", "k", "v"],
            4,
            "log 'nolog' does not exist; `lognode log list` shows all",
        ),
        (["append", "nolog", "k", "v"], 4, "logs, and `lognode log create` creates a log"),
        (["bench", "poll", "nolog"], 4, "and --ranges creates the log"),
        (["scan", "nolog", "k"], 4, "log 'nolog' does not exist"),
        (["log", "delete", "nolog", "--yes"], 4, "log 'nolog' does not exist"),
        (["append", "bad", "", "v"], 1, "a key has 1 to 480 bytes"),
        (["append", "bad", "x" * 481, "v"], 1, "the key has 481 bytes; the limit is 480"),
        (["count", "bad", ""], 1, "a key has 1 to 480 bytes"),
        (["count", "bad", "x" * 481], 1, "the key has 481 bytes; the limit is 480"),
        (["count", "bad", "k", "--node", "7"], 4, "7"),
        (["count", "bad", "k", "--server", "nowhere:x"], 1, "'x' is not a port"),
        (["log", "create", "many", "--ranges", "5000"], 1, "1 to 4096 are allowed"),
        (["log", "create", "many", "--replicas", "0"], 1, "replicas"),
        (["log", "create", " blank"], 1, "has a blank or an unprintable character"),
        (["import", "bad", "/nowhere.csv", "--key", "k"], 1, "No such file or directory"),
        (["log", "alter", "nolog", "--retention", "7d"], 4, "log 'nolog' does not exist"),
        (
            ["log", "alter", "bad", "--cleanup", "compact", "--retention", "7d"],
            1,
            "cleanup is compact and retention_ms is 604800000: compaction keeps",
        ),
        (["log", "create", "odd", "--delete-retention", "1d"], 1, "and needs cleanup compact"),
        (["trim", "nolog", "k", "--before", "3"], 4, "log 'nolog' does not exist"),
        (["trim", "bad", "", "--before", "3", "--yes"], 1, "a key has 1 to 480 bytes"),
        (
            ["trim", "bad", "k", "--before", "3"],
            2,
            "Give --yes when the command runs without a terminal",
        ),
        (["delete-key", "nolog", "k", "--yes"], 4, "log 'nolog' does not exist"),
        (["delete-key", "bad", "k"], 2, "Give --yes when the command runs without a terminal"),
        (["log", "delete", "bad"], 2, "Give --yes when the command runs without a terminal"),
    ],
)
def test_bad_input_is_one_line_and_harms_nobody(
    run: Any, arguments: list[str], code: int, message: str
) -> None:
    run("log", "create", "bad", "--exist-ok")
    _, err = run(*arguments, code=code)
    assert message in err
    run("append", "bad", "k", "v")


def test_a_value_over_one_mebibyte_is_refused(run: Any) -> None:
    run("log", "create", "large")
    value = "x" * (1 << 20)
    run("append", "large", "k", "-", stdin=value.encode())
    _, err = run("append", "large", "k", "-", stdin=b"ok\n" + value.encode() + b"x", code=1)
    assert "line 2: the value has 1048577 bytes; the limit is 1048576" in err
    assert run("count", "large", "k")[0] == "2\n"


def test_an_address_that_does_not_answer(run: Any) -> None:
    port = testing.free_ports(1)[0]
    _, err = run("count", "bad", "k", "--server", f"127.0.0.1:{port}", "--timeout", "1s", code=1)
    assert f"127.0.0.1:{port}: Connection refused" in err
    _, err = run(
        "append", "bad", "k", "v", "--server", f"127.0.0.1:{port}", "--timeout", "1s", code=1
    )
    run("health", "--server", f"127.0.0.1:{port}", "--timeout", "1s", code=3)


class TestImport:
    """`lognode import`."""

    def test_S8_again_under_the_same_name_adds_nothing(self, run: Any, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("key,n\n" + "".join(f"k{n % 7},{n}\n" for n in range(5_000)))
        run("log", "create", "again")
        arguments = ("import", "again", str(path), "--key", "key", "--format", "jsonl")
        first = json.loads(run(*arguments, "--producer", "p")[0])
        again = json.loads(run(*arguments, "--producer", "p")[0])
        other = json.loads(run(*arguments, "--producer", "q")[0])
        assert (first["acknowledged"], first["duplicates"]) == (5_000, 0)
        assert (again["acknowledged"], again["duplicates"]) == (5_000, 5_000)
        assert (other["acknowledged"], other["duplicates"]) == (5_000, 0)
        out, _ = run("scan", "again", "k3", "-n", "3", "--format", "jsonl")
        values = [json.loads(json.loads(line)["value"]) for line in out.splitlines()]
        assert values == [{"key": "k3", "n": str(n)} for n in (3, 10, 17)]

    def test_rows_come_from_standard_input(self, cluster: LocalCluster, run: Any) -> None:
        run("log", "create", "piped")
        done = subprocess.run(
            [LOGNODE, "import", "piped", "-", "--input", "csv", "--key", "key", "--server",
             cluster.servers],
            input="key,n\na,1\nb,2\n", capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert done.stdout.split("\t")[:2] == ["2", "2"]
        assert run("keys", "piped")[0] == "a\nb\n"
        assert (
            "give the format with --input" in run("import", "piped", "-", "--key", "k", code=1)[1]
        )

    def test_bad_rows_stop_it_or_are_left_out(self, run: Any, tmp_path: Path) -> None:
        path = tmp_path / "bad.csv"
        path.write_text("key,n\na,1\nb\nc,3\n" + "x" * 481 + ",4\ne,5\n")
        run("log", "create", "rows")
        _, err = run("import", "rows", str(path), "--key", "key", code=1)
        assert "bad.csv: line 3: the row has 1 fields; the header has 2; the log has the 1 " in err
        assert run("keys", "rows")[0] == "a\n"
        out, err = run(
            "import", "rows", str(path), "--key", "key", "--on-error", "skip", "--format", "jsonl"
        )
        assert json.loads(out)["skipped"] == 2
        assert err.splitlines() == [
            "left out: line 3: the row has 1 fields; the header has 2",
            "left out: line 5: the key has 481 bytes; the limit is 480. Shorten the key or hash it",
        ]
        assert run("keys", "rows")[0] == "a\nc\ne\n"


def interrupted(cluster: LocalCluster, log: str, *arguments: str) -> str:
    """Start a verb, press Ctrl-C once the log has entries; return what the verb said."""
    process = subprocess.Popen(
        [LOGNODE, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "LOGNODE_SERVER": cluster.servers},
    )  # fmt: skip
    with lognode.Client(cluster.servers) as client:
        opened = client.log(log)
        testing.eventually(
            lambda: sum(map(opened.count, opened.keys(prefix=""))) > 1_000,
            timeout_s=60, what="entries",
        )  # fmt: skip
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    "arguments", [["--help"], ["help", "init"], ["config", "show"], ["init", "-"]]
)
def test_a_closed_pipe_ends_a_verb_without_a_cluster_quietly(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [LOGNODE, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_import_that_is_interrupted_says_what_was_stored(
    run: Any, cluster: LocalCluster, tmp_path: Path
) -> None:
    path = tmp_path / "long.csv"
    path.write_text("key,n\n" + "".join(f"k{n % 7},{n}\n" for n in range(600_000)))
    run("log", "create", "long")
    err = interrupted(cluster, "long", "import", "long", str(path), "--key", "key")
    found = re.match(r"interrupted: log 'long' has (\d+) of the rows(?:, and perhaps (\d+))?", err)
    assert found, err
    stored = sum(int(run("count", "long", f"k{n}")[0]) for n in range(7))
    assert 0 < int(found[1]) <= stored <= int(found[1]) + int(found[2] or 0) < 600_000


def test_a_bench_that_is_interrupted_says_what_was_stored(run: Any, cluster: LocalCluster) -> None:
    run("log", "create", "benched")
    err = interrupted(
        cluster, "benched", "bench", "append", "benched", "--seconds", "60s", "--keys", "5",
        "--batch", "10",
    )  # fmt: skip
    found = re.match(r"interrupted: log 'benched' has (\d+) records of this bench, and per", err)
    assert found, err
    keys = run("keys", "benched")[0].splitlines()
    assert 0 < int(found[1]) <= sum(int(run("count", "benched", key)[0]) for key in keys)


def test_a_closed_pipe_ends_it_quietly(cluster: LocalCluster, run: Any) -> None:
    run("log", "create", "pipe")
    run("append", "pipe", "k", "-", stdin=b"x" * 1_000 + b"\n" + (b"y" * 1_000 + b"\n") * 500)
    command = f"{sys.executable} -m lognode.node.main scan pipe k --server {cluster.servers}"
    done = subprocess.run(
        f"({command}; echo code $? >&2) | head -n 1",
        shell=True, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.count("\n") == 1
    assert done.stderr == "code 0\n"
