"""What a seed of the whole mode adds to its test: the judges find what is wrong."""

import asyncio
import contextlib
import os
import random
import ssl
import subprocess
import sys
from collections.abc import Coroutine
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import pytest
from simulated_net import Net

import lognode
from lognode.chaos.whole import certificates
from lognode.chaos.whole.additions import Additions
from lognode.chaos.whole.credentials import Credentials
from lognode.chaos.whole.guests import Guests, _Guest
from lognode.chaos.whole.nodes import Machines
from lognode.chaos.whole.options import Choice
from lognode.chaos.whole.pages import Pages, _Asked
from lognode.chaos.whole.removed import BY_AGE, BY_BYTES, BY_KEY, COMPACT, Removed
from lognode.chaos.whole.run import run_seed
from lognode.chaos.whole.stage import stage
from lognode.chaos.whole.trace import Trace
from lognode.client.protocol.tls import dial_context, listen_context

HTTP_PORT = 4680


def test_each_addition_is_drawn_often_and_tls_in_a_fifth_of_the_seeds() -> None:
    seeds = range(150)
    drawn = [Additions.of(seed, Choice().plan(seed).nodes) for seed in seeds]
    for each in fields(Additions):
        assert sum(getattr(one, each.name) for one in drawn) >= 4, each.name
    assert all(one.tier for one in drawn if one.local)
    assert sum(one.tls for one in drawn) <= 0.25 * len(seeds)
    assert drawn == [Additions.of(seed, Choice().plan(seed).nodes) for seed in seeds]


def test_certificates_are_the_same_in_every_process() -> None:
    code = (
        "from lognode.chaos.whole import certificates as c; "
        "print(hash('') and [c.authority(), c.of_node(1), c.of_node(1, 2), c.of_client()])"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(runs) == 1
    assert certificates.of_node(1).key == certificates.of_node(1, 2).key
    lengths = {len(certificates.of_node(1, renewals).certificate) for renewals in range(20)}
    assert len(lengths) == 1


def _contexts(root: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a listening and of a dialling side."""
    given = Credentials(root, root, tokens=False, tls=True)
    given.flags(1)
    folder = root / "credentials"
    ca, cert, key = folder / "ca.crt", folder / "node1.crt", folder / "node1.key"
    listening = listen_context(ca, cert, key, ssl.CERT_REQUIRED)
    return listening, dial_context(ca, folder / "client.crt", folder / "client.key")


def test_tls_of_asyncio_runs_over_simulated_sockets(tmp_path: Path) -> None:
    listening, dialling = _contexts(tmp_path)
    lengths = set()
    for _ in range(2):
        net = Net(seed=5)
        net.loop.network.is_sealed = True

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"to " + await reader.readline())
            await writer.drain()
            writer.close()

        async def serve(loop: Any = net.loop) -> None:
            opened = loop.network.listen(("127.0.0.1", HTTP_PORT))

            def accept() -> None:
                accepted, _ = opened.accept()
                reader = asyncio.StreamReader()
                protocol = asyncio.StreamReaderProtocol(reader, answer)
                making = loop.connect_accepted_socket(lambda: protocol, accepted, ssl=listening)
                loop.create_task(making)

            loop.add_reader(opened.fileno(), accept)

        async def main(net: Net = net) -> None:
            await net.loop.spawn(net.server, serve())
            reader, writer = await asyncio.open_connection("127.0.0.1", HTTP_PORT, ssl=dialling)
            assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
            writer.write(b"x" * 40_000 + b"\n")
            assert await reader.read() == b"to " + b"x" * 40_000 + b"\n"
            writer.close()

        net.run(main)
        lengths.add(net.trace.digest())
    assert len(lengths) == 1, "the ciphertext of two runs differs, and its lengths do not"


def test_segments_are_merged_while_the_node_has_them_open() -> None:
    # LMDB opens a file once in a process: each merge failed, and replicas were given up.
    lines: list[str] = []
    plan = replace(Choice("append", ()).plan(3), nodes=3, time_limit_s=4.0, rate=10.0)
    outcome = run_seed(plan, lines.append, Additions(removal=True))
    assert outcome.verdict != "invalid", outcome.why
    assert any("segments merged" in line for line in lines)
    assert any("segments removed" in line for line in lines)
    assert not [line for line in lines if "failed" in line or " ERROR " in line]


class _World:
    """What the judges use of the machines."""

    credentials: Any = None
    hosts = servers = "127.0.0.1:1"
    numbers = (1,)


def _removed() -> Removed:
    return Removed(cast(Machines, _World()), random.Random(1))


@pytest.mark.parametrize(
    ("log", "acked", "left", "told"),
    [
        (BY_BYTES, {1: b"a", 2: b"b", 3: b"c"}, {2: b"b", 3: b"c"}, None),
        (BY_BYTES, {1: b"a", 2: b"b", 3: b"c"}, {1: b"a", 3: b"c"}, "entry 2 is gone"),
        (BY_BYTES, {1: b"a", 2: b"b"}, {1: b"a"}, "the newest entry 2 is gone"),
        (BY_BYTES, {1: b"a"}, {1: b"b"}, "entry 1 of k1 has another value"),
        (BY_AGE, {1: b"a", 2: b"b"}, {}, None),
        (COMPACT, {1: b"a", 2: b"b"}, {2: b"b"}, None),
        (COMPACT, {1: b"a", 2: b"b"}, {1: b"a"}, "the newest entry 2 of k1 is gone"),
        (BY_KEY, {1: b"a", 2: b"b", 3: b"c"}, {2: b"b", 3: b"c"}, None),
        (BY_KEY, {1: b"a", 2: b"b", 3: b"c"}, {2: b"b"}, r"entries \[3\] of k1 are gone"),
        (BY_KEY, {1: b"a", 2: b"b"}, {1: b"a", 2: b"b"}, r"removed entries \[1\] of k1 are there"),
    ],
)
def test_the_judge_of_removal(
    log: str, acked: dict[int, bytes], left: dict[int, bytes], told: str | None
) -> None:
    removed = _removed()
    removed._acked[log, "k1"].update(acked)
    removed._asked["k1"] = removed._gone["k1"] = 2
    removed._judge(log, {"k1": dict(left), "k2": {}, "k3": {}, "k4": {}})
    found = [each.message for each in removed.anomalies]
    if told is None:
        assert not found
    else:
        with pytest.raises(AssertionError, match=told):
            assert not found


def _in_a_run(main: Coroutine[Any, Any, None]) -> None:
    async def whole() -> None:
        await main

    Net().run(whole)


def test_a_guest_that_is_served_without_a_right_or_after_its_tokens_end_is_found() -> None:
    guests = Guests(cast(Machines, _World()), random.Random(1), clocks_are_right=True)

    async def served() -> None:
        """A request that a node serves."""

    async def refused() -> None:
        raise lognode.Unauthorized("no")

    async def main() -> None:
        guest = _Guest(cast(lognode.AsyncClient, None), "token", "read guests")
        await guests._judged(guest, served(), may=True, what="a read")
        await guests._judged(guest, refused(), may=False, what="an append")
        guest.ended_s = asyncio.get_running_loop().time()
        await guests._judged(guest, served(), may=True, what="a read within the lease")
        assert not guests.anomalies
        await asyncio.sleep(10.0)
        await guests._judged(guest, refused(), may=True, what="a read")
        assert not guests.anomalies
        await guests._judged(guest, served(), may=True, what="a read")
        await guests._judged(guest, served(), may=False, what="an append")

    _in_a_run(main())
    assert [each.name for each in guests.anomalies] == ["ended-token", "no-right"]


def test_a_page_with_a_wrong_status_is_found() -> None:
    pages = Pages(cast(Machines, _World()), random.Random(1))
    net = Net()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async def serve() -> None:
        opened = net.loop.network.listen(("127.0.0.1", HTTP_PORT))

        def accept() -> None:
            accepted, _ = opened.accept()
            protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(), answer)
            net.loop.create_task(net.loop.connect_accepted_socket(lambda: protocol, accepted))

        net.loop.add_reader(opened.fileno(), accept)

    class Machine:
        number = 1
        http = f"127.0.0.1:{HTTP_PORT}"

    class Given:
        context = None

    pages._machines.credentials = cast(Credentials, Given())

    async def main() -> None:
        await net.loop.spawn(net.server, serve())
        for codes in ((200,), (401,)):
            await pages._ask(cast(Any, Machine()), _Asked("/status.json", codes))

    net.run(main)
    assert pages.answers == 2
    assert [each.name for each in pages.anomalies] == ["wrong-page"]


def test_a_node_that_still_stops_when_its_fault_ends_is_up_again_before_the_judgement() -> None:
    """Seed 426: the node stopped for two seconds, and ended after all faults had ended."""
    with stage(1, 1, Trace(None)) as set_up:
        machine = set_up.machines[1]

        async def whole() -> None:
            await machine.start()
            await asyncio.sleep(1.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.0):
                    await machine.stop()
            before = machine.process
            assert machine.running
            await machine.start()
            await machine.restarted()
            assert machine.running
            assert machine.process is not before
            assert machine.starts == 2
            await machine.restarted()
            assert machine.starts == 2

        set_up.loop.run(whole())
