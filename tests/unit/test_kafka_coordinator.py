"""What a coordinator says of committed offsets while parts of the cluster do not answer."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol import errors
from lognode.client.protocol.principal import Principal
from lognode.client.protocol.reads import LATEST
from lognode.node.access.access import OpenAccess
from lognode.node.kafka import codes
from lognode.node.kafka import coordinator as of_groups
from lognode.node.kafka.coordinator import Coordinator, Guest
from lognode.node.kafka.group import Joined, Wish
from lognode.node.kafka.group_answers import Committed, Position
from lognode.node.kafka.group_requests import Commit, Mark, Positions
from lognode.node.kafka.group_store import Head, Stored, packed
from lognode.node.kafka.session import Asker

ASKED = Positions("g", [("orders", 0)])
COMMITTED = Position("orders", 0, 5, -1, "m")
NO_OFFSET = Position("orders", 0)


class World:
    """A cluster whose log of groups has an offset of `orders`, and whose topics may not answer."""

    def __init__(self, topic: errors.LognodeError | None, read: errors.LognodeError | None) -> None:
        self._topic = topic
        self._read = read
        self.log_id = 7
        leader = SimpleNamespace(leader=1, members=(1,))
        table = SimpleNamespace(find=lambda _: leader)
        self._routes = SimpleNamespace(partitions=64, table=table)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def call(self, _: Any, __: bytes, operation: Any, *___: Any, **____: Any) -> Any:
        assert operation is LATEST
        if self._read is not None:
            raise self._read
        return {"seqs": [9], "values": [packed(Stored(7, 5, -1, "m"))]}, None

    async def of_groups(self, _: float) -> Any:
        return SimpleNamespace(routes=self._routes)

    async def as_of_now(self, _: str, __: float) -> Any:
        if self._topic is not None:
            raise self._topic
        return SimpleNamespace(log_id=self.log_id, partitions=1)

    def gone(self, _: str) -> None:
        pass


def coordinator(world: Any) -> tuple[Coordinator, Asker]:
    found = Coordinator(world, world, node_id=1, brokers=lambda: {1: "a:1"})
    return found, Asker("h", world, OpenAccess(Principal("h")))


GONE = errors.LogNotFound("x")
FORBIDDEN = errors.Unauthorized("x")
SILENT = errors.Unavailable("x")
LATE = errors.Timeout("x", outcome="not_applied")


@pytest.mark.parametrize(
    ("topic", "read", "error", "row"),
    [
        (None, None, codes.NONE, COMMITTED),
        (GONE, None, codes.NONE, NO_OFFSET),
        (SILENT, None, codes.NOT_COORDINATOR, NO_OFFSET),
        (LATE, None, codes.NOT_COORDINATOR, NO_OFFSET),
        (None, SILENT, codes.NOT_COORDINATOR, NO_OFFSET),
        (FORBIDDEN, None, codes.NONE,
         Position("orders", 0, error=codes.TOPIC_AUTHORIZATION_FAILED)),
    ],
    ids=["committed", "deleted", "silent", "late", "no-leader", "forbidden"],
)  # fmt: skip
def test_S2_a_coordinator_says_no_offset_only_when_it_knows(
    topic: errors.LognodeError | None, read: errors.LognodeError | None, error: int, row: Position
) -> None:
    """A consumer that hears `no offset` begins anew, and may pass over records."""
    own, asker = coordinator(World(topic, read))
    found = asyncio.run(own.positions(ASKED, asker))
    assert found == (error, [row])


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (GONE, codes.UNKNOWN_TOPIC_OR_PARTITION),
        (errors.InvalidArgument("x"), codes.UNKNOWN_TOPIC_OR_PARTITION),
        (FORBIDDEN, codes.TOPIC_AUTHORIZATION_FAILED),
        (SILENT, codes.COORDINATOR_NOT_AVAILABLE),
    ],
    ids=["deleted", "bad-name", "forbidden", "silent"],
)
def test_a_commit_tells_why_a_topic_cannot_be_looked_up(
    topic: errors.LognodeError, code: int
) -> None:
    own, asker = coordinator(World(topic, None))
    asked = Commit("g", -1, "", [Mark("orders", 0, 6, -1, "")])

    async def run() -> list[Committed]:
        _, found = await own._rows(asked, asker, asyncio.get_running_loop().time() + 1)
        return [Committed("orders", 0, each) for each in found]

    assert asyncio.run(run()) == [Committed("orders", 0, code)]


@pytest.mark.parametrize(
    ("log_id", "newer", "row"),
    [(8, 8, NO_OFFSET), (6, 7, COMMITTED), (6, 6, NO_OFFSET)],
    ids=["earlier-topic", "later-topic", "another-cluster"],
)
def test_S2_a_node_looks_again_before_it_says_that_the_offset_of_a_later_topic_is_absent(
    log_id: int, newer: int, row: Position
) -> None:
    """The offset is of log 7. Ids of logs rise, so log 6 is what the name meant before."""

    class Behind(World):
        async def look(self, *_: Any, **more: Any) -> None:
            assert more == {"newer": True}
            self.log_id = newer

    world = Behind(None, None)
    world.log_id = log_id
    own, asker = coordinator(world)
    assert asyncio.run(own.positions(ASKED, asker)) == (codes.NONE, [row])


class Claims(World):
    """Both the log and its store. Questions for the log wait, each for its own event, if any."""

    def __init__(self, *waits: asyncio.Event | None) -> None:
        super().__init__(None, None)
        self._waits = iter(waits)
        self.claimed: list[bytes] = []
        self.names: list[str] = []
        self.fails = False

    async def all_ranges(self, *_: Any) -> list[Any]:
        return []

    async def groups(self, *_: Any) -> list[str]:
        return self.names

    async def of_groups(self, deadline: float) -> Any:
        if (event := next(self._waits, None)) is not None:
            await event.wait()
        return await super().of_groups(deadline)

    topic = of_groups

    def prefix(self, _: Any, __: str) -> bytes:
        return b"\0\1"

    async def head(self, _: str, __: float) -> Head | None:
        return Head(len(self.claimed), self.claimed[-1], 0) if self.claimed else None

    async def append(self, _: str, head: Head, *__: Any) -> int:
        if self.fails:
            raise SILENT
        self.claimed.append(head.claim)
        return len(self.claimed)


def test_a_member_whose_look_at_the_metadata_takes_longer_finds_the_claimed_group() -> None:
    """A second claim would leave the members of the first one in a group that nobody ends: their
    joins would have no answer."""

    async def run() -> None:
        late = asyncio.Event()
        world = Claims(None, late)
        own, asker = coordinator(world)
        own._store = world  # type: ignore[assignment]
        first, second = (asyncio.create_task(own.claim("g", asker)) for _ in range(2))
        assert await first == codes.NONE
        held = own._groups["g"]
        late.set()
        assert await second == codes.NONE
        assert own._groups["g"] is held
        assert len(world.claimed) == 1
        await own.close()

    asyncio.run(run())


def test_a_list_of_many_groups_lets_the_loop_run() -> None:
    """A token may not see all groups, and each look at its rights takes microseconds."""

    class Slow:
        def may_see(self, name: str) -> bool:
            time.sleep(0.001)
            return name != "g7"

    async def run() -> None:
        world = Claims()
        names = [f"g{at}" for at in range(50)]
        own, _ = coordinator(world)
        own._store = world  # type: ignore[assignment]
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.create_task(turn())
        await asyncio.sleep(0)
        world.names, before = names, turns
        asker: Any = Slow()
        error, found = await own.list(asker)
        assert turns - before >= 40
        turning.cancel()
        assert error == codes.NONE
        assert found == sorted((name, "") for name in names if name != "g7")

    asyncio.run(run())


def asker_of(host: str) -> Asker:
    topics: Any = SimpleNamespace()
    return Asker(host, topics, OpenAccess(Principal(host)))


def test_a_host_has_half_of_the_groups_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a host could keep the clients of all others out of groups."""
    monkeypatch.setattr(of_groups, "GROUPS_MAX", 4)

    async def run() -> None:
        world = Claims()
        own, _ = coordinator(world)
        own._store = world  # type: ignore[assignment]
        one, other = asker_of("one"), asker_of("other")
        assert [await own.claim(f"a{at}", one) for at in range(3)] == [
            codes.NONE, codes.NONE, codes.COORDINATOR_NOT_AVAILABLE,
        ]  # fmt: skip
        assert await own.claim("a0", one) == codes.NONE, "the node has the group already"
        own._drop(own._groups["a0"])
        assert await own.claim("a2", one) == codes.NONE, "another group has ended"
        assert [await own.claim(f"b{at}", other) for at in range(3)] == [
            codes.NONE, codes.NONE, codes.COORDINATOR_NOT_AVAILABLE,
        ]  # fmt: skip
        world.fails = True
        own._drop(own._groups["b0"])
        assert await own.claim("b0", other) == codes.COORDINATOR_NOT_AVAILABLE
        world.fails = False
        assert await own.claim("b0", other) == codes.NONE, "a failed claim counts no longer"
        await own.close()
        assert not own._claims

    asyncio.run(run())


def test_the_members_of_a_host_have_half_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members stay as long as their sessions, also when their connections have ended."""
    monkeypatch.setattr(of_groups, "BYTES_MAX", 8_000)

    async def run() -> None:
        world = Claims()
        own, _ = coordinator(world)
        own._store = world  # type: ignore[assignment]

        async def join(group: str, host: str) -> Joined:
            wish = Wish(group, "", 10_000, 10_000, "consumer", [("range", bytes(1_000))])
            return await own.join(wish, Guest("c", asker_of(host)))

        first = [asyncio.create_task(join("a", "one")) for _ in range(3)]
        await asyncio.sleep(0.1)
        refused = [each.result().error for each in first if each.done()]
        assert refused == [codes.GROUP_MAX_SIZE_REACHED] * 2
        second = [asyncio.create_task(join("b", "other"))]
        await asyncio.sleep(0.1)
        assert not second[0].done(), "the member of the other host waits for its group"
        assert set(own._bytes) == {"one", "other"}
        for each in (*first, *second):
            each.cancel()
        await asyncio.gather(*first, *second, return_exceptions=True)
        assert not own._bytes, "all is given back"
        await own.close()

    asyncio.run(run())
