"""What a coordinator says of committed offsets while parts of the cluster do not answer."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol import errors
from lognode.client.protocol.principal import Principal
from lognode.client.protocol.reads import LATEST
from lognode.node.access.access import OpenAccess
from lognode.node.kafka import codes
from lognode.node.kafka.coordinator import Coordinator
from lognode.node.kafka.group_answers import Committed, Position
from lognode.node.kafka.group_requests import Commit, Mark, Positions
from lognode.node.kafka.group_store import Stored, packed
from lognode.node.kafka.session import Asker

ASKED = Positions("g", [("orders", 0)])
COMMITTED = Position("orders", 0, 5, -1, "m")
NO_OFFSET = Position("orders", 0)


class World:
    """A cluster whose log of groups has an offset of `orders`, and whose topics may not answer."""

    def __init__(self, topic: errors.LognodeError | None, read: errors.LognodeError | None) -> None:
        self._topic = topic
        self._read = read
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

    async def known(self, _: str, __: float) -> Any:
        if self._topic is not None:
            raise self._topic
        return SimpleNamespace(log_id=7, partitions=1)

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
