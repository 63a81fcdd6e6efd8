"""Updates of one key by many callers, on real nodes: no update is lost, and nobody is left out."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from live_nodes import ask, follower, live, until, value

import lognode
from lognode import testing
from lognode.client.protocol.errors import NotLeader
from lognode.node.replicas import key_turns
from lognode.node.serving import data_service

pytestmark = pytest.mark.cluster


@dataclass
class Told:
    """What callers of a log heard. A value is `count name`, with one more than the count before."""

    log: str
    served: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The successes of each caller, by client and number."""
    acked: dict[int, bytes] = field(default_factory=dict)
    """The value of each acknowledged seq."""
    not_applied: set[bytes] = field(default_factory=set)
    """Names of updates that were not applied, for certain."""
    changes: int = 0
    """Computed values; a refused value is computed again."""
    over: bool = False

    @property
    def total(self) -> int:
        return self.served.total()


def count_of(value: bytes | None) -> int:
    return 0 if value is None else int(value.split()[0])


def following(told: Told, name: bytes, value: bytes | None) -> bytes:
    told.changes += 1
    return b"%d %s" % (count_of(value) + 1, name)


async def client_of(servers: str, number: int, callers: int, told: Told) -> None:
    async with lognode.AsyncClient(servers, timeout=20) as client:
        log = client.log(told.log)

        async def caller(own: int) -> None:
            call = 0
            while not told.over:
                call += 1
                name = b"%d-%d-%d" % (number, own, call)
                try:
                    updated = await log.update("k", partial(following, told, name))
                except lognode.LognodeError as error:
                    if error.outcome == "not_applied":
                        told.not_applied.add(name)
                    continue
                assert updated.value is not None
                told.served[number, own] += 1
                if updated.seq is not None:
                    assert updated.seq not in told.acked
                    told.acked[updated.seq] = updated.value

        await asyncio.gather(*map(caller, range(callers)))


def check(servers: str, told: Told) -> None:
    """Each entry counts one more than the entry before it, and every acknowledgement is there."""
    with lognode.Client(servers, timeout=20) as client:
        entries = {entry.seq: entry.value for entry in client.log(told.log).scan("k")}
    assert [count_of(value) for value in entries.values()] == list(range(1, len(entries) + 1))
    assert told.acked.items() <= entries.items()
    names = [(value or b"").split()[1] for value in entries.values()]
    assert len(set(names)) == len(names), "an update was applied twice"
    assert not told.not_applied & set(names)


async def progress(told: Told, more: int) -> None:
    until = told.total + more
    await asyncio.to_thread(
        testing.eventually, lambda: told.total >= until, timeout_s=60, what="progress"
    )


@pytest.mark.parametrize("clients", [1, 8])
def test_S9_every_caller_of_one_key_is_served(three: testing.LocalCluster, clients: int) -> None:
    """256 callers: until the first has been served eight times, the last has been once. Few values
    are computed in vain, since clients take turns."""
    told = Told(f"updated-{clients}")
    with lognode.Client(three.servers, timeout=20) as client:
        client.create_log(told.log)

    async def main() -> None:
        callers = 256 // clients
        loads = [
            asyncio.create_task(client_of(three.servers, number, callers, told))
            for number in range(clients)
        ]
        while max(told.served.values(), default=0) < 8:  # noqa: ASYNC110 - many events
            await asyncio.sleep(0.01)
        told.over = True
        assert len(told.served) == 256
        await asyncio.gather(*loads)

    asyncio.run(main())
    assert told.changes < 2 * told.total, "clients compete instead of taking turns"
    check(three.servers, told)


def test_only_the_leader_gives_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower names the leader. The leader answers the second client after an entry of the key,
    or after the first client has given its turn back."""
    monkeypatch.setattr(key_turns, "TURN_S", 60.0)
    monkeypatch.setattr(data_service, "WAIT_S", 60.0)

    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders")
            await log.append(b"k", b"0")
            await cluster.settled()
            leader = await cluster.leader()
            (replica,) = leader.host.ranges()
            body = {"range": replica.gid.range_id, "generation": replica.gid.generation,
                    "key": b"k", "timeout_ms": 60_000}  # fmt: skip
            with pytest.raises(NotLeader) as told:
                await ask(follower(cluster), "latest", {**body, "turn": "take"})
            assert told.value.fields["hint"] == leader.node.identity.node_id

            def take() -> asyncio.Task[dict[str, Any]]:
                return asyncio.create_task(ask(leader, "latest", {**body, "turn": "take"}))

            assert value(await take()) == b"0"
            second, third = take(), take()
            await until(lambda: replica.key_turns.waiting == 2, "both wait")
            await log.append(b"k", b"1")
            assert value(await second) == b"1"
            assert not third.done()
            assert value(await ask(leader, "latest", {**body, "turn": "end"})) == b"1"
            assert value(await third) == b"1"

    asyncio.run(run())


def test_S2_S8_S9_S11_no_update_is_lost_while_leaders_die(three: testing.LocalCluster) -> None:
    told = Told("updated-while-leaders-die")
    with lognode.Client(three.servers, timeout=20) as client:
        client.create_log(told.log)

        async def main() -> None:
            loads = [
                asyncio.create_task(client_of(three.servers, number, 8, told))
                for number in range(4)
            ]
            for _ in range(3):
                await progress(told, 200)
                number = await asyncio.to_thread(testing.leader_of, client, told.log)
                node = three.nodes[number - 1]
                await asyncio.to_thread(node.kill)
                await progress(told, 200)
                await asyncio.to_thread(node.start)
                await asyncio.to_thread(node.wait_ready)
            told.over = True
            await asyncio.gather(*loads)

        asyncio.run(main())
    check(three.servers, told)
