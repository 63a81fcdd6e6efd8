"""Ranges that have become small are merged by themselves, under load, and the reason is shown."""

import random
from pathlib import Path

import pytest
from cluster_history import check, same_on
from cluster_load import Load, Size

import lognode
from lognode import testing

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]

NODES = (1, 2, 3)
SOON = ("--merge-after", "2", "--split-rest", "0")


def test_S2_S4_S8_small_ranges_are_merged_down_to_what_the_log_began_with(tmp_path: Path) -> None:
    with (
        testing.cluster(tmp_path, 3, flags=SOON) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("log", split_at=["p"])

        def starts() -> list[bytes]:
            return [range_["start"] for range_ in client.log("log").describe()["ranges"]]

        with Load(cluster.servers, "log", random.randrange(1 << 32), Size(value_bytes=100)) as load:
            load.go_on(100)
            for at in ("own-1", "register-1", "shared-1"):
                client.admin.split("log", at=at)
            testing.eventually(lambda: len(starts()) == 2, timeout_s=60, what="two ranges")
            load.go_on(100)
        reasons = [
            range_["last_operation"]["reason"]
            for range_ in client.status()["ranges"]
            if range_["log"] == "log" and range_["last_operation"]["kind"] == "merge"
        ]
        assert reasons
        assert all("are small together" in reason for reason in reasons), reasons
        check(same_on(cluster.servers, "log", NODES), load.told)
