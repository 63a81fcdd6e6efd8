"""The driver of a group's dispatcher: who is woken, and what is told when the leader is over."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from dispatch_model import DispatchModel
from group_model import GROUP
from lineages import KEYS

from lognode.client.protocol.errors import LognodeError, NotLeader, Sealed, Unavailable
from lognode.node.dispatch.batches import Batches
from lognode.node.serving import group_driver
from lognode.node.serving.dead_letters import Post
from lognode.node.serving.group_driver import GroupDriver, Held, now_ms
from lognode.node.serving.view_service import seen_by_group
from lognode.partitions.groups import GroupRecord
from lognode.statemachine.groups.selection import Selection
from lognode.statemachine.range_state import RangeState

ANN, BEN = 11, 12
RECORD = GroupRecord(
    group_id=GROUP, log_id=1, name="g", prefix=b"", separator=b"", patterns=(), max_deliveries=5,
    on_dead="park", lease_ms=30_000, begin="earliest", begin_ms=0, waits=False, created_ms=0,
)  # fmt: skip

POST = cast("Post", None)  # these groups park


class Replica(SimpleNamespace):
    """A leading member whose proposals are neither applied nor refused."""

    def __init__(self, model: DispatchModel) -> None:
        (state,) = model.log.ranges
        super().__init__(
            group=SimpleNamespace(term=1), state=state, leads=True, is_sealed=False,
            resigning=False, stopped=False, gid=SimpleNamespace(range_id=1, generation=1),
            news=SimpleNamespace(listen_span=lambda *_: None, unlisten_span=lambda *_: None),
            services=SimpleNamespace(stamp_ms=lambda: 1),
        )  # fmt: skip
        self.proposed: list[Any] = []

    def propose(self, command: Any, futures: Any, *, records: int = 0) -> None:
        self.proposed.append(command)

    def not_leader(self) -> NotLeader:
        return NotLeader("another member leads", hint=2)


class UnderWay(NamedTuple):
    """An acknowledgement of one key that is proposed, and neither applied nor refused."""

    state: RangeState
    replica: Replica
    driver: GroupDriver
    found: Batches
    body: dict[str, Any]
    settling: "asyncio.Task[Any]"


class Leased(NamedTuple):
    """A key that a consumer has, and its request to acknowledge the key."""

    replica: Replica
    driver: GroupDriver
    found: Batches
    body: dict[str, Any]


async def leased(tmp_path: Path) -> Leased:
    model = DispatchModel(tmp_path / "log", 7)
    (state,) = model.log.ranges
    model.log.append(state, KEYS[:1])
    model.read(model.lead(state), 99)
    group = model.group(state)
    assert group is not None
    replica = Replica(model)
    driver = GroupDriver(
        cast("Any", replica),
        RECORD,
        group,
        reclaims=False,
        held=Held(),
        post=POST,
        on_broken=lambda _: None,
    )
    model.leaders[0].dispatcher = driver.dispatcher
    model.read(model.leaders[0], 99)
    found = driver.take({"consumer": ANN, "count": 1, "bytes": 1000})
    body = {
        "consumer": ANN, "acks": [(found.keys[0], found.tokens[0], 2)], "releases": (),
        "rejects": (), "extends": (), "leave": False, "patient": False,
    }  # fmt: skip
    return Leased(replica, driver, found, body)


async def ack_under_way(tmp_path: Path) -> UnderWay:
    replica, driver, found, body = await leased(tmp_path)
    settling = asyncio.create_task(driver.settle(body))
    while not replica.proposed:  # noqa: ASYNC110  # a proposal of the stand-in has no event
        await asyncio.sleep(0)
    return UnderWay(replica.state, replica, driver, found, body, settling)


def test_G4_a_leader_that_keeps_its_lead_goes_on_with_what_came_meanwhile(tmp_path: Path) -> None:
    """Seed 30 of whole runs: a drain was undone while a hand-over was under way. The driver of the
    group proposed nothing more, so that keys stayed with consumers that were gone."""

    async def run() -> None:
        replica, driver, _, body = await leased(tmp_path)
        settled = asyncio.Event()
        replica.resigning, replica.lead_settled = True, settled.wait
        settling = asyncio.create_task(driver.settle(body))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not replica.proposed, "a command was proposed during the hand-over"
        replica.resigning = False
        settled.set()
        async with asyncio.timeout(5):
            while not replica.proposed:  # noqa: ASYNC110  # a proposal has no event, as above
                await asyncio.sleep(0)
        settling.cancel()

    asyncio.run(run())


@pytest.mark.parametrize(("ceases", "error"), [("leads", NotLeader), ("is_sealed", Sealed)])
def test_S11_an_ack_that_was_proposed_by_a_leader_that_is_over_has_an_unknown_outcome(
    tmp_path: Path, ceases: str, error: type[LognodeError]
) -> None:
    """The next leader may have the command in its log, and apply it."""

    async def run() -> None:
        under_way = await ack_under_way(tmp_path)
        replica, driver = under_way.replica, under_way.driver
        setattr(replica, ceases, ceases == "is_sealed")
        driver.end()
        with pytest.raises(error) as caught:
            await under_way.settling
        assert caught.value.outcome == "unknown"
        with pytest.raises(error) as caught:  # nothing of a later request is proposed
            await driver.settle(under_way.body)
        assert caught.value.outcome == "not_applied"

    asyncio.run(run())


def test_G5_a_consumer_that_waits_gets_the_key_of_a_consumer_that_does_not_ask(
    tmp_path: Path,
) -> None:
    """The key was ANN's last, and ANN may be gone. BEN began to wait when no key was ready."""

    async def run() -> None:
        model = DispatchModel(tmp_path / "log", 7)
        (state,) = model.log.ranges
        model.log.append(state, KEYS[:1])
        model.lead(state)
        group = model.group(state)
        assert group is not None
        driver = GroupDriver(
            cast("Any", Replica(model)),
            RECORD,
            group,
            reclaims=False,
            held=Held(),
            post=POST,
            on_broken=lambda _: None,
        )
        take = {"count": 1, "bytes": 1000}
        driver.join(ANN)
        await driver.until_ready(ANN, now_ms() + 60_000)
        found = driver.take({"consumer": ANN, **take})
        driver.join(BEN)
        waiting = asyncio.create_task(driver.until_ready(BEN, now_ms() + 60_000))
        await asyncio.sleep(0)
        body = {
            "consumer": ANN, "acks": (), "releases": [(found.keys[0], found.tokens[0], 0, "")],
            "rejects": (), "extends": (), "leave": False, "patient": False,
        }  # fmt: skip
        assert await driver.settle(body) == {"refused": []}
        async with asyncio.timeout(20):
            await waiting
        assert driver.take({"consumer": BEN, **take}).keys == found.keys
        driver.end()

    asyncio.run(run())


def test_G5_a_driver_without_consumers_sleeps_until_a_consumer_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 groups that nobody consumes, each looking at its floor once a second, took half a
    processor."""
    monkeypatch.setattr(group_driver, "_IDLE_S", 0.01)

    async def run() -> None:
        model = DispatchModel(tmp_path / "log", 7)
        (state,) = model.log.ranges
        model.lead(state)
        group = model.group(state)
        assert group is not None
        driver = GroupDriver(
            cast("Any", Replica(model)), RECORD, group, reclaims=False, held=Held(), post=POST,
            on_broken=lambda _: None,
        )  # fmt: skip
        looks = []
        tick = driver.dispatcher.tick
        monkeypatch.setattr(driver.dispatcher, "tick", lambda now: (looks.append(now), tick(now)))
        await asyncio.sleep(0.2)  # time for twenty looks
        model.log.append(state, KEYS[:1])
        driver._on_news(KEYS[:1], 1)
        await asyncio.sleep(0.05)
        assert len(looks) <= 1
        driver.join(ANN)
        async with asyncio.timeout(20):
            await driver.until_ready(ANN, now_ms() + 60_000)
            while len(looks) < 5:  # noqa: ASYNC110  # a look of the dispatcher has no event
                await asyncio.sleep(0.01)
        driver.end()

    asyncio.run(run())


def test_G4_a_tier_that_is_away_ends_no_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request of a consumer began the group anew, and took all keys from their consumers."""
    monkeypatch.setattr(group_driver, "_FAR_REST_S", (0.01, 0.01))
    plain, failed = group_driver.in_turns, []

    async def in_turns(*given: Any) -> Any:
        if len(failed) < 3:
            failed.append(given)
            raise Unavailable("the tier gives no answer", reason="tier", retry_after=5.0)
        return await plain(*given)

    monkeypatch.setattr(group_driver, "in_turns", in_turns)

    async def run() -> None:
        model = DispatchModel(tmp_path / "log", 7)
        (state,) = model.log.ranges
        model.log.append(state, KEYS[:1])
        model.lead(state)
        group = model.group(state)
        assert group is not None
        driver = GroupDriver(
            cast("Any", Replica(model)), RECORD, group, reclaims=False, held=Held(), post=POST,
            on_broken=lambda _: None,
        )  # fmt: skip
        driver.join(ANN)
        async with asyncio.timeout(20):
            await driver.until_ready(ANN, now_ms() + 60_000)
        assert len(failed) == 3
        assert not driver.is_over
        assert driver.take({"consumer": ANN, "count": 1, "bytes": 1000}).keys
        driver.end()

    asyncio.run(run())


def test_G5_a_request_ends_when_a_lease_of_its_consumer_ends(tmp_path: Path) -> None:
    """A consumer that lives asks again. The key goes to nobody who stands still."""

    async def run() -> None:
        model = DispatchModel(tmp_path / "log", 7)
        (state,) = model.log.ranges
        model.log.append(state, KEYS[:1])
        model.lead(state)
        group = model.group(state)
        assert group is not None
        driver = GroupDriver(
            cast("Any", Replica(model)),
            replace(RECORD, lease_ms=200),
            group,
            reclaims=False,
            held=Held(),
            post=POST,
            on_broken=lambda _: None,
        )
        driver.join(ANN)
        await driver.until_ready(ANN, now_ms() + 60_000)
        assert driver.take({"consumer": ANN, "count": 1, "bytes": 1000}).keys
        async with asyncio.timeout(20):
            await driver.until_ready(ANN, now_ms() + 60_000)
        assert ANN in driver.dispatcher.silent
        driver.join(ANN)
        assert ANN not in driver.dispatcher.silent
        driver.end()

    asyncio.run(run())


def test_G7_a_view_sees_an_acknowledgement_when_it_is_applied_and_not_before(
    tmp_path: Path,
) -> None:
    """A proposal that no majority has may never be committed."""

    async def run() -> None:
        under_way = await ack_under_way(tmp_path)
        state, found = under_way.state, under_way.found
        seen = partial(seen_by_group, state, GROUP, Selection())
        other = partial(seen_by_group, state, GROUP, Selection(b"other"))
        assert not seen(found.keys[0], 1), "the acknowledgement is only proposed"
        moves = state.position_moves
        state.apply(state.applied_index + 1, 1, under_way.replica.proposed[0])
        assert state.position_moves > moves
        assert seen(found.keys[0], 1)
        assert not seen(found.keys[0], 2)
        assert not other(found.keys[0], 1), "the view does not have the key"
        state.removal.floors[found.keys[0]] = 2
        assert not seen(found.keys[0], 1), "the entry is removed"
        under_way.driver.end()
        with pytest.raises(LognodeError):
            await under_way.settling

    asyncio.run(run())
