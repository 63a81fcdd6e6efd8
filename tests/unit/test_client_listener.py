"""A listener's bounds, on real loopback sockets: the door, the seats, idleness, slow senders."""

import asyncio
import random
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from loose_operations import LOOSE, by_number

from lognode.client import transport
from lognode.client.accepting import acceptor, server_handshake
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.listener import Listener
from lognode.client.accepting.request import Request
from lognode.client.accepting.seats import Bounds
from lognode.client.connection import Connection, dial
from lognode.client.pool import Pool
from lognode.client.protocol import Operation, frames, limits
from lognode.client.protocol.address import Address
from lognode.client.protocol.errors import LognodeError, Overloaded, Unavailable
from lognode.client.protocol.frame import HEADER, Decoder, Frame, encode
from lognode.client.protocol.wire import Hello, Welcome

BODY = {"n": 1}


@dataclass
class Rig:
    """A listener whose handler answers at once, or when `gate` is set."""

    listener: Listener
    told: list[str]
    gate: asyncio.Event
    served: list[str]
    raw: list[socket.socket] = field(default_factory=list)

    async def dial(self) -> Connection:
        return await dial("127.0.0.1", self.listener.port)

    async def connect(self, host: str = "127.0.0.1") -> socket.socket:
        """A socket that has said nothing."""
        opened = socket.socket()
        opened.setblocking(False)
        opened.bind((host, 0))
        self.raw.append(opened)
        await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", self.listener.port))
        return opened

    async def greet(self, host: str = "127.0.0.1") -> socket.socket:
        """One that has shaken hands."""
        opened = await self.connect(host)
        await say(opened, HELLO)
        assert (await heard(opened)).kind == frames.WELCOME
        return opened


HELLO = encode(0, frames.HELLO, Hello(role="client", nonce=random.randbytes(32)).to_body())


async def say(opened: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(opened, data)


async def heard(opened: socket.socket) -> Frame:
    """The next frame. Raises EOFError at the end of the connection."""
    decoder = Decoder()
    async with asyncio.timeout(10):
        while True:
            data = await asyncio.get_running_loop().sock_recv(opened, 1 << 16)
            if not data:
                raise EOFError
            for frame in decoder.feed(data):
                assert isinstance(frame, Frame)
                return frame


async def ends(opened: socket.socket) -> None:
    """Return when the other side has closed it."""
    async with asyncio.timeout(10):
        try:
            while await asyncio.get_running_loop().sock_recv(opened, 1 << 16):
                pass
        except ConnectionResetError:
            return


@asynccontextmanager
async def rig(bounds: Bounds) -> AsyncIterator[Rig]:
    gate, served, told = asyncio.Event(), list[str](), list[str]()
    gate.set()

    class Handler:
        def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
            return Welcome(nonce=nonce, cluster="c", node=1)

        def believe(self, connection: ServerConnection, hello: Hello) -> None: ...

        def operation(self, connection: ServerConnection, number: int) -> Operation:
            found = by_number(number)
            assert found is not None
            return found

        def opened(self, connection: ServerConnection) -> None: ...

        async def request(self, request: Request) -> dict[str, Any]:
            served.append(request.operation.name)
            await gate.wait()
            return {}

        def message(
            self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
        ) -> None: ...

        def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
            raise AssertionError(error)

        def closed(self, connection: ServerConnection, error: LognodeError) -> None: ...

        def failed(self, number: int, error: Exception) -> None:
            raise AssertionError(number)

    serving = await acceptor.serve(
        Handler(), "127.0.0.1", 0, bounds=bounds, on_closed=lambda reason, _: told.append(reason)
    )
    made = Rig(serving, told, gate, served)
    try:
        async with asyncio.timeout(30):
            yield made
    finally:
        gate.set()
        for opened in made.raw:
            opened.close()
        await serving.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that no event announces."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def run(bounds: Bounds, test: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        async with rig(bounds) as made:
            await test(made)

    asyncio.run(main())


def test_connections_over_the_limit_are_told() -> None:
    async def test(made: Rig) -> None:
        first = await made.dial()
        with pytest.raises(Overloaded, match="1 connections, the limit of the node"):
            await made.dial()
        assert made.told == ["full"]
        assert await first.request(LOOSE, BODY) == {}
        first.close()
        await until(lambda: made.listener.connections == 0)
        await made.dial()

    run(Bounds(connections=1), test)


def test_small_frames_leave_at_once_on_both_sides() -> None:
    """Nagle's algorithm held answers back for 40 ms, or until the next request came."""

    async def test(made: Rig) -> None:
        opened: list[socket.socket] = []
        tune = transport._tune

        def tuned(sock: socket.socket) -> None:
            tune(sock)
            opened.append(sock)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(transport, "_tune", tuned)
            await made.dial()
        assert len(opened) == 2
        for sock in opened:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(Bounds(), test)


def test_silent_connections_keep_nobody_from_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 of them hold the places of four, and the newest comes first."""
    monkeypatch.setattr(server_handshake, "handshake_timeout_s", 600.0)  # none ends as too late

    async def test(made: Rig) -> None:
        silent = [await made.connect() for _ in range(200)]
        link = await made.dial()
        assert await link.request(LOOSE, BODY) == {}
        for opened in silent[:190]:
            await ends(opened)
        assert made.listener.entrance.sockets <= 4 + 2 + 8
        assert made.listener.connections <= 4 + 2
        assert set(made.told) == {"door"}

    run(Bounds(connections=2, handshakes=4), test)


@pytest.mark.parametrize("said", [b"", HELLO[:20]], ids=["nothing", "half a hello"])
def test_a_handshake_has_to_end_in_time(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_handshake, "handshake_timeout_s", 0.2)

    async def test(made: Rig) -> None:
        opened = await made.connect()
        await say(opened, said)
        frame = await heard(opened)
        assert "the handshake took over 0.2 s" in frame.body["message"]
        await until(lambda: made.listener.connections == 0)
        assert made.told == ["late"]

    run(Bounds(), test)


def test_a_handshake_a_byte_at_a_time_has_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_handshake, "handshake_timeout_s", 0.3)

    async def test(made: Rig) -> None:
        opened = await made.connect()

        async def drip() -> None:
            for byte in HELLO:
                await say(opened, bytes([byte]))
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert "the handshake took over" in (await heard(opened)).body["message"]
        dripping.cancel()

    run(Bounds(), test)


def test_an_idle_client_dials_again_at_its_next_call_and_shows_no_error() -> None:
    async def test(made: Rig) -> None:
        pool = Pool()
        address = Address("127.0.0.1", made.listener.port)
        loop = asyncio.get_running_loop()
        first = await pool.get(address, loop.time() + 5)
        await until(lambda: first.lost is not None)
        assert first.lost is not None
        assert first.lost.fields["reason"] == "idle"
        again = await pool.get(address, loop.time() + 5)
        assert again is not first
        assert await again.request(LOOSE, BODY) == {}
        assert not pool.is_suspect(address)
        assert made.told == ["idle"]
        await pool.close()

    run(Bounds(idle_s=0.2), test)


def test_a_client_that_waits_for_an_answer_is_not_idle() -> None:
    async def test(made: Rig) -> None:
        made.gate.clear()
        waits, idle = await made.dial(), await made.dial()
        asked = asyncio.create_task(waits.request(LOOSE, BODY))
        await until(lambda: idle.lost is not None)
        await asyncio.sleep(0.3)
        assert waits.lost is None
        made.gate.set()
        assert await asked == {}
        await until(lambda: waits.lost is not None)

    run(Bounds(idle_s=0.2), test)


def test_S11_a_request_sent_while_an_idle_connection_closes_was_not_applied() -> None:
    async def test(made: Rig) -> None:
        link = await made.dial()
        (accepted,) = made.listener._seats.guests
        # The request leaves in the turn in which the acceptor ends the connection.
        asked = asyncio.create_task(link.request(LOOSE, BODY))
        await asyncio.sleep(0)
        accepted.refuse(Unavailable("no request", reason="idle"))
        with pytest.raises(Unavailable) as caught:
            await asked
        assert caught.value.outcome == "not_applied"
        assert made.served == []

    run(Bounds(idle_s=60.0), test)


def test_S11_a_request_sent_while_any_other_connection_ends_may_have_been_applied() -> None:
    async def test(made: Rig) -> None:
        link = await made.dial()
        (accepted,) = made.listener._seats.guests
        asked = asyncio.create_task(link.request(LOOSE, BODY))
        await asyncio.sleep(0)
        accepted.refuse(Unavailable("this node stops", reason="stopping"))
        with pytest.raises(Unavailable) as caught:
            await asked
        assert caught.value.outcome == "unknown"

    run(Bounds(idle_s=60.0), test)


def test_idle_clients_lock_nobody_out() -> None:
    """Each new client takes the place of an idle one, until all are busy."""

    async def test(made: Rig) -> None:
        idle = [await made.greet() for _ in range(8)]
        links = [await made.dial() for _ in range(8)]
        for opened in idle:
            await ends(opened)
        assert made.told == ["displaced"] * 8
        made.gate.clear()
        asked = [asyncio.create_task(link.request(LOOSE, BODY)) for link in links]
        await until(lambda: len(made.served) == 8)
        with pytest.raises(Overloaded):
            await made.dial()
        made.gate.set()
        assert await asyncio.gather(*asked) == [{}] * 8

    run(Bounds(connections=8, host_share=1.0, idle_s=60.0), test)


def test_a_host_that_is_busy_everywhere_leaves_room_for_another() -> None:
    async def test(made: Rig) -> None:
        made.gate.clear()
        links = [await made.dial() for _ in range(14)]
        asked = [asyncio.create_task(link.request(LOOSE, BODY)) for link in links]
        await until(lambda: len(made.served) == 14)
        with pytest.raises(Overloaded, match="14 connections from 127"):
            await made.dial()
        await made.greet("127.0.0.2")
        made.gate.set()
        await asyncio.gather(*asked)

    run(Bounds(connections=16, idle_s=60.0), test)


def test_a_frame_that_hardly_grows_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "frame_window_s", 0.2)

    async def test(made: Rig) -> None:
        slow, steady = await made.greet(), await made.dial()
        await say(slow, HEADER.pack(1 << 20, 0))

        async def drip() -> None:
            while True:
                await say(slow, b"x")
                await asyncio.sleep(0.02)

        async def appends() -> None:
            while True:
                await steady.request(LOOSE, {"value": bytes(100_000)})

        tasks = [asyncio.create_task(each()) for each in (drip, appends)]
        frame = await heard(slow)
        assert frame.kind == frames.ERROR
        assert "its bytes arrived at less than 16384 a second" in frame.body["message"]
        assert made.told == ["slow"]
        assert steady.lost is None
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert made.listener.incomplete.size < 1 << 18

    run(Bounds(frame_bytes_per_s=16_384), test)


def test_a_large_frame_that_comes_steadily_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "frame_window_s", 0.1)

    async def test(made: Rig) -> None:
        opened = await made.greet()
        data = encode(1, LOOSE.number, {"value": bytes(100_000)})
        for at in range(0, len(data), 4_000):
            await say(opened, data[at : at + 4_000])
            await asyncio.sleep(0.03)
        assert (await heard(opened)).kind == frames.OK
        assert made.told == []

    run(Bounds(frame_bytes_per_s=16_384), test)


def test_incomplete_frames_take_bounded_memory() -> None:
    """The oldest gives way: whose frames come whole hardly notice."""

    async def test(made: Rig) -> None:
        held = []
        for _ in range(10):
            opened = await made.greet()
            await say(opened, HEADER.pack(1 << 20, 0) + bytes(100_000))
            held.append(opened)
            await until(lambda: made.listener.incomplete.size in (100_008, 200_016, 300_024))
        link = await made.dial()
        assert await link.request(LOOSE, {"value": bytes(200_000)}) == {}
        for opened in held[:7]:
            assert "the node holds too many large frames" in (await heard(opened)).body["message"]
        assert made.listener.incomplete.size <= 350_000
        assert set(made.told) == {"crowded"}

    run(Bounds(incomplete_bytes=350_000), test)


def test_a_client_that_does_not_read_its_refusal_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would hold a descriptor for as long as it likes."""
    monkeypatch.setattr(transport, "linger_s", 0.2)

    async def test(made: Rig) -> None:
        await made.greet()
        (accepted,) = made.listener._seats.guests
        for _ in range(40):
            accepted.send(0, frames.ALIVE, {"filler": bytes(1 << 20)})
        accepted.refuse(Unavailable("no request", reason="idle"))
        await until(lambda: made.listener.entrance.sockets == 0)

    run(Bounds(), test)


OUT_OF_DESCRIPTORS = """
import asyncio, os, socket, sys
from lognode.client.accepting.listening import Entrance

async def main():
    lacks, made = [], []

    class Quiet(asyncio.Protocol):
        def connection_made(self, transport):
            made.append(transport)

        def connection_lost(self, exc):
            entrance.gone(self)

    entrance = Entrance(Quiet, sockets_max=1000, on_lack=lacks.append)
    await entrance.listen("127.0.0.1", 0)
    clients = [socket.socket() for _ in range(5)]
    hoard = []
    try:
        while True:
            hoard.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    os.close(hoard.pop())
    os.close(hoard.pop())
    for client in clients:
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", entrance.port))
    turns = 0
    loop = asyncio.get_running_loop()
    until = loop.time() + 0.5
    while loop.time() < until:
        turns += 1
        await asyncio.sleep(0.01)
    print(len(made), len(lacks), lacks[0].errno, turns < 100)
    for fd in hoard:
        os.close(fd)
    while len(made) < 5:
        await asyncio.sleep(0.01)
    print(len(made))
    await entrance.close()
    for transport in made:
        transport.abort()
    await asyncio.sleep(0)

asyncio.run(asyncio.wait_for(main(), 20))
"""


def test_without_descriptors_the_entrance_rests_and_goes_on_by_itself() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))" + OUT_OF_DESCRIPTORS
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 64
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    # Two were accepted; of the other three one look found that there is no descriptor.
    assert done.stdout.splitlines() == ["2 1 24 True", "5"]
