"""What users run first: the demo and the benchmark, in full and in short."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lognode import Client, testing

pytestmark = pytest.mark.cluster
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def run(script: str, *arguments: str, port: int | None = None) -> str:
    environment = {**os.environ, "LOGNODE_DEMO_PORT": str(port or 4600)}
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        capture_output=True, text=True, timeout=300, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("flags", "aircraft", "refusals"),
    [
        pytest.param((), "4,044", (), id="open", marks=pytest.mark.by_hand),
        pytest.param(
            # The first 100,000 of 336,776 flights: enough for a kill half-way through the import.
            ("--secure", "--rows", "100000"),
            "3,741",
            ("a client without TLS is refused", "a client without a token is refused",
             "the importing program may not create a log"),
            id="secure", marks=pytest.mark.by_hand,
        ),
    ],
)  # fmt: skip
def test_S1_S2_S4_S8_L1_the_demo_holds_what_it_says(
    flags: tuple[str, ...], aircraft: str, refusals: tuple[str, ...]
) -> None:
    out = run("demonstration.py", *flags, port=testing.free_row(9))
    checked = out.split("Checked:")[1]
    assert checked.count("[ok]") == 6 + len(refusals)
    for refusal in refusals:
        assert f"[ok] {refusal}" in checked
    assert f"all {aircraft} histories equal the file's, in order" in checked
    assert "the same import under the same name adds nothing" in checked


@pytest.mark.by_hand
def test_peers_take_turns_and_missing_peers_are_named(tmp_path: Path) -> None:
    json_path = tmp_path / "figures.json"
    out = run(
        "bench", "peers", "--quick", "--systems", "lognode,nats-fsync,kafka,pysyncobj",
        "--cache", str(tmp_path / "nothing"), "--data", str(tmp_path), "--json", str(json_path),
    )  # fmt: skip
    figures = json.loads(json_path.read_text())
    assert set(figures["skipped"]) == {"nats-fsync", "kafka"}
    assert "skipped nats-fsync: no " in out
    assert "fsync on a majority" in figures["systems"]["lognode"]["durability"]
    assert [(row["system"], row["workload"]) for row in figures["results"]] == [
        ("lognode", "append, 64 calls of 1000 in flight"), ("lognode", "append at 100/s"),
        ("pysyncobj", "append, 16 calls of 100 in flight"), ("pysyncobj", "append at 100/s"),
    ]  # fmt: skip
    for row in figures["results"]:
        assert row["verified"] > 0
        assert row["records_per_second"] > 0
        assert row["all us"] >= row["members us"] > 0
        assert row["client us"] > 0
    assert figures["results"][2]["lognode / it"] > 0
    assert figures["environment"]["cores"] == os.cpu_count()
    assert not list(tmp_path.glob("bench-*"))


@pytest.mark.by_hand
@pytest.mark.parametrize("name", ["latency", "poll", "contention", "readback", "seal"])
def test_a_benchmark_is_quick_and_checks_what_it_reads(name: str, tmp_path: Path) -> None:
    json_path = tmp_path / "figures.json"
    out = run("bench", name, "--quick", "--data", str(tmp_path), "--json", str(json_path))
    figures = json.loads(json_path.read_text())
    assert figures["results"]
    for row in figures["results"]:
        verified = [value for what, value in row.items() if what.endswith("verified")]
        assert verified
        assert all(value > 0 for value in verified), row
    for said in ("cores", "fdatasync_p50_ms", "loopback_p50_ms", "replicas", "commit"):
        assert said in figures["environment"]
        assert said in out


@pytest.mark.by_hand
def test_sustained_appends_say_what_a_record_costs(tmp_path: Path) -> None:
    json_path = tmp_path / "figures.json"
    run("bench", "sustained", "--quick", "--warmup", "0.5", "--data", str(tmp_path), "--json",
        str(json_path))  # fmt: skip
    (row,) = json.loads(json_path.read_text())["results"]
    assert row["verified"] > 0
    assert row["client us"] > 0
    assert row["nodes us"] > 0
    assert row["all us"] >= row["client us"] + row["nodes us"]


@pytest.mark.by_hand
def test_P4_followers_are_few_and_miss_nothing(tmp_path: Path) -> None:
    json_path = tmp_path / "figures.json"
    run(
        "bench", "follow", "--quick", "--data", str(tmp_path), "--json", str(json_path),
        "--turns", "lognode:together,lognode:each,nats:core", "--cache", str(tmp_path / "nothing"),
    )  # fmt: skip
    *rows, missing = json.loads(json_path.read_text())["results"]
    assert "no " in missing["refused"]
    assert [row["mode"] for row in rows] == ["together", "each"]
    for row in rows:
        assert row["deliveries"] >= row["timed"] > 0
        assert (row["skipped"], row["repeated"]) == (0, 0)
        assert row["p50 ms"] > 0
        assert row["followers us"] >= 0


@pytest.mark.by_hand
def test_consumers_of_a_group_acknowledge_each_item_once(tmp_path: Path) -> None:
    json_path = tmp_path / "figures.json"
    run(
        "bench", "groups", "--quick", "--data", str(tmp_path), "--json", str(json_path),
        "--consumers", "1,4", "--turns", "lognode,kafka:group",
        "--cache", str(tmp_path / "nothing"),
    )  # fmt: skip
    rows = json.loads(json_path.read_text())["results"]
    missing = [row for row in rows if row["system"] == "kafka"]
    assert all("no " in row["refused"] for row in missing)
    own = [row for row in rows if row["system"] == "lognode"]
    assert [row["part"] for row in own] == [
        "drain", "drain", "latency", "poison", "poison", "churn", "growth",
    ]  # fmt: skip
    for row in own:
        assert row["acknowledged"] > 0
        assert (row["missing"], row["repeated"], row["out of order"]) == (0, 0, 0)
    with_poison, churn, growth = own[-3:]
    assert with_poison["failures"] == 5
    assert churn["joins"] > 32
    assert churn["stood max ms"] > 0
    assert growth["meta MiB after"] > 0


@pytest.mark.by_hand
def test_a_client_of_kafka_gets_each_record_once(tmp_path: Path) -> None:
    json_path = tmp_path / "figures.json"
    run(
        "bench", "door", "--quick", "--data", str(tmp_path), "--json", str(json_path),
        "--systems", "lognode,kafka", "--partitions", "1,3", "--cache", str(tmp_path / "nothing"),
    )  # fmt: skip
    rows = json.loads(json_path.read_text())["rows"]
    assert all("no " in row["refused"] for row in rows if row["system"] == "kafka")
    own = [row for row in rows if row["system"] == "lognode"]
    assert [(row["part"], row["partitions"]) for row in own] == [
        ("flat", 1), ("flat", 3), ("paced", 1), ("paced", 3), ("many", 100),
    ]  # fmt: skip
    for row in own:
        assert (row["missing"], row["repeated"], row["errors"]) == (0, 0, [])
        assert row["ack p50 ms"] > 0
        assert row["consumed/s"] > 0 if row["part"] == "flat" else row["deliveries"] > 0


@pytest.mark.by_hand
def test_the_memory_of_a_node_is_told_by_parts(tmp_path: Path) -> None:
    json_path = tmp_path / "memory.json"
    run("bench", "memory", "--quick", "--data", str(tmp_path), "--json", str(json_path))
    figures = json.loads(json_path.read_text())
    assert figures["environment"]["verified"] > 0
    for sample in figures["memory"]:
        for node in sample["nodes"]:
            assert node["node"] > node["memtables"] >= 0
            assert node["rest"] > 0
    run("bench", "plot", str(json_path), "--out", str(tmp_path / "plots"))
    (drawn,) = (tmp_path / "plots").iterdir()
    assert ElementTree.parse(drawn).getroot().tag.endswith("svg")


@pytest.mark.by_hand
def test_half_an_hour_of_load_in_short_is_drawn(tmp_path: Path) -> None:
    json_path = tmp_path / "steady.json"
    run("bench", "steady", "--quick", "--data", str(tmp_path), "--json", str(json_path))
    figures = json.loads(json_path.read_text())
    assert figures["samples"]
    assert figures["series"]
    assert all(row["verified"] + row["expired"] > 0 for row in figures["results"])
    run("bench", "plot", str(json_path), "--out", str(tmp_path / "plots"))
    drawn = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert drawn == [f"steady-{part}.svg" for part in ("disk", "files", "latency", "memory")]
    for path in (tmp_path / "plots").iterdir():
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_the_benchmark_of_writing_back_is_quick(tmp_path: Path) -> None:
    out = run("bench", "writeback", "--quick", "--data", str(tmp_path))
    for way in ("nothing beside it", "fsync at the end", "in steps, then fsync"):
        assert way in out
    assert list(tmp_path.iterdir()) == []


def test_every_load_of_the_command_line_checks_what_it_reads(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 1) as cluster:
        for load in (
            ["append", "log", "--keys", "100", "--records", "1000", "--batch", "100",
             "--ranges", "2"],
            ["append", "log", "--keys", "100", "--rate", "100", "--batch", "1", "--zipf", "1.1"],
            ["append", "counts", "--ranges", "1", "--keys", "4", "--conditional"],
            ["poll", "log", "--keys", "100"],
            ["follow", "log", "--keys", "100", "--followers", "20", "--rate", "500", "--batch",
             "50"],
            ["mixed", "log", "--keys", "100", "--rate", "500", "--batch", "50"],
        ):  # fmt: skip
            done = subprocess.run(
                [sys.executable, "-m", "lognode.node.main", "bench", *load, "--seconds", "500ms",
                 "--server", cluster.servers, "--timeout", "60s", "--format", "json"],
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            report = json.loads(done.stdout)
            for part in (report["append"], report["poll"]) if "poll" in report else (report,):
                assert part["verified"] > 0
                assert part["records"] > 0
        with Client(cluster.servers, timeout=60) as client:
            client.log("log").append(b"0000000000000007", b"of somebody else")
        foreign = subprocess.run(
            [sys.executable, "-m", "lognode.node.main", "bench", "poll", "log", "--keys", "100",
             "--rate", "1000", "--seconds", "1s", "--limit", "1000", "--server", cluster.servers],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert foreign.returncode == 1
        assert "which no client wrote" in foreign.stderr


@pytest.mark.by_hand
def test_P9_a_short_restart_benchmark_starts_a_node_on_more_and_more(tmp_path: Path) -> None:
    json_path = tmp_path / "figures.json"
    out = run("bench", "restart", "--quick", "--data", str(tmp_path), "--json", str(json_path))
    results = json.loads(json_path.read_text())["results"]
    assert [result["what"] for result in results] == [
        "after a kill",
        *["after an orderly stop", "after a kill, files new", "after a kill, nothing new"] * 2,
    ]
    assert results[0]["wal_mib"] >= 24
    assert results[-1]["segments_mib"] > results[1]["segments_mib"]
    assert all(result["cpu_s"] > 0 for result in results)
    assert out.count(" CPU ") == len(results)


@pytest.mark.by_hand
def test_ranges_change_under_load_and_every_record_is_read_back(tmp_path: Path) -> None:
    json_path = tmp_path / "figures.json"
    run("bench", "ranges", "--quick", "--data", str(tmp_path), "--json", str(json_path))
    rows = json.loads(json_path.read_text())["results"]
    assert [(row["operation"], row["count"]) for row in rows] == [
        ("nothing", 2), ("split", 2), ("merge", 1), ("transfer", 1), ("move of a follower", 1),
        ("move of the leader", 1), ("kill -9 of a leader", 1), ("split of 2 MB", 1),
        ("split of 4 MB", 1),
    ]  # fmt: skip
    for row in rows:
        assert row["verified"] >= row["delivered"] > 0
        assert row["producer pause max ms"] > 0
        assert row["follower pause max ms"] > 0
        assert len(row["each"]["producer pause ms"]) == row["count"]


@pytest.mark.by_hand
def test_a_backup_under_load_is_restored_into_one_node_and_into_five(tmp_path: Path) -> None:
    json_path = tmp_path / "figures.json"
    run("bench", "backup", "--quick", "--data", str(tmp_path), "--json", str(json_path))
    rows = json.loads(json_path.read_text())["results"]
    assert [row["step"] for row in rows] == [
        "fill", "writer alone", "writer during create", "create", "verify", "restore", "restore",
        "verify, a bit flipped", "restore, a bit flipped",
    ]  # fmt: skip
    one, five = rows[5:7]
    assert (one["nodes"], five["nodes"]) == (1, 5)
    assert one["verified"] == five["verified"] == rows[3]["entries"] > rows[0]["entries"]
    assert one["hash"] == five["hash"]
