"""Links over both servers: every cut in its direction, healing under traffic, lost servers."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from fault_proxies import Streams, Upstream, ask, dial, echo, ends, hang, program, silent, upstream

from lognode.chaos.links import CLIENTS, How, Links, Pair, new_links
from lognode.chaos.proxyserver import Program
from lognode.chaos.toxiproxy import ToxiproxyError
from lognode.client.protocol.errors import InvalidArgument, Unavailable

pytestmark = pytest.mark.cluster
TIMEOUT_S = 2.0


@pytest.fixture(params=["embedded", "toxiproxy"])
def server(request: pytest.FixtureRequest) -> Program:
    found: Program = program(request.param)
    return found


@dataclass
class Wired:
    """Two nodes that echo, or do nothing, and links."""

    links: Links
    nodes: list[Upstream]
    opened: list[Streams]

    async def connect(self, pair: Pair) -> Streams:
        streams = await dial(self.links.address(pair))
        self.opened.append(streams)
        return streams


@contextlib.asynccontextmanager
async def wired(server: Program, *, answering: bool = True) -> AsyncIterator[Wired]:
    serve = echo if answering else None
    links = Links(server, timeout_s=TIMEOUT_S)
    async with upstream(serve) as one, upstream(serve) as two:
        made = Wired(links, [one, two], [])
        try:
            await links.start({1: one.address, 2: two.address})
            yield made
        finally:
            await links.close()
            for _, writer in made.opened:
                writer.transport.abort()


def run(server: Program, body: Callable[[Wired], Awaitable[None]], answering: bool = True) -> None:
    async def all_of_it() -> None:
        async with wired(server, answering=answering) as made:
            await body(made)

    asyncio.run(all_of_it())


def test_one_link_for_each_ordered_pair_and_one_per_node_for_clients(server: Program) -> None:
    async def body(made: Wired) -> None:
        links = made.links
        assert sorted(links.pairs) == [(CLIENTS, 1), (CLIENTS, 2), (1, 2), (2, 1)]
        assert len({links.address(pair) for pair in links.pairs}) == 4
        for pair in links.pairs:
            before = len(made.nodes[pair[1] - 1].accepted)
            assert await ask(await made.connect(pair)) < 1
            assert len(made.nodes[pair[1] - 1].accepted) == before + 1
        with pytest.raises(
            InvalidArgument, match=r"\(1, 3\) does not exist; the pairs are \[\(0, 1\), "
        ):
            links.address((1, 3))
        with pytest.raises(InvalidArgument, match=r"\(1, 1\) does not exist"):
            await links.cut([(1, 1)], "drop")
        with pytest.raises(
            InvalidArgument, match="the cut 'bend' does not exist; the cuts are refuse, drop, req"
        ):
            await links.cut([(1, 2)], "bend")  # type: ignore[arg-type]

    run(server, body)


def test_refused_is_another_fault_than_dropped(server: Program) -> None:
    async def body(made: Wired) -> None:
        refused, dropped, other = [
            await made.connect(pair) for pair in ((1, 2), (2, 1), (CLIENTS, 2))
        ]
        for streams in (refused, dropped, other):
            await ask(streams)
        await made.links.cut([(1, 2)], "refuse")
        assert await ends(refused) == b""
        with pytest.raises(ConnectionRefusedError):
            await made.connect((1, 2))
        await made.links.cut([(2, 1)], "drop")
        assert await silent(dropped)
        assert await silent(await made.connect((2, 1))), "a new connection is accepted, and lost"
        assert await ask(other) < 1, "a link that nobody cut"
        await made.links.heal()
        assert await ends(dropped) == b"", "bytes were lost in it"
        assert await ask(other) < 1, "a link that is whole keeps its connections"
        for pair in made.links.pairs:
            assert await ask(await made.connect(pair)) < 1

    run(server, body)


@pytest.mark.parametrize("how", ["requests", "answers"])
def test_one_way_cuts(server: Program, how: How) -> None:
    async def body(made: Wired) -> None:
        client = await made.connect((1, 2))
        client[1].write(b"begin")
        behind = await made.nodes[1].newest()
        assert await behind[0].readexactly(5) == b"begin"
        await made.links.cut([(1, 2)], how)
        lost, kept = ((client[1], behind[0]), (behind[1], client[0]))
        if how == "answers":
            lost, kept = kept, lost
        kept[0].write(b"kept")
        assert await kept[1].readexactly(4) == b"kept"
        assert await silent((lost[1], lost[0]))
        await made.links.cut([(1, 2)], "drop")
        assert await silent((kept[1], kept[0])), "the other direction is cut as well now"

    run(server, body, answering=False)


def test_cuts_and_toxics_of_one_link_are_healed_together(server: Program) -> None:
    async def body(made: Wired) -> None:
        links = made.links
        await links.toxic([(1, 2)], "latency", stream="upstream", latency=500)
        await links.toxic([(1, 2)], "latency", latency=500)
        assert 0.99 < await ask(await made.connect((1, 2))) < 3
        await links.toxic([(1, 2)], "latency", latency=0)
        assert 0.49 < await ask(await made.connect((1, 2))) < 0.99, "it replaces the first"
        await links.cut([(1, 2), (2, 1)], "refuse")
        await links.heal([(1, 2)])
        assert await ask(await made.connect((1, 2))) < 0.49
        with pytest.raises(ConnectionRefusedError):
            await made.connect((2, 1))
        with pytest.raises(ToxiproxyError, match="invalid toxic type"):
            await links.toxic([(1, 2)], "rain")
        assert await ask(await made.connect((1, 2))) < 0.49
        os.kill(links.server.pid, signal.SIGKILL)
        await links.cut([(1, 2)], "refuse")
        assert links.server.restarts == 1, "the toxic that was refused is not tried again"

    run(server, body)


def test_heals_again_and_again_under_traffic(server: Program) -> None:
    """Where the real server may hang: toxics that are taken away while bytes flow (#558)."""

    async def body(made: Wired) -> None:
        over = asyncio.Event()
        words = os.urandom(200_000)

        async def talk(pair: Pair) -> int:
            rounds = 0
            while not over.is_set():
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    streams = await made.connect(pair)
                    while not over.is_set():
                        streams[1].write(words)
                        async with asyncio.timeout(10):
                            await streams[0].readexactly(len(words))
                        rounds += 1
                await asyncio.sleep(0.01)
            return rounds

        talking = [asyncio.create_task(talk(pair)) for pair in made.links.pairs for _ in "ab"]
        hows: tuple[How, ...] = ("drop", "requests", "answers", "refuse")
        for how in hows * 3:
            await made.links.toxic(made.links.pairs, "latency", stream="upstream", latency=20)
            await made.links.toxic(made.links.pairs, "bandwidth", rate=500)
            await made.links.cut(made.links.pairs, how)
            await made.links.heal()
        for pair in made.links.pairs:
            assert await ask(await made.connect(pair)) < 2
        over.set()
        async with asyncio.timeout(30):
            await asyncio.gather(*talking)

    run(server, body)


def test_a_server_that_hangs_is_replaced_with_all_faults_kept(server: Program) -> None:
    async def body(made: Wired) -> None:
        links = made.links
        await links.cut([(1, 2)], "requests")
        await links.cut([(2, 1)], "refuse")
        await hang(links.server.pid)
        await links.cut([(CLIENTS, 2)], "drop")
        assert links.server.restarts == 1
        assert await silent(await made.connect((1, 2)))
        assert await silent(await made.connect((CLIENTS, 2)))
        with pytest.raises(ConnectionRefusedError):
            await made.connect((2, 1))
        assert await ask(await made.connect((CLIENTS, 1))) < 1
        await hang(links.server.pid)
        await links.heal()
        assert links.server.restarts == 2
        for pair in links.pairs:
            assert await ask(await made.connect(pair)) < 1

    run(server, body)


def test_a_server_that_died_is_found_by_heal(server: Program) -> None:
    async def body(made: Wired) -> None:
        os.kill(made.links.server.pid, signal.SIGKILL)
        await made.links.heal()
        assert made.links.server.restarts == 1
        assert await ask(await made.connect((1, 2))) < 1

    run(server, body)


def test_changes_at_the_same_time(server: Program) -> None:
    async def body(made: Wired) -> None:
        links = made.links
        hows: tuple[How, ...] = ("drop", "requests", "answers", "refuse")
        await asyncio.gather(
            *(links.cut([pair], how) for pair in links.pairs for how in hows),
            *(links.toxic(links.pairs, "latency", latency=n) for n in range(10)),
            *(links.heal([pair]) for pair in links.pairs),
        )
        await links.heal()
        for pair in links.pairs:
            assert await ask(await made.connect(pair)) < 1
        assert links.server.restarts == 0

    run(server, body)


def test_links_are_described_and_closed_for_good(tmp_path: Path) -> None:
    async def body() -> None:
        links = new_links("embedded", log_path=tmp_path / "proxy.log")
        assert links.description == "embedded"
        await links.start({1: "127.0.0.1:9"})
        await links.close()
        await links.close()
        with pytest.raises(ConnectionRefusedError):
            await dial(links.address((CLIENTS, 1)))
        with pytest.raises(Unavailable):
            _ = links.server.api

    asyncio.run(body())
    assert "proxies are made at" in (tmp_path / "proxy.log").read_text()


def test_a_side_door_has_the_faults_of_the_way_of_clients(server: Program) -> None:
    """And is there again after the server is lost."""

    async def body(made: Wired) -> None:
        async with upstream(echo) as kafka:
            await made.links.close()
            await made.links.start(
                {1: made.nodes[0].address, 2: made.nodes[1].address}, side_doors={2: kafka.address}
            )

            async def opened() -> Streams:
                made.opened.append(await dial(made.links.side_door(2)))
                return made.opened[-1]

            streams = await opened()
            assert await ask(streams) < 1
            assert len(kafka.accepted) == 1
            await made.links.cut([(CLIENTS, 1)], "refuse")
            assert await ask(streams) < 1
            await made.links.cut([(CLIENTS, 2)], "drop")
            assert await silent(streams)
            await made.links.heal()
            assert await ask(await opened()) < 1
            os.kill(made.links.server.pid, signal.SIGKILL)
            await made.links.heal()
            assert await ask(await opened()) < 1

    run(server, body)
