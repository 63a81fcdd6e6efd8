"""What requests are expected to take of the loop's time is held until they have ended."""

import pytest

from lognode.client.protocol.cluster import METADATA, STATUS
from lognode.node.quota.foretold import Foretold, Running
from lognode.node.quota.quotas import CPU, Payer, Quotas

MS = 0.001


def payer(now: list[float]) -> Payer:
    quotas = Quotas(lambda: now[0])
    quotas.learn({"default": {"cpu_ms": 100}})
    return quotas.payer(quotas.principal("10.0.0.1", "default"), None)


def passed_at_once(foretold: Foretold, who: Payer) -> list[Running]:
    """As many requests as the quota lets begin before any has run."""
    running: list[Running] = []
    while who.refusal((CPU,)) is None and len(running) < 100:
        running.append(foretold.begin(STATUS, who))
    return running


def test_requests_that_come_together_begin_together_only_as_far_as_the_quota_reaches() -> None:
    now = [0.0]
    foretold, who = Foretold(), payer(now)
    first = foretold.begin(STATUS, who)
    first.ran(20 * MS)
    first.end()  # 80 ms are left, and one of these requests takes 20
    together = passed_at_once(foretold, who)
    assert len(together) == 4
    for each in together:
        each.ran(20 * MS)
        each.end()
    # What was held is given back once: the quota has no debt but for what was used.
    assert who.refusal((CPU,)) is not None
    now[0] += 0.001
    assert who.refusal((CPU,)) is None


def test_memory_that_a_request_does_not_use_is_returned() -> None:
    foretold, who = Foretold(), payer([0.0])
    for _ in range(50):
        running = foretold.begin(STATUS, who)
        running.end()
    dear = foretold.begin(METADATA, who)
    dear.ran(60 * MS)
    dear.end()
    held = foretold.begin(METADATA, who)
    assert who.refusal((CPU,)) is not None  # 60 of the 40 ms that are left
    held.end()
    assert who.refusal((CPU,)) is None


def test_the_mean_of_an_operation_follows_what_its_requests_take() -> None:
    foretold, who = Foretold(), payer([0.0])
    for spent in (80 * MS, *[1 * MS] * 60):
        running = foretold.begin(STATUS, who)
        running.ran(spent)
        running.end()
        who.take(CPU, -1_000.0)
    assert len(passed_at_once(foretold, who)) == pytest.approx(96, abs=6)
