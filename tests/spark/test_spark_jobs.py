"""The jobs that aggregate, replay and fold, against real nodes."""

import json
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from spark_jobs import attempts, job
from spark_logs import append, entries, filled, histories, reader

import lognode
from lognode import testing
from lognode.client.protocol.errors import Unavailable
from lognode.client.spark.jobs import export, manifest, replay
from lognode.client.spark.jobs.place import Place
from lognode.client.spark.sink import deliver

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Cluster = testing.LocalCluster

SUM = """
import pandas as pd

def total(key: bytes, history: pd.DataFrame) -> bytes:
    return b"%d" % sum(int(value) for value in history["value"])

def odd(key, history):
    return 5

def fails(key, history):
    raise ValueError("no total today")
"""


@pytest.mark.by_hand
def test_aggregates_of_each_key_are_what_its_entries_say(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "aggregated", 2_000)
    log.append_many([(b"k07", b"xyz")] * 5)
    log.append(b"k08", None)
    out = tmp_path / "keys"
    assert job("aggregate", "aggregated", "--server", cluster.servers, "--out", out,
               "--top", 2) == 0  # fmt: skip
    said = capfd.readouterr().out.splitlines()
    assert said[0].split()[:4] == ["key", "entries", "bytes", "first_seq"]
    assert [line.split()[:2] for line in said[1:3]] == [["k07", "45"], ["k08", "41"]]
    size = sum(len(value or b"") for _, _, value in entries(log))
    assert said[3] == f"50 keys, 2006 entries, {size} bytes"
    found = {bytes(row.key): row for row in spark.read.parquet(str(out)).collect()}
    assert len(found) == 50
    for key, row in found.items():
        history = list(log.scan(key))
        times = [entry.timestamp_ms for entry in history]
        gaps = [(b - a) / 1000 for a, b in pairwise(times)]
        assert (row.entries, row.first_seq, row.last_seq, row.bytes) == (
            len(history), history[0].seq, history[-1].seq,
            sum(len(entry.value or b"") for entry in history),
        )  # fmt: skip
        assert round(row.first_time.timestamp() * 1000) == times[0]
        assert round(row.last_time.timestamp() * 1000) == times[-1]
        assert row.longest_gap_s == pytest.approx(max(gaps), abs=1e-5)
        assert row.mean_gap_s == pytest.approx(sum(gaps) / len(gaps), abs=1e-5)
    assert job("aggregate", "aggregated", "--server", cluster.servers, "--out", out) == 2
    assert "contains files" in capfd.readouterr().err
    assert job("aggregate", "aggregated", "--server", cluster.servers, "--top", 0) == 2
    assert "--top is 0; give 1 or more" in capfd.readouterr().err


@pytest.mark.by_hand
def test_a_job_is_given_to_spark_submit_as_a_file(
    spark: SparkSession, cluster: Cluster, client: lognode.Client
) -> None:
    filled(client, "submitted", 300)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    file = Path(replay.__file__).with_name("aggregate.py")
    done = subprocess.run(
        [str(submit), "--master", "local[1]", "--conf", "spark.ui.enabled=false", str(file),
         "submitted", "--server", cluster.servers, "--top", "1"],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "50 keys, 300 entries," in done.stdout


@pytest.mark.by_hand
def test_S8_a_replay_that_is_run_again_adds_nothing_twice(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "original", 2_000)
    log.append(b"k03", None, headers={b"h": b"1"})
    copy = client.create_log("replayed", split_at=[b"k30"])
    monkeypatch.setattr(replay, "rows_of_partition", 700)
    run = ("replay", "replayed", "--server", cluster.servers, "--source", tmp_path)
    assert job(*run) == 2
    assert "has no manifest" in capfd.readouterr().err
    for first, end in ((2_000, 2_500), (2_500, 3_000)):
        assert job("export", "original", "--server", cluster.servers, "--out", tmp_path) == 0
        expected = histories(log)
        append(log, first, end)
        assert job(*run) == 0
        assert histories(copy) == expected
        for ended in tmp_path.glob("replays/*/*.ended"):
            ended.unlink()  # as if the run had been lost before it noted that
            (ended.parent / f".{ended.name}.crc").unlink(missing_ok=True)
        assert job(*run) == 0
        assert job(*run) == 0
        assert histories(copy) == expected
    last = copy.latest(b"k03")
    assert last is not None
    assert [e.headers for e in copy.scan(b"k03") if e.value is None] == [{b"h": b"1"}]
    capfd.readouterr()
    for ended in tmp_path.glob("replays/*/*.ended"):
        ended.unlink()
        (ended.parent / f".{ended.name}.crc").unlink(missing_ok=True)
    monkeypatch.setattr(replay, "remembered_s", -1)
    assert job(*run) == 1
    assert "ranges no longer know its appends" in capfd.readouterr().err


@pytest.mark.by_hand
def test_a_replay_that_is_lost_in_the_middle_goes_on(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    log = filled(client, "whole", 2_000)
    copy = client.create_log("half")
    assert job("export", "whole", "--server", cluster.servers, "--out", tmp_path) == 0
    monkeypatch.setattr(replay, "rows_of_partition", 700)
    run = ("replay", "half", "--server", cluster.servers, "--source", tmp_path)

    def half(target, name, number, batches):  # type: ignore[no-untyped-def]
        if name.endswith("/1"):
            raise Unavailable("lost")
        return deliver(target, name, number, batches)

    with monkeypatch.context() as patched:
        patched.setattr(replay, "deliver", half)
        lost = job(*run)
    some = len(entries(copy))
    assert (lost, 0 < some < 2_000) == (1, True)
    assert job(*run) == 0
    assert histories(copy) == histories(log)


DELAYS = """
import json

def total(key, history):
    flights = minutes = 0
    for value, is_snapshot in zip(history["value"], history["snapshot"]):
        row = json.loads(value)
        if is_snapshot:
            flights, minutes = row["flights"], row["minutes"]
        else:
            flights += 1
            minutes += int(row["dep_delay"])
    return json.dumps({"flights": flights, "minutes": minutes})
"""
Kept = tuple[bytes | None, dict[bytes, bytes] | None, bool]


def kept(log: lognode.Log) -> dict[bytes, list[Kept]]:
    """What a replay keeps of the entries of each key, in their order."""
    return {
        key: [(e.value, e.headers and dict(e.headers), e.snapshot) for e in log.scan(key)]
        for key in list(log.keys())
    }


def test_S3_values_headers_tombstones_and_snapshots_survive_export_and_replay(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = client.create_log("survives", split_at=[b"k25"])
    copy = client.create_log("survived", split_at=[b"k10"])
    for at, value in enumerate((b"x", b"", None)):
        for headers in (None, {b"h": b"1", b"empty": b""}):
            for snapshot in (False, True):
                for key in (b"k00", b"k30", b"k3%d" % at):
                    log.append(key, value, headers=headers, snapshot=snapshot)
        assert job("export", "survives", "--server", cluster.servers, "--out", tmp_path) == 0
    run = ("replay", "survived", "--server", cluster.servers, "--source", tmp_path)
    for _ in range(2):
        assert job(*run) == 0
        assert kept(copy) == kept(log)
    assert len(entries(copy)) == 36


@pytest.mark.by_hand
def test_a_log_that_was_replayed_folds_on_from_its_logical_snapshots(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The steps of the tutorial: fold, export, replay, and fold what was replayed."""
    log, copy = client.create_log("delays"), client.create_log("delays-copy")
    (tmp_path / "delays.py").write_text(DELAYS)
    function, lake = f"{tmp_path}/delays.py:total", tmp_path / "lake"
    log.append_many([(b"N%d" % (at % 5), b'{"dep_delay": "%d"}' % at) for at in range(50)])
    assert job("fold", "delays", "--server", cluster.servers, "--function", function) == 0
    assert job("export", "delays", "--server", cluster.servers, "--out", lake) == 0
    assert job("replay", "delays-copy", "--server", cluster.servers, "--source", lake) == 0
    assert kept(copy) == kept(log)
    capfd.readouterr()
    assert job("fold", "delays-copy", "--server", cluster.servers, "--function", function) == 0
    assert "0 keys have a new logical snapshot" in capfd.readouterr().out
    copy.append(b"N3", b'{"dep_delay": "1000"}')
    assert job("fold", "delays-copy", "--server", cluster.servers, "--function", function) == 0
    last = copy.latest(b"N3")
    assert last is not None
    assert last.snapshot
    minutes = sum(at for at in range(50) if at % 5 == 3) + 1000
    assert json.loads(last.value or b"") == {"flights": 11, "minutes": minutes}


@pytest.mark.by_hand
def test_an_export_of_an_earlier_version_is_replayed_without_logical_snapshots(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """Its Parquet has no column for them; a manifest of this version may follow."""
    log, copy = client.create_log("earlier"), client.create_log("earlier-copy")
    log.append(b"k", b"1", snapshot=True)
    assert job("export", "earlier", "--server", cluster.servers, "--out", tmp_path) == 0
    (data,) = attempts(tmp_path)
    without = spark.read.parquet(str(data)).drop("snapshot")
    without.write.partitionBy("day").parquet(str(tmp_path / "without"))
    shutil.rmtree(data)
    (tmp_path / "without").rename(data)
    log.append(b"k", b"2", snapshot=True)
    assert job("export", "earlier", "--server", cluster.servers, "--out", tmp_path) == 0
    assert job("replay", "earlier-copy", "--server", cluster.servers, "--source", tmp_path) == 0
    assert kept(copy) == {b"k": [(b"1", None, False), (b"2", None, True)]}
    place = Place(spark, str(tmp_path))
    shown = export.exported(spark, place, manifest.all_of(place)).orderBy("seq")
    assert [row.snapshot for row in shown.collect()] == [False, True]


@pytest.mark.by_hand
def test_a_fold_writes_a_logical_snapshot_of_each_key_once(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "folded", 1_000)
    (tmp_path / "sums.py").write_text(SUM)
    run = ("fold", "folded", "--server", cluster.servers, "--function",
           f"{tmp_path}/sums.py:total")  # fmt: skip
    expected = {key: sum(int(v or 0) for v in values) for key, values in histories(log).items()}
    assert job(*run) == 0
    assert "50 keys have a new logical snapshot" in capfd.readouterr().out
    for _ in range(2):
        for key, total in expected.items():
            last = log.latest(key)
            assert last is not None
            assert (last.snapshot, last.value) == (True, b"%d" % total)
        assert len(entries(log)) == 1_050
        assert job(*run) == 0
        assert "0 keys have a new" in capfd.readouterr().out
    append(log, 7, 8)
    assert job(*run) == 0
    last = log.latest(b"k07")
    assert last is not None
    assert last.value == b"%d" % (expected[b"k07"] + 7), "goes on from the snapshot"
    shown = reader(spark, cluster, "folded", columns="key,snapshot").load()
    assert shown.where("snapshot").count() == 51


@pytest.mark.by_hand
def test_a_fold_leaves_a_key_that_got_an_entry_meanwhile(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "meanwhile", 100)
    appends = f"""
import lognode

def total(key, history):
    if key == b"k05" and not (history["value"] == b"late").any():
        with lognode.Client({cluster.servers!r}) as client:
            client.log("meanwhile").append(key, b"late")
    return b"all"
"""
    (tmp_path / "late.py").write_text(appends)
    run = ("fold", "meanwhile", "--server", cluster.servers, "--function",
           f"{tmp_path}/late.py:total")  # fmt: skip
    assert job(*run) == 0
    told = capfd.readouterr()
    assert "49 keys have a new" in told.out
    assert "1 keys got entries during the fold" in told.err
    assert [e.value for e in log.scan(b"k05")] == [b"5", b"55", b"late"]
    assert job(*run) == 0
    assert [e.snapshot for e in log.scan(b"k05")] == [False, False, False, True]


def test_an_unusable_function_is_refused(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "unfolded", 10)
    (tmp_path / "sums.py").write_text(SUM)
    for name, code, said in (
        ("total", 2, "give module:function or file.py:function"),
        ("/nowhere/sums.py:total", 2, "file /nowhere/sums.py does not exist"),
        ("no.such.module:total", 2, "No module named 'no'"),
        (f"{tmp_path}/sums.py:nothing", 2, "has no function nothing"),
        (f"{tmp_path}/sums.py:odd", 1, "the function returned int for key b'k0"),
        (f"{tmp_path}/sums.py:fails", 1, "no total today"),
    ):
        run = ("fold", "unfolded", "--server", cluster.servers, "--function", name)
        assert job(*run) == code, name
        assert said in capfd.readouterr().err.splitlines()[-1]
    assert len(entries(log)) == 10


def totals(log: lognode.Log) -> dict[bytes, bytes | None]:
    """The values of the keys whose last entry is a logical snapshot."""
    last = {key: log.latest(key) for key in list(log.keys())}
    return {key: entry.value for key, entry in last.items() if entry is not None and entry.snapshot}


@pytest.mark.by_hand
def test_a_fold_reads_what_is_new_and_what_is_before_where_a_key_needs_it(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log, copy = client.create_log("new", split_at=[b"k2"]), client.create_log("new-copy")
    (tmp_path / "sums.py").write_text(SUM)
    lake, named = tmp_path / "lake", ("--function", f"{tmp_path}/sums.py:total")

    def folded(name: str) -> int:
        capfd.readouterr()
        assert job("fold", name, "--server", cluster.servers, *named) == 0
        return int(capfd.readouterr().out.split()[0])

    log.append_many([(b"k%d" % (at % 4), b"1") for at in range(40)])
    assert folded("new") == 4
    assert job("export", "new", "--server", cluster.servers, "--out", lake) == 0
    log.append_many([(b"k1", b"5"), (b"k9", b"7"), (b"k9", b"7")])
    assert folded("new") == 2, "a key with a snapshot, and a new key"
    expected = {b"k0": b"10", b"k1": b"15", b"k2": b"10", b"k3": b"10", b"k9": b"14"}
    assert totals(log) == expected

    # A position in the original means nothing in the copy, and what is replayed later goes on from
    # snapshots that are below the position.
    replay_it = ("replay", "new-copy", "--server", cluster.servers, "--source", lake)
    assert job(*replay_it) == 0
    copy.append(b"k3", b"20")
    assert folded("new-copy") == 1
    log.append(b"k0", b"2")
    assert job("export", "new", "--server", cluster.servers, "--out", lake) == 0
    assert job(*replay_it) == 0
    assert folded("new-copy") == 1, "the totals of the other keys came with the replay"
    assert totals(copy) == {**expected, b"k0": b"12", b"k3": b"30"}

    log.append(b"k2", b"3")
    cursor = log.cursor("fold/total")
    cursor.set("latest")
    assert folded("new") == 0, "what is below the position is not read"
    cursor.delete()
    assert folded("new") == 2
    assert totals(log) == {**expected, b"k0": b"12", b"k2": b"13"}
