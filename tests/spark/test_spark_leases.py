"""The leases of Spark's snapshots on real nodes: they give way, and end with the driver."""

import subprocess
import sys

import pytest
from pyspark.sql import SparkSession
from spark_logs import append, filled

import lognode
from lognode import testing
from lognode.client.protocol import limits

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

_DRIVER = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for _ in sys.stdin:
    frame = spark.read.format("lognode").options(servers=sys.argv[1], log=sys.argv[2]).load()
    print(frame.count(), frame.count(), flush=True)
"""


def full(client: lognode.Client) -> lognode.Log:
    """A log whose ranges have room for one more lease. A new cluster has fewer leases until it has
    feature level 2."""
    log: lognode.Log = filled(client, "full", 100)

    def taken() -> lognode.Snapshot | None:
        try:
            return log.snapshot()
        except lognode.LimitExceeded:
            return None

    for _ in range(limits.leases_level_2_max - 1):
        testing.eventually(taken, what="a lease is taken")
    return log


@pytest.mark.by_hand
def test_a_driver_loads_again_and_again_and_its_leases_end_with_it(
    spark: SparkSession, cluster: testing.LocalCluster, client: lognode.Client
) -> None:
    """The fixture `spark` only says where workers find lognode: the driver has its own Java."""
    log = full(client)
    with subprocess.Popen(
        [sys.executable, "-c", _DRIVER, cluster.servers, "full"], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as driver:  # fmt: skip
        assert driver.stdin is not None
        assert driver.stdout is not None
        for count in (100, 150, 200):  # each load needs the lease of the load before
            driver.stdin.write("load\n")
            driver.stdin.flush()
            assert driver.stdout.readline() == f"{count} {count}\n"
            with pytest.raises(lognode.LimitExceeded):
                log.snapshot()
            append(log, count, count + 50)
        driver.communicate()

    def is_free() -> bool:
        try:
            log.snapshot().release()
        except lognode.LimitExceeded:
            return False
        return True

    testing.eventually(is_free, what="the driver's lease is released")
