"""Answers of the door that are larger than their requests."""

import asyncio
import struct
from collections import Counter
from types import SimpleNamespace
from typing import Any

import kafka_wire as wire
import pytest
from live_nodes import until

from lognode.node.kafka import api, codes, door
from lognode.node.kafka.answers import Partition, Topic
from lognode.node.kafka.door import KafkaDoor
from lognode.node.kafka.room import Hold, Room

ONE = wire.array([wire.text("wide")])
ALL = struct.pack(">i", -1)
MANY = wire.array([wire.text("wide")] * 17)
WIDE = Topic("wide", codes.NONE, [Partition(at, 1, [1]) for at in range(4_096)])


class Describing:
    """Describes a topic with thousands of partitions for one host, and counts the answers that are
    not sent yet."""

    def __init__(self, host: str, gathered: Counter[str]) -> None:
        self.host = host
        self.gathered = gathered

    async def cluster_id(self) -> str:
        return "c"

    async def topics(self, _: object) -> list[Topic]:
        self.gathered[self.host] += 1
        await asyncio.sleep(0.01)
        return [WIDE]

    def brokers(self) -> list[Any]:
        return []


def opened() -> KafkaDoor:
    nothing: Any = SimpleNamespace(labels=lambda _: SimpleNamespace(inc=lambda: None))
    return KafkaDoor(
        lambda _: nothing, nothing, nothing, node_id=1, brokers=dict, producer_key=bytes,
        most=lambda: 1, on_refused=nothing, requests=nothing, auto_partitions=0,
        compacts=lambda _: None,
    )  # fmt: skip


@pytest.mark.parametrize(("names", "most"), [(ONE, 32), (ALL, 4), (MANY, 4)])
def test_few_answers_about_topics_exist_before_they_have_room(
    monkeypatch: pytest.MonkeyPatch, names: bytes, most: int
) -> None:
    """Connections that ask for metadata and take no answers had one answer each in memory."""

    async def run() -> None:
        own, gathered = opened(), Counter[str]()
        own._shared.answers = Room(300_000, 150_000)
        monkeypatch.setattr(door, "FREE", 1_000)

        def session(host: str) -> Any:
            async def who() -> tuple[Any, Any]:
                client = SimpleNamespace(describing=Describing(host, gathered))
                return client, SimpleNamespace(host=host)

            async def hold(room: Room, size: int) -> Hold:
                await room.take(size, host)
                return Hold(room, size, host)

            return SimpleNamespace(
                is_raw=False, host=host, who=who, hold=hold, let_go=lambda held: held.free()
            )

        sent: Counter[str] = Counter()

        async def ask(host: str) -> None:
            asked = wire.request(api.METADATA, 1, names)[4:]
            finish, _ = await own.begin(asked, session(host))

            async def send(answer: bytes) -> None:
                assert len(answer) > 100_000
                await taking.wait()
                sent[host] += 1

            await finish(send)

        taking = asyncio.Event()
        tasks = [asyncio.create_task(ask("slow")) for _ in range(50)]
        await until(lambda: gathered["slow"] > most, "the places of the host are taken")
        await asyncio.sleep(0.1)
        # One is being sent, and half of the others' places are taken.
        assert gathered["slow"] == 1 + most
        tasks.append(asyncio.create_task(ask("other")))
        await until(lambda: gathered["other"] == 1, "another host is served meanwhile")
        taking.set()
        await asyncio.gather(*tasks)
        assert sent == {"slow": 50, "other": 1}
        own._shared.close()

    asyncio.run(run())
