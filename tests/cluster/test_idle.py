"""Groups at rest on real nodes: they cost nothing, wake one by one, and survive their leader."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from metrics_page import metric

import lognode
from lognode import testing
from lognode.node.local.dev import LocalNode

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]

RANGES = 24
LEADERS_AGAIN_WITHIN_S = 5.0
FAST_S = 0.5
"""Below the least election timeout: no leader was lost on the way."""
SETTLED_S = 1.0
"""Groups of other logs are counted as idle too: one of these may go to rest a little later."""


def wakes(nodes: list[LocalNode], role: str) -> float:
    return float(sum(metric(node, f'lognode_group_wakes_total{{role="{role}"}}') for node in nodes))


def wait(what: str, done: Callable[[], bool], limit_s: float = 60.0) -> float:
    """Seconds until it holds."""
    began = time.monotonic()
    while not done():
        assert time.monotonic() - began < limit_s, f"not within {limit_s} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


def all_rest(nodes: list[LocalNode]) -> Callable[[], bool]:
    return lambda: all(metric(node, "lognode_idle_replicas") >= RANGES for node in nodes)


def ranges(node: LocalNode) -> list[dict[str, Any]]:
    return [range_ for range_ in node.status()["ranges"] if range_["log"] == "resting"]


def led_by(node: LocalNode) -> set[int]:
    return {range_["id"] for range_ in ranges(node) if range_["leader"] == node.number}


def terms(node: LocalNode) -> dict[int, int]:
    return {row["range"]: row["term"] for row in node.status()["replicas"]}


def test_x20_idle_ranges_wake_alone_and_outlive_their_leader(
    three: testing.LocalCluster,
) -> None:
    keys = [f"k{number:02}" for number in range(RANGES)]
    with lognode.Client(three.servers, timeout=20) as client:
        log = client.create_log("resting", split_at=keys[1:])
        for key in keys:
            log.append(key, b"first")
        wait("all rest", all_rest(three.nodes))
        time.sleep(SETTLED_S)

        # A client wakes one group, at once, and nobody loses the lead over it.
        before = wakes(three.nodes, "leader"), wakes(three.nodes, "follower")
        sent = time.monotonic()
        log.append(keys[5], b"second")
        assert time.monotonic() - sent < FAST_S
        assert wakes(three.nodes, "leader") == before[0] + 1
        wait("its members wake", lambda: wakes(three.nodes, "follower") == before[1] + 2)
        wait("all rest again", all_rest(three.nodes))
        time.sleep(SETTLED_S)

        # The death of a node wakes what it led, and nothing else.
        node = max(three.nodes, key=lambda each: len(led_by(each)))
        alive = [other for other in three.nodes if other is not node]
        led, terms_before = led_by(node), terms(alive[0])
        assert len(led) >= 3
        before = wakes(alive, "leader"), wakes(alive, "follower")
        node.kill()
        took = wait(
            "all ranges have leaders again",
            lambda: all(r["leader"] not in (None, node.number) for r in ranges(alive[0])),
            LEADERS_AGAIN_WITHIN_S,
        )
        assert took < LEADERS_AGAIN_WITHIN_S
        assert wakes(alive, "leader") == before[0]
        assert wakes(alive, "follower") == before[1] + 2 * len(led)
        wait("the others rest without it", all_rest(alive))
        for key in keys:
            sent = time.monotonic()
            log.append(key, b"third")
            assert time.monotonic() - sent < 5.0
        changed = {r for r, term in terms(alive[0]).items() if term != terms_before[r]}
        assert changed == led

        # It returns: its members wake once to learn what happened, and all come to rest.
        node.start()
        node.wait_ready()
        wait("all rest with it", all_rest(three.nodes))
        for key, values in ((key, [e.value for e in log.scan(key)]) for key in keys):
            assert values == [b"first", *([b"second"] if key == keys[5] else []), b"third"]
