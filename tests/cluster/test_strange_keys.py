"""Keys of 1 to 480 NULs, and keys that are prefixes of each other, through segments and back."""

import itertools
from collections import defaultdict
from pathlib import Path

import pytest
from cluster_history import History, same_on
from cluster_wal import SMALL_WAL, fill_until_cut, segments

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

NODES = (1, 2, 3)
NULS = [b"\0" * n for n in range(1, 481)]
PREFIXES = [
    head + tail * n
    for head in (b"a", b"ab", b"\xff")
    for tail in (b"\0", b"\0\1", b"a", b"\xff")
    for n in range(0, 240, 7)
    if len(head + tail * n) <= 480
]
KEYS = sorted({*NULS, *PREFIXES, b"\xff" * 480, b"a" * 480, b"\0" * 479 + b"\1"})
SPLITS = [b"\0" * 200, b"a", b"a\0", b"ab"]


def append(log: lognode.Log, history: dict[bytes, list[bytes]], round_: int) -> None:
    records = [(key, b"%d:%d:" % (round_, n) + key[:20]) for n, key in enumerate(KEYS)]
    log.append_many(records)
    for key, value in records:
        history[key].append(value)


def check(log: lognode.Log, history: dict[bytes, list[bytes]], found: History) -> None:
    assert list(found) == KEYS
    assert {key: [e.value for e in entries] for key, entries in found.items()} == history
    for key in KEYS[::5]:
        latest = log.latest(key)
        assert latest is not None
        assert latest.value == history[key][-1]
        assert log.count(key) == len(history[key])
        entries = list(log.scan(key, reverse=True))
        assert [entry.value for entry in entries] == history[key][::-1]


def test_S4_S6_nuls_and_prefixes_through_segments_and_back(tmp_path: Path) -> None:
    history: dict[bytes, list[bytes]] = defaultdict(list)
    with (
        testing.cluster(tmp_path, 3, flags=SMALL_WAL) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        log = client.create_log("strange", split_at=SPLITS)
        filler = client.create_log("filler", ranges=2)
        append(log, history, 0)
        append(log, history, 1)
        fill_until_cut(cluster.nodes, filler, [b"f", b"\xf0"])
        assert all(segments(node) >= len(SPLITS) + 1 for node in cluster.nodes)
        append(log, history, 2)  # in the memtable, over the same keys in segments
        check(log, history, same_on(cluster.servers, "strange", NODES))

        for prefix in (b"\0" * 100, b"\0" * 479, b"a", b"a\0", b"ab", b"ab\0\1\0", b"\xff\xff"):
            wanted = [key for key in KEYS if key.startswith(prefix)]
            assert list(log.keys(prefix=prefix)) == wanted
            for after in wanted[:: max(1, len(wanted) // 3)]:
                rest = [key for key in wanted if key > after]
                assert list(log.keys(prefix=prefix, start_after=after)) == rest
                assert list(log.keys(prefix=prefix, start_after=after, limit=3)) == rest[:3]

        followed(log, history, {"prefix": b"\0" * 300})
        followed(log, history, {"prefix": b"a\0"})
        followed(log, history, {"keys": [b"\0", b"\0" * 480, b"a", b"ab", b"\xff" * 480]})
        followed(log, history, {})

        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start()
        testing.wait_healthy(cluster)
        check(log, history, same_on(cluster.servers, "strange", NODES))


def followed(
    log: lognode.Log, history: dict[bytes, list[bytes]], what: dict[str, list[bytes] | bytes]
) -> None:
    """A follow from the earliest brings exactly the entries of its keys, in order per key."""
    prefix = what.get("prefix", b"")
    assert isinstance(prefix, bytes)
    wanted = {
        key: values
        for key, values in history.items()
        if key in what.get("keys", history) and key.startswith(prefix)
    }
    got: dict[bytes, list[bytes | None]] = defaultdict(list)
    with log.follow(**what, start="earliest") as feed:  # type: ignore[arg-type]
        for entry in itertools.islice(feed.entries(), sum(map(len, wanted.values()))):
            got[entry.key].append(entry.value)
    assert got == wanted
