"""Appends with conditions of many callers, on real nodes that die: no update is lost (S9)."""

import asyncio
from dataclasses import dataclass, field

import pytest

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

KEYS = (b"a", b"b", b"x", b"y")
CALLERS = 48


@dataclass
class Told:
    """What callers asked and heard: by value, the key, the seq expected and the outcome."""

    asked: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    acked: dict[bytes, int | None] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    """Not appended, for certain."""
    over: bool = False


async def contend(servers: str, name: bytes, told: Told) -> None:
    """Callers of one program: they share what it knows of the keys."""
    known: dict[bytes, int] = {}
    async with lognode.AsyncClient(servers, timeout=20) as client:
        log = client.log("contended")

        async def caller(number: int) -> None:
            key, n = KEYS[number % len(KEYS)], 0
            while not told.over:
                n += 1
                value, expected = b"%s %d %d" % (name, number, n), known.get(key, 0)
                told.asked[value] = key, expected
                try:
                    ack = await log.append(key, value, expect=expected or lognode.ABSENT)
                    told.acked[value] = ack.seq
                    known[key] = max(known.get(key, 0), ack.seq or 0)
                except lognode.SequenceMismatch as error:
                    if error.outcome == "not_applied":
                        told.refused.add(value)
                    known[key] = max(known.get(key, 0), error.fields["actual"])
                except lognode.LognodeError as error:
                    if error.outcome == "not_applied":
                        told.refused.add(value)

        await asyncio.gather(*map(caller, range(CALLERS)))


async def acknowledged(told: Told, more: int) -> None:
    until = len(told.acked) + more
    await asyncio.to_thread(
        testing.eventually, lambda: len(told.acked) >= until, timeout_s=60, what="progress"
    )


def check(servers: str, told: Told) -> None:
    with lognode.Client(servers, timeout=20) as client:
        log = client.log("contended")
        stored: dict[bytes, int] = {}
        for key in KEYS:
            before = 0
            for entry in log.scan(key):
                assert entry.value is not None
                assert told.asked[entry.value] == (key, before), "an update was lost"
                assert entry.value not in stored, "applied twice"
                stored[entry.value] = before = entry.seq
        for value, seq in told.acked.items():
            assert seq in (stored[value], None)
        assert not told.refused & stored.keys()


def test_S2_S8_S9_S11_no_update_is_lost_while_leaders_die(three: testing.LocalCluster) -> None:
    told = Told()
    with lognode.Client(three.servers, timeout=20) as client:
        client.create_log("contended", split_at=["m"])

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                for name in (b"one", b"two"):
                    group.create_task(contend(three.servers, name, told))
                await acknowledged(told, 100)
                leader = three.nodes[testing.leader_of(client, "contended") - 1]
                leader.kill()
                await acknowledged(told, 100)
                await asyncio.to_thread(leader.start)
                await asyncio.to_thread(leader.wait_ready)
                await acknowledged(told, 50)
                told.over = True

        asyncio.run(run())
    assert told.refused, "nobody contended"
    check(three.servers, told)
