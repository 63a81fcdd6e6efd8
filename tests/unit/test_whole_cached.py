"""The judge of reads of a log whose old files are in the tier only, and the places of a store."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from simulated_net import Net

from lognode.chaos.whole.additions import Additions
from lognode.chaos.whole.cached_reads import Reads
from lognode.chaos.whole.far_store import FarStore, Request
from lognode.client.protocol.errors import SequenceMismatch

FINAL: Any = {"k": [(1, b"a"), (2, b"b"), (5, b"c")], "k-line": [(3, b"1:-1:"), (4, b"2:3:")]}


def reads(*, removes: bool = False) -> Reads:
    found = Reads(removes=removes)
    for key, entries in FINAL.items():
        for seq, value in entries:
            found.sends(key, value)
            found.acked[key][seq] = value
    found.sends("k", b"not acknowledged")
    return found


def scanned(entries: Any) -> Callable[[Reads], None]:
    return lambda found: found.scan(found.before("k"), entries)


def newest(entries: Any) -> Callable[[Reads], None]:
    return lambda found: found.latest(found.before("k"), entries)


def counted(count: int) -> Callable[[Reads], None]:
    return lambda found: found.count(found.before("k"), count)


@pytest.mark.parametrize(
    ("say", "told"),
    [
        (scanned(FINAL["k"]), None),
        (newest([(5, b"c")]), None),
        (counted(3), None),
        (counted(4), None),
        (scanned([(1, b"a"), (5, b"c")]), r"leaves out \[2\]"),
        (scanned([]), r"leaves out \[1, 2, 5\]"),
        (scanned([(2, b"b"), (1, b"a"), (5, b"c")]), r"gives \[2, 1, 5\]"),
        (scanned([*FINAL["k"], (5, b"c")]), r"gives \[1, 2, 5, 5\]"),
        (scanned([(1, b"a"), (2, b"x"), (5, b"c")]), "gives entry 2 of k another value"),
        (scanned([*FINAL["k"], (6, b"not acknowledged")]), r"gives \[6\], now gone"),
        (newest([]), "has entry 5, and a read says that the key has none"),
        (newest([(2, b"b")]), "has entry 5, and a read says 2"),
        (counted(2), "has 3 to 4 entries, and a count says 2"),
        (counted(5), "has 3 to 4 entries, and a count says 5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_judge_of_reads(say: Callable[[Reads], None], told: str | None) -> None:
    found = reads()
    say(found)
    found.judge(FINAL)
    _compare(found, told)


@pytest.mark.parametrize(
    ("final", "told"),
    [
        ([(1, b"a"), (5, b"c")], r"entries \[2\] of k are gone"),
        ([(1, b"a"), (2, b"b"), (5, b"x")], "gives entry 5 of k another value"),
        ([(2, b"b"), (5, b"c")], r"entries \[1\] of k are gone"),
        ([(1, b"a"), (1, b"a"), (2, b"b"), (5, b"c")], r"k gives \[1, 1, 2, 5\]"),
    ],
    ids=["gone", "changed", "first", "twice"],
)
def test_the_judge_of_the_last_state(final: Any, told: str) -> None:
    found = reads()
    found.judge({**FINAL, "k": final})
    _compare(found, told)


def test_trims_and_retention_take_the_oldest_entries_only() -> None:
    found = reads()
    found.asks_to_trim("k", 2)
    found.judge({**FINAL, "k": [(2, b"b"), (5, b"c")]})
    _compare(found, None)
    found.trimmed("k", 2)
    found.scan(found.before("k"), FINAL["k"])
    found.judge(FINAL)
    _compare(found, r"trimmed entries \[1\] of k are there")
    assert any("a scan of k gives trimmed [1]" in each.message for each in found.anomalies)
    removed = reads(removes=True)
    removed.judge({**FINAL, "k": [(5, b"c")]})
    _compare(removed, None)
    removed.judge({**FINAL, "k": [(1, b"a"), (5, b"c")]})
    _compare(removed, r"entries \[2\] of k are gone")


@pytest.mark.parametrize(
    ("entries", "removes", "trimmed", "is_right"),
    [
        (FINAL["k"], False, 1, True),
        (FINAL["k"][1:], False, 1, False),
        (FINAL["k"][1:], False, 2, True),
        (FINAL["k"][2:], False, 2, False),
        (FINAL["k"][1:], True, 1, True),
        ([], True, 1, True),
        (FINAL["k"][:2], True, 1, False),
        ([(1, b"a"), (5, b"c")], True, 9, False),
        ([(0, b"z"), *FINAL["k"]], True, 9, False),
        ([(2, b"x"), (5, b"c")], True, 9, False),
    ],
)
def test_S4_a_node_says_what_the_leader_says_or_less_of_the_oldest_entries(
    entries: Any, removes: bool, trimmed: int, is_right: bool
) -> None:
    """Seed 1: retention removed two entries between the reads of the leader and of the nodes."""
    found = reads(removes=removes)
    found.asks_to_trim("k", trimmed)
    found.judge_node(2, "k", FINAL["k"], entries)
    told = f"node 2 has {len(entries)} entries of k, the leader 3"
    _compare(found, None if is_right else told)


def test_each_entry_of_a_line_follows_the_entry_that_it_names() -> None:
    found = reads()
    found.judge({**FINAL, "k-line": [(3, b"1:-1:"), (4, b"2:2:")]})
    _compare(found, "was appended after 2, and follows 3")
    found = reads()
    found.refuses("k-line", 4, SequenceMismatch("the last seq is 3"))
    found.judge(FINAL)
    _compare(found, "k-line has nothing after 4: the last seq is 3")


def _compare(found: Reads, told: str | None) -> None:
    messages = [each.message for each in found.anomalies]
    if told is None:
        assert not messages
    else:
        with pytest.raises(AssertionError, match=told):
            assert not messages


def test_an_unmounted_store_is_another_place_until_it_is_mounted_or_calm() -> None:
    net = Net(seed=3)
    tier = FarStore(net.loop, random.Random(3))
    tier.calm()
    answers: list[Any] = []

    async def ask(who: str, name: str) -> None:
        request = Request("put", name, lambda there: there.put(name, b"1"))
        tier.take(request, who, lambda got, error: answers.append(error or got))
        await asyncio.sleep(1.0)

    async def whole() -> None:
        tier.unmount("n1")
        await ask("n1", "files/0")
        tier.unmount("n1")
        for who in ("n1", "n2", "n1"):
            await ask(who, "files/a")
        tier.mount("n1")
        await ask("n1", "files/a")
        tier.leave()
        await ask("n1", "files/b")
        tier.come_back()
        await ask("n1", "files/b")

    net.run(whole)
    net.loop.close()
    refused = answers.pop(5)
    assert "503" in refused.message
    assert answers == [True, True, True, False, False, True]
    assert set(tier.contents) == {"files/0", "files/a", "files/b"}


def test_the_addition_needs_a_tier() -> None:
    assert Additions().also(["local"]).tier
    for seed in range(300):
        drawn = Additions.of(seed, 3)
        assert drawn.tier or not drawn.local
