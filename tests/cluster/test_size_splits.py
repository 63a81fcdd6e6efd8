"""Ranges that grow too large are split by themselves, at the key that halves them."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_history import check, read_all, same_on
from cluster_load import Load, Size

import lognode
from lognode import testing
from lognode.client.protocol import limits

pytestmark = pytest.mark.cluster

MIB = limits.MIB
FLAGS = ("--wal-file-bytes", str(MIB))
"""So that memtables become segments soon."""


def fill(log: lognode.Log, keys: list[bytes], count: int) -> None:
    rng = random.Random(count)
    for begin in range(0, count, 16):
        log.append_many(
            [(keys[n % len(keys)], rng.randbytes(16_000)) for n in range(begin, begin + 16)]
        )


def ranges_of(client: lognode.Client, log: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = client.log(log).describe()["ranges"]
    return found


@pytest.mark.by_hand
def test_a_range_that_grows_is_split_under_load_and_again(tmp_path: Path) -> None:
    with (
        testing.cluster(tmp_path, 3, flags=FLAGS) as cluster,
        lognode.Client(cluster.servers, timeout=60) as client,
    ):
        testing.wait_healthy(cluster)
        log = client.create_log("grows", split_bytes=2 * MIB)
        client.create_log("stays", split_bytes=None)
        keys = [b"fill-%03d" % n for n in range(100)]
        with Load(cluster.servers, "grows", 7, Size(value_bytes=200)) as load:
            load.go_on(50)
            fill(log, keys, 512)
            fill(client.log("stays"), keys, 512)
            testing.eventually(
                lambda: len(ranges_of(client, "grows")) >= 4, what="8 MB in four ranges"
            )
            load.go_on(50)
        testing.wait_healthy(cluster)
        assert len(ranges_of(client, "stays")) == 1
        starts = [bytes(each["start"]) for each in ranges_of(client, "grows")]  # type: ignore[call-overload]
        assert sum(start.startswith(b"fill-") for start in starts) >= 2, starts
        entries = same_on(cluster.servers, "grows", (1, 2, 3))
        filled = {key: entries.pop(key) for key in keys}
        assert {key: [entry.value for entry in found] for key, found in filled.items()} == {
            key: [entry.value for entry in found]
            for key, found in read_all(cluster.servers, "stays").items()
        }
        check(entries, load.told)
        listed = subprocess.run(
            [sys.executable, "-m", "lognode.node.main", "range", "list", "grows", "--wide",
             "--server", cluster.servers, "--format", "table"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert "split DONE" in listed.stdout
        assert f"bytes, more than {2 * MIB}: split in the middle" in listed.stdout
        # What one key holds is never divided, however much that is.
        one = client.create_log("one", split_bytes=MIB)
        fill(one, [b"alone"], 256)
        client.alter_log("stays", split_bytes=2 * MIB)
        testing.eventually(lambda: len(ranges_of(client, "stays")) >= 3, what="altered")
        assert len(ranges_of(client, "one")) == 1
