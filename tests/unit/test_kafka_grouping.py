"""What large answers about consumer groups cost while clients do not take them."""

import asyncio
import struct
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import kafka_wire as wire
from live_nodes import until

from lognode.client.protocol.principal import Principal
from lognode.node.access.access import OpenAccess
from lognode.node.kafka import api, codes, grouping
from lognode.node.kafka.api import head_of
from lognode.node.kafka.group_answers import GroupRow, MemberRow, Position
from lognode.node.kafka.group_requests import Positions
from lognode.node.kafka.grouping import Grouping
from lognode.node.kafka.session import Asker
from lognode.node.kafka.wire import Reader

BIG = bytes(1 << 20)
"""What one member has as metadata."""
LONG = "m" * 4_096


class Groups:
    """A coordinator whose groups have one large member each, and whose offsets have long
    metadata."""

    def __init__(self) -> None:
        self.described = 0

    async def describe(self, names: Sequence[str], _: Asker) -> list[GroupRow]:
        self.described += len(names)
        member = MemberRow("m", "c", "/h", BIG, BIG)
        return [GroupRow(name, codes.NONE, "Stable", "consumer", "range", [member])
                for name in names]  # fmt: skip

    async def positions(self, asked: Positions, _: Asker) -> tuple[int, list[Position]]:
        return codes.NONE, [Position(*each, 5, -1, LONG) for each in asked.partitions or ()]


def describe(names: Sequence[str]) -> bytes:
    return wire.request(api.DESCRIBE_GROUPS, 2, wire.array([wire.text(name) for name in names]))


def all_offsets() -> bytes:
    rows = [wire.text("t") + wire.array([struct.pack(">i", 0)] * 9_999)]
    return wire.request(api.OFFSET_FETCH, 5, wire.text("g") + wire.array(rows))


class Clients:
    """Clients that take no answers until they are told to."""

    def __init__(self) -> None:
        self.groups = Groups()
        self.own = Grouping(self.groups)  # type: ignore[arg-type]
        self.taking = asyncio.Event()
        self.sending = 0
        self.unread = 0
        self.most = 0
        self.sizes: list[int] = []
        self.served: set[str] = set()
        """Hosts to which the node sends, while no client takes anything."""

    async def _send(self, host: str, body: bytes) -> None:
        self.sending += 1
        if not self.taking.is_set():
            self.served.add(host)
        self.unread += len(body)
        self.most = max(self.most, self.unread)
        await self.taking.wait()
        self.unread -= len(body)
        self.sizes.append(len(body))

    async def ask(self, request: bytes, host: str) -> None:
        topics: Any = SimpleNamespace()
        data = request[4:]
        asker = Asker(host, topics, OpenAccess(Principal(host)))
        answer = await self.own.begin(data, head_of(Reader(data)), asker)
        await answer(partial(self._send, host))


def ask_all(requests: Sequence[tuple[bytes, str]]) -> Clients:
    """Ask at the same time. Take the answers when each is being sent or waits for room."""

    async def run() -> Clients:
        found = Clients()
        tasks = [asyncio.create_task(found.ask(*each)) for each in requests]
        await until(
            lambda: found.sending + found.own._room.waiting == len(requests),
            "each answer is being sent or waits",
        )
        found.taking.set()
        await asyncio.gather(*tasks)
        return found

    return asyncio.run(run())


def test_a_request_that_names_a_group_often_gets_the_group_once() -> None:
    found = ask_all([(describe(["g"] * 1_000), "h")])
    assert found.groups.described == 1
    assert found.most < 3 * len(BIG)


def test_descriptions_that_clients_do_not_take_have_bounded_memory() -> None:
    """Those of one host have half of the memory, and other hosts are served meanwhile."""
    names = [f"g{at}" for at in range(4)]
    found = ask_all([(describe(names), f"h{at % 4}") for at in range(24)])
    assert len(found.sizes) == 24, "each gets its answer in the end"
    assert grouping.ANSWERS_MAX // 2 < found.most <= grouping.ANSWERS_MAX


def test_offsets_that_clients_do_not_take_have_bounded_memory() -> None:
    """A request of 40 KB names one partition ten thousand times, and asks for 40 MB."""
    found = ask_all([(all_offsets(), "h")] * 4)
    assert len(found.sizes) == 4
    assert found.most < 42e6


def test_a_host_that_takes_no_answers_does_not_stop_the_clients_of_others() -> None:
    names = [f"g{at}" for at in range(4)]
    found = ask_all([*[(describe(names), "slow")] * 8, (all_offsets(), "other")])
    assert found.served == {"slow", "other"}
