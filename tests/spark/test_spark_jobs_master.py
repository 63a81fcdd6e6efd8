"""Jobs with a real `--master`: executors are processes of their own, and all may be killed."""

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from spark_jobs import job, killed_when, started
from spark_logs import histories

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.by_hand]
MASTER = "local-cluster[2,1,1024]"
"""Two workers of Spark with an executor each, of one core and so many MB."""
COUNT = 20_000


def test_S8_a_replay_by_executors_that_is_killed_adds_nothing_twice(
    spark: SparkSession, cluster: testing.LocalCluster, client: lognode.Client, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Killed with -9, the driver and its executors, once some of the records are there."""
    log = client.create_log("sent", split_at=[b"k25"])
    log.append_many([(b"k%02d" % (at % 50), b"%1000d" % at) for at in range(COUNT)])
    copy = client.create_log("received", split_at=[b"k30"])
    place, home = tmp_path / "export", tmp_path / "spark"
    assert job("export", "sent", "--server", cluster.servers, "--out", place) == 0
    home.mkdir()  # the one of pyspark, but for what executors write into it
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    monkeypatch.setenv("SPARK_HOME", str(home))
    run = ("replay", "received", "--server", cluster.servers, "--source", place,
           "--master", MASTER)  # fmt: skip
    assert killed_when(started(*run), lambda: next(copy.keys(), None) is not None, 120)
    assert 0 < sum(map(len, histories(copy).values())) < COUNT
    assert started(*run).wait(180) == 0
    assert histories(copy) == histories(log)
    assert len(list(home.glob("work/app-*"))) == 2, "executors of both runs have been there"
