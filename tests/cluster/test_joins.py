"""`lognode range merge`: ranges become one under load, and clients notice nothing but a pause."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest
from cluster_history import check, read_all, same_on
from cluster_load import Load, Size
from cluster_ranges import files, range_verb, ranges_of, replicas_on

import lognode
from lognode import testing
from lognode.client.cli.printer import FORMATS
from lognode.client.protocol.types import Entry

pytestmark = pytest.mark.cluster

NODES = (1, 2, 3)
PAUSE_S = 3.0
"""Promise L1 for a leader that is lost; a merge takes a tenth of it on a machine with nothing else
to do."""
KEYS = (b"named-0-2", b"own", b"own-1", b"register-1", b"shared", b"shared-2")
"""Where the load's ranges meet: between its kinds of keys, and within each."""


@pytest.fixture
def client(three: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(three.servers, timeout=30) as found:
        yield found


def test_S2_S4_S6_S8_S9_L1_ranges_are_split_and_merged_under_load(
    three: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("load", split_at=KEYS)
    testing.wait_healthy(three)
    born = {(each["id"], each["generation"]) for each in ranges_of(client, "load")}
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    with Load(three.servers, "load", seed, Size(value_bytes=200, followers=2)) as load:
        load.go_on(200)
        for key in rng.sample(KEYS, len(KEYS)):
            answer = client.admin.merge("load", at=key)
            ranges = ranges_of(client, "load")
            assert not any(each["id"] == answer["gone_range"] for each in ranges)
            merged = next(each for each in ranges if each["id"] == answer["range"])
            assert merged["start"] < key < (merged["end"] or b"\xff")
            assert merged["generation"] == answer["generation"]
            assert merged["members"] == list(NODES)
            load.go_on(100)
        client.admin.split("load", at=b"own-1")
        load.go_on(50)
        client.admin.merge("load", at=b"own-1")
        load.go_on(100)
    assert load.slowest_s() < PAUSE_S
    (whole,) = ranges_of(client, "load")
    assert (whole["start"], whole["end"]) == (b"", None)
    ids = {range_id for range_id, _ in born}
    for node in three.nodes:
        testing.eventually(
            lambda: (
                [gid for gid in replicas_on(node) if gid[0] in ids]  # noqa: B023
                == [(whole["id"], whole["generation"])]
            ),
            what="the parents are retired",
        )
    check(same_on(three.servers, "load", NODES), load.told)


@pytest.mark.parametrize(
    "victim",
    [
        pytest.param("leader", marks=pytest.mark.by_hand),
        pytest.param("follower", marks=pytest.mark.by_hand),
        pytest.param("controller", marks=pytest.mark.by_hand),
    ],
)
def test_x7_x25_S2_a_node_is_killed_at_some_moment_of_a_merge_and_it_ends(
    three: testing.LocalCluster, client: lognode.Client, victim: str
) -> None:
    """As one range, or as two where not both could be sealed in time; in neither case is anything
    lost, and it can be asked for again."""
    name = f"merge-killed-{victim}"
    keys = KEYS[1::2]
    client.create_log(name, split_at=keys)
    testing.wait_healthy(three)
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    with (
        Load(three.servers, name, seed, Size(value_bytes=200), timeout_s=60) as load,
        ThreadPoolExecutor() as pool,
    ):
        for key in keys:
            load.go_on(100)
            leader = testing.leader_of(client, name)
            controller = client.status()["cluster"]["controller_leader"]
            killed = {
                "leader": leader, "follower": leader % 3 + 1, "controller": controller,
            }[victim]  # fmt: skip
            merge = pool.submit(client.admin.merge, name, at=key, timeout=60)
            time.sleep(rng.uniform(0.0, 0.3))  # the moment is what is drawn
            three.nodes[killed - 1].kill()
            error = merge.exception()
            given_up = isinstance(error, lognode.Conflict) and "gave up" in str(error)
            # The controller's leader may have died before it answered: then nobody knows.
            assert error is None or given_up or error.outcome == "unknown", error  # type: ignore[attr-defined]
            load.go_on(50)
            three.nodes[killed - 1].start()
            three.nodes[killed - 1].wait_ready()
            testing.wait_healthy(three)
            if any(each["start"] == key for each in ranges_of(client, name)):
                assert error is not None
                client.admin.merge(name, at=key, timeout=60)
    assert len(ranges_of(client, name)) == 1
    assert load.slowest_s() < 2 * PAUSE_S
    check(same_on(three.servers, name, NODES), load.told)


def test_S6_x2_20_no_entry_is_copied_and_every_way_of_reading_goes_through_the_merge(
    three: testing.LocalCluster, client: lognode.Client
) -> None:
    """The left range has many entries and the right one few, so that their seqs overlap."""
    log = client.create_log("uneven", split_at=[b"m"])
    testing.wait_healthy(three)
    log.append_many([(b"a%02d" % (n % 50), b"%d" % n * 100) for n in range(3_000)])
    log.append_many([(b"x%02d" % (n % 50), b"%d" % n * 100) for n in range(200)])
    with log.follow(start="earliest") as feed:
        begun: list[Entry] = []
        while len(begun) < 1_000:
            begun += next(feed)
        cursor = feed.cursor
    client.admin.split("uneven", at=b"q")  # what is in memory goes to files
    client.admin.split("uneven", at=b"b")
    before, held = read_all(three.servers, "uneven"), files(three, b"a", b"x")
    everything = sorted((e.key, e.seq) for entries in before.values() for e in entries)
    assert len(everything) == 3_200
    with log.follow(start="earliest") as open_feed:
        opened = next(open_feed).entries
        for key in (b"m", b"b", b"q"):
            client.admin.merge("uneven", at=key)
        assert len(ranges_of(client, "uneven")) == 1
        assert files(three, b"a", b"x") == held != [set()] * 3, "not one file is new"
        assert same_on(three.servers, "uneven", NODES) == before
        assert list(log.keys(prefix=b"x1")) == [b"x%02d" % n for n in range(10, 20)]
        assert sum(log.count(key) for key in before) == len(everything)
        acks = log.append_many([(key, b"more") for key in before])
        last = {key: entries[-1].seq for key, entries in before.items()}
        assert all(ack.seq > last[key] for key, ack in zip(before, acks, strict=True)), "S4"
        everything = sorted([*everything, *zip(before, (ack.seq for ack in acks), strict=True)])
        # One that was open all the time, one that begins now, and one that goes on from a cursor.
        rest = islice(open_feed.entries(), len(everything) - len(opened))
        assert sorted((e.key, e.seq) for e in (*opened, *rest)) == everything
        if not open_feed.caught_up:  # said with the last entries, or after them without any
            batch = next(open_feed)
            assert batch.caught_up
            assert not batch.entries
    with log.follow(start="earliest") as feed:
        read = list(islice(feed.entries(), len(everything)))
        assert sorted((e.key, e.seq) for e in read) == everything
        # And now that all is read, it is followed as one.
        for number in range(5):
            keys = [b"a%02d" % number, b"x%02d" % number]
            tail = [(key, log.append(key, b"tail").seq) for key in keys]
            assert sorted((e.key, e.seq) for e in islice(feed.entries(), 2)) == tail
            everything = sorted([*everything, *tail])
        assert len(feed.cursor.spans) == 1
    with log.follow(start=cursor) as feed:
        read = begun + list(islice(feed.entries(), len(everything) - len(begun)))
        assert sorted((e.key, e.seq) for e in read) == everything


def test_ranges_on_different_nodes_are_brought_together_first(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 4) as four, lognode.Client(four.servers, timeout=60) as client:
        log = client.create_log("apart", split_at=[b"m"])
        testing.wait_healthy(four)
        acks = log.append_many([(b"a%d" % n, b"v") for n in range(50)])
        acks += log.append_many([(b"x%d" % n, b"v") for n in range(50)])
        left, right = ranges_of(client, "apart")
        if left["members"] == right["members"]:
            leaves = left["members"][0]
            (comes,) = {1, 2, 3, 4} - set(left["members"])
            client.admin.move(left["id"], from_node=leaves, to_node=comes)
            left, right = ranges_of(client, "apart")
        refused = range_verb(four, "merge", "apart", "--at", "m", "--no-wait")
        assert (refused.returncode, "move replicas until" in refused.stderr) == (5, True)
        done = range_verb(four, "merge", "apart", "--at", "m", "--format", "json")
        assert (done.returncode, done.stderr) == (0, "")
        (merged,) = ranges_of(client, "apart")
        assert merged["members"] == left["members"]
        found = same_on(four.servers, "apart", merged["members"])
        assert sum(map(len, found.values())) == len(acks)


def test_every_format_and_no_wait(three: testing.LocalCluster, client: lognode.Client) -> None:
    client.create_log("joined", split_at=["k0", "k1", "k2", "k3"])
    testing.wait_healthy(three)
    for number, format_ in enumerate(FORMATS):
        left, right = ranges_of(client, "joined")[:2]
        answer = range_verb(three, "merge", "joined", "--at", f"k{number}", "--format", format_)
        assert (answer.returncode, answer.stderr) == (0, "")
        if format_ != "table":
            row = json.loads(answer.stdout)
            assert row.pop("operation") > 0
            assert row == {"range": left["id"], "gone_range": right["id"],
                           "generation": left["generation"] + 1}  # fmt: skip
        else:
            assert str(right["id"]) in answer.stdout
    last = ranges_of(client, "joined")[-1]["start"].decode()
    answer = range_verb(three, "merge", "joined", "--at", last, "--no-wait", "--format", "json")
    number = json.loads(answer.stdout)["operation"]
    assert (
        answer.stderr == f"note: operation {number} goes on; `lognode status` shows the operation\n"
    )
    testing.eventually(
        lambda: all(each["start"] != last.encode() for each in ranges_of(client, "joined")),
        what="merge",
    )
    listed = subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "range", "list", "joined", "--wide",
         "--format", "table", "--server", three.servers],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "merge DONE" in listed.stdout
    assert f"at key '{last}'" in listed.stdout


def test_an_impossible_merge_is_one_line_and_changes_nothing(
    three: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("kept", split_at=[b"m"])
    testing.wait_healthy(three)
    before = ranges_of(client, "kept")
    for words, code, said in (
        (("none", "--at", "k"), 4, "log 'none' does not exist"),
        (
            ("kept", "--at", "k"),
            1,
            "no two ranges of the log meet at key 'k'; the ranges meet at 'm'",
        ),
        (("kept", "--at", ""), 1, "key"),
        (("kept", "--at", "k" * 481), 1, "481 bytes"),
        (("kept",), 2, "--at"),
    ):
        wrong = range_verb(three, "merge", *words)
        assert (wrong.returncode, said in wrong.stderr) == (code, True), wrong.stderr
        assert len(wrong.stderr.splitlines()) == 1
    assert ranges_of(client, "kept") == before
