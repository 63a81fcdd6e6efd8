"""`lognode range split`: ranges are divided under load, and clients notice nothing but a pause."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster_history import check, read_all, same_on
from cluster_load import Load, Size
from cluster_ranges import files, range_verb, ranges_of, replicas_on

import lognode
from lognode import testing
from lognode.client.cli.printer import FORMATS

pytestmark = pytest.mark.cluster

NODES = (1, 2, 3)
PAUSE_S = 3.0
"""Promise L1 for a leader that is lost; a split takes a tenth of it on a machine with nothing else
to do."""
KEYS = (b"own", b"register-1", b"shared", b"own-1", b"named-0-2", b"shared-2")
"""Where the load's ranges are split, one after the other: between its kinds of keys, and within
each."""


@pytest.fixture
def client(three: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(three.servers, timeout=30) as found:
        yield found


def test_S2_S4_S8_S9_L1_ranges_are_split_under_load(
    three: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("load")
    testing.wait_healthy(three)
    seed = random.SystemRandom().randrange(1 << 32)
    with Load(three.servers, "load", seed, Size(value_bytes=200, followers=2)) as load:
        load.go_on(200)
        for count, key in enumerate(KEYS, 2):
            answer = client.admin.split("load", at=key)
            ranges = ranges_of(client, "load")
            assert len(ranges) == count
            left, right = (
                next(each for each in ranges if each["id"] == answer[name])
                for name in ("range", "new_range")
            )
            assert (left["end"], right["start"]) == (key, key)
            assert left["generation"] == right["generation"] == answer["generation"]
            assert left["members"] == right["members"] == list(NODES)
            load.go_on(100)
    assert load.slowest_s() < PAUSE_S
    current = {(each["id"], each["generation"]) for each in ranges_of(client, "load")}
    ids = {range_id for range_id, _ in current}
    for node in three.nodes:
        testing.eventually(
            lambda: current == {gid for gid in replicas_on(node) if gid[0] in ids},  # noqa: B023
            what="the parents are retired",
        )
    check(same_on(three.servers, "load", NODES), load.told)


@pytest.mark.by_hand
@pytest.mark.parametrize("victim", ["leader", "follower", "controller"])
def test_x7_S2_a_node_is_killed_at_some_moment_of_a_split_and_it_ends(
    three: testing.LocalCluster, client: lognode.Client, victim: str
) -> None:
    """Forwards: only an operation whose input is not sealed can be given up, and nobody gives up
    a split for a member that is dead."""
    name = f"killed-{victim}"
    client.create_log(name)
    testing.wait_healthy(three)
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    with (
        Load(three.servers, name, seed, Size(value_bytes=200), timeout_s=60) as load,
        ThreadPoolExecutor() as pool,
    ):
        for key in KEYS[:3]:
            load.go_on(100)
            leader = testing.leader_of(client, name)
            controller = client.status()["cluster"]["controller_leader"]
            killed = {
                "leader": leader, "follower": leader % 3 + 1, "controller": controller,
            }[victim]  # fmt: skip
            split = pool.submit(client.admin.split, name, at=key, timeout=60)
            time.sleep(rng.uniform(0.0, 0.3))  # the moment is what is drawn
            three.nodes[killed - 1].kill()
            error = split.exception()
            # The controller's leader may have died before it answered: then nobody knows.
            assert error is None or error.outcome == "unknown", error  # type: ignore[attr-defined]
            load.go_on(50)
            three.nodes[killed - 1].start()
            three.nodes[killed - 1].wait_ready()
            testing.wait_healthy(three)
            assert error is not None or any(
                each["start"] == key for each in ranges_of(client, name)
            )
    assert load.slowest_s() < 2 * PAUSE_S
    check(same_on(three.servers, name, NODES), load.told)


def test_no_entry_is_copied_and_each_child_shows_its_own_keys_only(
    three: testing.LocalCluster, client: lognode.Client
) -> None:
    log = client.create_log("large")
    testing.wait_healthy(three)
    acks = log.append_many([(b"k%03d" % (n % 500), b"%d" % n * 1_000) for n in range(5_000)])
    client.admin.split("large", at=b"k250")  # what was in memory goes to a file
    before, held = read_all(three.servers, "large"), files(three, b"k")
    assert sum(map(len, before.values())) == len(acks)
    for key in (b"k100", b"k400", b"k101"):
        client.admin.split("large", at=key)
    assert len(ranges_of(client, "large")) == 5
    assert files(three, b"k") == held != [set()] * 3, "not one file is new"
    assert same_on(three.servers, "large", NODES) == before
    assert list(log.keys(prefix=b"k1")) == [b"k%03d" % n for n in range(100, 200)]
    with log.follow(start="earliest") as feed:
        followed = [entry for _, entry in zip(acks, feed.entries(), strict=False)]
    assert {(e.key, e.seq) for e in followed} == {
        (e.key, e.seq) for entries in before.values() for e in entries
    }
    last = {key: entries[-1].seq for key, entries in before.items()}
    more = log.append_many([(key, b"more") for key in before])
    assert all(ack.seq > last[key] for key, ack in zip(before, more, strict=True)), "S4"


def test_every_format_and_no_wait(three: testing.LocalCluster, client: lognode.Client) -> None:
    client.create_log("formats")
    testing.wait_healthy(three)
    for number, format_ in enumerate(FORMATS):
        at = f"k{number}"
        answer = range_verb(three, "split", "formats", "--at", at, "--format", format_)
        assert (answer.returncode, answer.stderr) == (0, "")
        right = next(each for each in ranges_of(client, "formats") if each["start"] == at.encode())
        if format_ != "table":
            row = json.loads(answer.stdout)
            assert row.pop("operation") > 0
            assert row.pop("range") < right["id"]
            assert row == {"new_range": right["id"], "generation": right["generation"]}
        else:
            assert str(right["id"]) in answer.stdout
    answer = range_verb(three, "split", "formats", "--at", "x", "--no-wait", "--format", "json")
    number = json.loads(answer.stdout)["operation"]
    assert (
        answer.stderr == f"note: operation {number} goes on; `lognode status` shows the operation\n"
    )
    testing.eventually(
        lambda: any(each["start"] == b"x" for each in ranges_of(client, "formats")), what="split"
    )
    listed = subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "range", "list", "formats", "--wide",
         "--format", "table", "--server", three.servers],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "split DONE" in listed.stdout
    assert "an operator splits the range at key 'x'" in listed.stdout


def test_an_impossible_split_is_one_line_and_changes_nothing(
    three: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("refused", split_at=[b"m"])
    testing.wait_healthy(three)
    before = ranges_of(client, "refused")
    for words, code, said in (
        (("none", "--at", "k"), 4, "log 'none' does not exist"),
        (("refused", "--at", "m"), 1, "begins at key 'm' already"),
        (("refused", "--at", ""), 1, "key"),
        (("refused", "--at", "k" * 481), 1, "481 bytes"),
        (("refused",), 2, "--at"),
    ):
        wrong = range_verb(three, "split", *words)
        assert (wrong.returncode, said in wrong.stderr) == (code, True), wrong.stderr
        assert len(wrong.stderr.splitlines()) == 1
    assert ranges_of(client, "refused") == before
