"""The tier of the simulator's whole mode: the judge of restores, the store, threads that wait."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from simulated_net import Net

from lognode.chaos.whole.additions import Additions
from lognode.chaos.whole.far_store import PAGE, FarStore, Request
from lognode.chaos.whole.loop import SimLoop
from lognode.chaos.whole.nodes import Machines
from lognode.chaos.whole.options import Choice
from lognode.chaos.whole.run import run_seed
from lognode.chaos.whole.store_threads import SimObjects, StoreThreads
from lognode.chaos.whole.tiered import Tiered
from lognode.client.protocol.errors import LognodeError, Unavailable

FINAL: Any = {b"k": [(1, b"a"), (2, b"b"), (5, b"c")], b"l": []}


class _World:
    """What the judge uses of the machines."""

    numbers = (1,)


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([{}, {b"k": [(1, b"a")]}, FINAL], None),
        ([{b"k": [(2, b"b")]}], "leaves out seq 1"),
        ([{b"k": [(1, b"a"), (5, b"c")]}], "leaves out seq 2"),
        ([{b"k": [(1, b"a"), (1, b"a")]}], "gives seq 1 twice"),
        ([{b"k": [(1, b"x")]}], "gives seq 1, which the key does not have so"),
        ([{b"k": [(2, b"b"), (1, b"a")]}], "gives entries out of order"),
        ([{b"k": [(1, b"a")]}, {}], "gives 0 entries, and gave 1 before"),
        ([{b"m": [(1, b"a")]}], r"has keys \[b'm'\]"),
    ],
)
def test_the_judge_of_restores(looks: Any, told: str | None) -> None:
    loop = Net().loop
    tier = FarStore(loop, random.Random(1))
    side = Tiered(cast(Machines, _World()), tier, random.Random(1), is_spread=False)
    side.looks = looks
    side.judge_looks(FINAL)
    loop.close()
    found = [each.message for each in side.anomalies]
    if told is None:
        assert not found
    else:
        with pytest.raises(AssertionError, match=told):
            assert not found


def _ask(calls: Any, *, seed: int, calm: bool) -> Iterator[tuple[Any, float]]:
    """What calls of a process return or raise, and when."""
    net = Net(seed=seed)
    loop: SimLoop = net.loop
    tier = FarStore(loop, random.Random(seed))
    if calm:
        tier.calm()
    results: list[tuple[Any, float]] = []
    made: list[StoreThreads] = []

    async def process() -> None:
        threads = StoreThreads(2, tier, loop.rng)
        made.append(threads)
        futures = [threads.run(lambda call=call: call(SimObjects(tier))) for call in calls]
        for future in futures:
            try:
                results.append((await future, loop.time()))
            except LognodeError as error:
                results.append((error, loop.time()))

    async def whole() -> None:
        await loop.spawn(net.server, process())

    net.run(whole)
    made[0].end()
    loop.close()
    yield from results


def _both(objects: SimObjects) -> list[bool]:
    """Two requests of one call."""
    return [objects.put("a", b"1"), objects.put("b", b"1")]


def test_requests_of_two_calls_mix_and_one_put_of_a_name_wins() -> None:
    ends = set()
    for seed in range(12):
        (first, _), (second, _) = _ask([_both, _both], seed=seed, calm=True)
        assert sorted([first[0], second[0]]) == [False, True]
        assert sorted([first[1], second[1]]) == [False, True]
        ends.add((first[0], first[1]))
    assert len(ends) > 2, "one call wins one name, and the other call the other name"


def test_the_same_seed_gives_the_same_answers() -> None:
    runs = [[(repr(found), at) for found, at in _ask([_both] * 9, seed=4, calm=False)]
            for _ in range(2)]  # fmt: skip
    assert runs[0] == runs[1]
    assert any("Unavailable" in found for found, _ in runs[0])


def test_a_listing_of_many_pages_has_every_name_in_order() -> None:
    def listed(objects: SimObjects) -> list[str]:
        for at in range(2 * PAGE):
            objects.put(f"f/{at:03}", b"")
        objects.put("other", b"")
        return [each.name for each in objects.objects("f")]

    ((found, _),) = _ask([listed], seed=1, calm=True)
    assert found == [f"f/{at:03}" for at in range(2 * PAGE)]


def test_a_late_put_arrives_after_its_error() -> None:
    net = Net(seed=3)
    tier = FarStore(net.loop, random.Random(3))
    arrived: list[float] = []
    tier.is_done = lambda request: arrived.append(net.loop.time())
    answers: list[tuple[Any, float]] = []

    async def whole() -> None:
        for at in range(200):
            request = Request("put", f"n{at}", lambda there, at=at: there.put(f"n{at}", b""))
            tier.take(request, "n1", lambda got, error: answers.append((error, net.loop.time())))
        await asyncio.sleep(60.0)

    net.run(whole)
    net.loop.close()
    failed = [at for error, at in answers if isinstance(error, Unavailable)]
    assert len(answers) == 200
    assert failed
    assert max(arrived) > max(failed), "an effect after the last error"
    assert 150 < len(tier.contents) < 200, "most requests arrive, and some never do"


@pytest.mark.slow
def test_a_run_with_a_tier_replays_exactly() -> None:
    plan = replace(Choice("append", ("kill",)).plan(5), nodes=3, rate=10.0, time_limit_s=8.0)
    lines: list[str] = []
    first = run_seed(plan, lines.append, Additions(tier=True))
    again = run_seed(plan, additions=Additions(tier=True))
    assert first.verdict != "invalid", first.why
    assert (first.trace, first.turns) == (again.trace, again.turns)
    for fate in ("late", "lost", "unanswered", "refused"):
        assert any(line.endswith(f": {fate}") for line in lines), fate
