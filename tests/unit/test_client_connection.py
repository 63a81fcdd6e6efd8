"""Both sides of a connection against each other, on a real loopback socket."""

import asyncio
import gc
import socket
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from loose_operations import LOOSE, ONE_WAY, STREAM, by_number

from lognode.client import connection
from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.listener import Listener
from lognode.client.accepting.request import Request
from lognode.client.protocol import Operation, frame, frames, limits, wire
from lognode.client.protocol.errors import (
    LimitExceeded,
    LognodeError,
    LogNotFound,
    ProtocolError,
    Sealed,
    Timeout,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from lognode.client.protocol.wire import Hello, Welcome

Serve = Callable[[Request], Any]


class Server:
    """A handler that does what the test says and remembers what it saw."""

    def __init__(self, serve: Serve | None = None, *, cluster: str | None = "c1") -> None:
        self.serve = serve or (lambda request: {"echo": request.body})
        self.cluster = cluster
        self.believed: list[Hello] = []
        self.connections: list[ServerConnection] = []
        self.messages: list[tuple[Operation, dict[str, Any]]] = []
        self.refusals: list[LognodeError] = []
        self.closed_with: list[LognodeError] = []
        self.failures: list[Exception] = []
        self.changed = asyncio.Event()

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, cluster=self.cluster, node=7)

    def believe(self, connection: ServerConnection, hello: Hello) -> None:
        self.believed.append(hello)
        if hello.cluster not in (None, self.cluster):
            raise Unauthorized(f"this is cluster {self.cluster}, not {hello.cluster}")

    def opened(self, connection: ServerConnection) -> None:
        self.connections.append(connection)

    def request(self, request: Request) -> Any:
        return self.serve(request)

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        operation = by_number(number)
        if operation is None:
            raise Unsupported(f"no operation {number}")
        return operation

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        self.refusals.append(error)

    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None:
        self.messages.append((operation, body))
        self.changed.set()

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        self.closed_with.append(error)
        self.changed.set()

    def failed(self, number: int, error: Exception) -> None:
        self.failures.append(error)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for a condition that no event announces."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def run(
    test: Callable[[Listener, Server], Awaitable[None]],
    serve: Serve | None = None,
    *,
    secret: bytes | None = None,
) -> None:
    async def main() -> None:
        server = Server(serve)
        listener = await acceptor.serve(server, "127.0.0.1", 0, secret=secret)
        try:
            async with asyncio.timeout(20):
                await test(listener, server)
        finally:
            await listener.close()
        assert server.failures == []

    asyncio.run(main())


async def dial(listener: Listener, **options: Any) -> connection.Connection:
    return await connection.dial("127.0.0.1", listener.port, **options)


def test_a_request_that_was_refused_leaves_no_cycle_behind() -> None:
    """A thousand follows are, when a range is split: the collector is not to find them then."""
    served: list[weakref.ref[Request]] = []

    class Asked(Request):
        __slots__ = ("__weakref__",)

    async def serve(request: Request) -> None:
        served.append(weakref.ref(request))
        await asyncio.sleep(0)
        raise Sealed("the generation has ended; its successor serves the follow")

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        gc.disable()
        try:
            for _ in range(3):
                with pytest.raises(Sealed):
                    await link.request(LOOSE, {})
            await asyncio.sleep(0)
            assert len(served) == 3
            assert [request() for request in served[:2]] == [None, None]
        finally:
            gc.enable()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acceptor, "Request", Asked)
        run(test, serve)


def test_requests_are_answered_in_any_order_and_counted() -> None:
    gates: dict[int, asyncio.Event] = {}

    async def serve(request: Request) -> dict[str, Any]:
        n = request.body["n"]
        await gates.setdefault(n, asyncio.Event()).wait()
        return {"n": n}

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        assert (link.welcome.cluster, link.welcome.node) == ("c1", 7)
        first = asyncio.create_task(link.request(LOOSE, {"n": 1}))
        second = asyncio.create_task(link.request(LOOSE, {"n": 2}))
        gates[2] = asyncio.Event()
        gates[2].set()
        assert await second == {"n": 2}
        assert not first.done()
        assert link.in_flight == 1
        gates[1].set()
        assert await first == {"n": 1}
        assert link.in_flight == 0
        assert link.bytes_out == server.connections[0].bytes_in
        assert link.bytes_in == server.connections[0].bytes_out

    run(test, serve)


def test_errors_of_the_handler_are_answers() -> None:
    def serve(request: Request) -> dict[str, Any]:
        raise LogNotFound("no log 'x'", log="x")

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        with pytest.raises(LogNotFound) as caught:
            await link.request(LOOSE, {})
        assert caught.value.log == "x"
        assert caught.value.outcome == "not_applied"

    run(test, serve)


def test_S11_a_bug_in_a_handler_is_answered_as_unknown_and_reported() -> None:
    def serve(request: Request) -> dict[str, Any]:
        raise ZeroDivisionError

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        with pytest.raises(LognodeError) as caught:
            await link.request(LOOSE, {})
        assert caught.value.outcome == "unknown"
        assert [type(e) for e in server.failures] == [ZeroDivisionError]
        server.failures.clear()

    run(test, serve)


def test_an_answer_over_the_frame_limit_becomes_that_error() -> None:
    def serve(request: Request) -> dict[str, Any]:
        return {"page": bytes(limits.frame_bytes_max)}

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        with pytest.raises(LimitExceeded) as caught:
            await link.request(LOOSE, {})
        assert caught.value.outcome == "unknown", "S11: what was asked for was done"

    run(test, serve)


def test_an_error_over_the_frame_limit_is_cut() -> None:
    def serve(request: Request) -> dict[str, Any]:
        raise Sealed("too long " * limits.MIB, outcome="unknown", ranges=[1])

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        with pytest.raises(Sealed, match=r"^too long .*\.\.\.$") as caught:
            await asyncio.wait_for(link.request(LOOSE, {}), 10)
        assert caught.value.outcome == "unknown"

    run(test, serve)


def test_a_deadline_and_a_cancellation_cancel_the_other_side_too() -> None:
    started: list[int] = []
    cancelled: list[int] = []

    async def serve(request: Request) -> dict[str, Any]:
        started.append(request.body["n"])
        if request.body["n"] == 0:
            return {}
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(request.body["n"])
            raise
        return {}

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        with pytest.raises(Timeout) as caught:
            await link.request(LOOSE, {"n": 1}, deadline=asyncio.get_running_loop().time() + 0.05)
        assert caught.value.outcome == "unknown"
        task = asyncio.create_task(link.request(LOOSE, {"n": 2}))
        await eventually(lambda: started == [1, 2])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await link.request(LOOSE, {"n": 0}) == {}  # the connection is as good as before
        await eventually(lambda: cancelled == [1, 2])
        assert server.connections[0].in_flight == 0

    run(test, serve)


def test_S11_requests_in_flight_when_the_connection_ends_are_unknown() -> None:
    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        task = asyncio.create_task(link.request(LOOSE, {}))
        await eventually(lambda: server.connections[0].in_flight > 0)
        server.connections[0].abort(Unavailable("test"))
        with pytest.raises(Unavailable) as caught:
            await task
        assert caught.value.outcome == "unknown"
        with pytest.raises(Unavailable) as caught:
            await link.request(LOOSE, {})
        assert caught.value.outcome == "not_applied"  # it never left

    run(test, lambda request: None)


def test_streams_push_within_credit_and_end() -> None:
    pushed: list[int] = []

    async def serve(request: Request) -> None:
        for n in range(100):
            await request.wait_credit()
            request.push({"n": n, "data": bytes(1000)})
            pushed.append(n)
        request.end({"total": 100})

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        stream = await link.stream(STREAM, {}, credit_bytes=4000)
        first = await anext(stream)
        assert first["n"] == 0
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(pushed) <= 6  # a reader that stops stops the writer
        assert [body["n"] async for body in stream] == list(range(1, 100))
        assert stream.end == {"total": 100}
        assert link.in_flight == 0

    run(test, serve)


def test_cancelling_a_stream_ends_it_on_both_sides() -> None:
    gone = asyncio.Event()

    def serve(request: Request) -> None:
        request.push({"n": 1})
        request.on_cancel = gone.set

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        stream = await link.stream(STREAM, {}, credit_bytes=4000)
        assert await anext(stream) == {"n": 1}
        stream.cancel()
        await asyncio.wait_for(gone.wait(), 5)
        assert [body async for body in stream] == []

    run(test, serve)


def test_one_way_messages_arrive_in_order() -> None:
    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener, role="node", node=3)
        for n in range(1000):
            link.send(ONE_WAY, {"n": n})
        await server.until(lambda: len(server.messages) == 1000)
        assert [body["n"] for _, body in server.messages] == list(range(1000))

    run(test)


def test_requests_over_the_bound_wait_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "alive_every_s", 0.01)
    most = 0
    waiting: list[Request] = []

    def serve(request: Request) -> None:
        nonlocal most
        waiting.append(request)
        most = max(most, request.connection.in_flight)

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        monkeypatch.setattr(limits, "requests_in_flight_max", 8)
        server_side = server.connections[0]
        monkeypatch.setattr(link, "_has_room", lambda: True)  # an asker that knows no bound
        tasks = [asyncio.create_task(link.request(LOOSE, {"n": n})) for n in range(100)]
        for _ in tasks:
            await eventually(lambda: bool(waiting))
            assert server_side.in_flight <= 8
            waiting.pop(0).reply({})
        assert await asyncio.gather(*tasks) == [{}] * 100
        assert most == 8

    run(test, serve)


def test_the_asker_waits_for_room_with_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "requests_in_flight_max", 1)
    waiting: list[Request] = []

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        first = asyncio.create_task(link.request(LOOSE, {}))
        await asyncio.sleep(0)
        with pytest.raises(Timeout) as caught:
            await link.request(LOOSE, {}, deadline=asyncio.get_running_loop().time() + 0.02)
        assert caught.value.outcome == "not_applied"
        second = asyncio.create_task(link.request(LOOSE, {}))
        await eventually(lambda: bool(waiting))
        waiting.pop().reply({"n": 1})
        assert await first == {"n": 1}
        await eventually(lambda: bool(waiting))
        waiting.pop().reply({"n": 2})
        assert await second == {"n": 2}

    run(test, waiting.append)


def test_L1_a_silent_machine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ping_after_s", 0.05)
    monkeypatch.setattr(connection, "dead_after_s", 0.15)

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        task = asyncio.create_task(link.request(LOOSE, {}))
        await asyncio.sleep(0.5)
        assert not task.done()  # slow, but it answers pings
        server.connections[0]._transport.read_on(False)
        with pytest.raises(Unavailable) as caught:
            await asyncio.wait_for(task, 5)
        assert "sent nothing for the allowed time" in str(caught.value)

    run(test, lambda request: None)


def test_bad_bytes_close_the_connection_with_an_error_frame_and_hurt_nobody_else() -> None:
    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        for bad in (b"\0\1" * 50, b"\xff" * 100, frame.encode(1, LOOSE.number, {})):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(bad)
            answer = frame.Decoder().feed(await reader.read())[0]
            assert isinstance(answer, frame.Frame)
            assert answer.kind == frames.ERROR
            writer.close()
            await writer.wait_closed()
        assert await link.request(LOOSE, {"n": 1}) == {"echo": {"n": 1}}

    run(test)


def test_L4_a_connection_accepted_during_the_close_is_closed_too() -> None:
    """It was left open until somebody collected garbage."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        listener = await acceptor.serve(Server(), "127.0.0.1", 0)
        accepted = listener.accept()
        await listener.close()
        with socket.create_server(("127.0.0.1", 0)) as door:
            theirs = socket.create_connection(door.getsockname())
            ours, _ = door.accept()
        with theirs:
            theirs.setblocking(False)
            await loop.create_connection(lambda: accepted, sock=ours)
            async with asyncio.timeout(5):
                assert await loop.sock_recv(theirs, 1) == b""
        assert listener.connections == 0

    asyncio.run(main())


def test_nodes_prove_the_secret_both_ways() -> None:
    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener, role="node", node=3, cluster="c1", secret=b"s3cret")
        assert await link.request(LOOSE, {}) == {"echo": {}}
        for secret in (b"other", None):
            with pytest.raises(Unauthorized):
                await dial(listener, role="node", cluster="c2", secret=secret)
        await (await dial(listener)).request(LOOSE, {})  # clients need none
        assert len(server.connections) == 2
        # Who has proved nothing is refused, and is told nothing of what would be believed.
        assert [hello.cluster for hello in server.believed] == ["c1", None]
        with pytest.raises(Unauthorized, match="this is cluster c1, not c2"):
            await dial(listener, role="node", node=3, cluster="c2", secret=b"s3cret")
        assert [hello.cluster for hello in server.believed] == ["c1", None, "c2"]

    run(test, secret=b"s3cret")


def test_a_dialler_with_a_secret_refuses_a_node_without() -> None:
    async def test(listener: Listener, server: Server) -> None:
        with pytest.raises(Unauthorized) as caught:
            await dial(listener, role="node", node=3, secret=b"s3cret")
        assert "--secret-file" in str(caught.value)

    run(test)


def test_a_proof_can_be_neither_reflected_nor_replayed() -> None:
    hello = Hello(role="node", nonce=b"a" * 32, cluster="c", node=1)
    welcome = Welcome(nonce=b"b" * 32, cluster="c", node=2)
    proof = wire.prove(b"s", "acceptor", hello, welcome)
    wire.check_proof(b"s", "acceptor", hello, welcome, proof)
    for side, other in (
        ("dialler", welcome),
        ("acceptor", Welcome(nonce=b"c" * 32, cluster="c", node=2)),
        ("acceptor", Welcome(nonce=b"b" * 32, cluster="c", node=3)),
    ):
        with pytest.raises(Unauthorized):
            wire.check_proof(b"s", side, hello, other, proof)  # type: ignore[arg-type]


def test_x24_another_cluster_is_refused_by_either_side() -> None:
    async def test(listener: Listener, server: Server) -> None:
        with pytest.raises(Unauthorized):
            await dial(listener, cluster="c2")
        server.welcome = lambda hello, nonce: Welcome(nonce=nonce, cluster="c1")  # type: ignore[method-assign]
        with pytest.raises(Unauthorized):
            await dial(listener, cluster="c2")

    run(test)


def test_versions_that_do_not_meet_say_so() -> None:
    hello = Hello(role="client", nonce=bytes(32), version_min=5, version_max=9)
    with pytest.raises(Unsupported) as caught:
        Hello.from_body(hello.to_body()).agreed_version()
    assert "5 to 9" in str(caught.value)


def test_nobody_at_the_address_is_unavailable() -> None:
    async def test(listener: Listener, server: Server) -> None:
        port = listener.port
        await listener.close()
        with pytest.raises(Unavailable) as caught:
            await connection.dial("127.0.0.1", port)
        assert f"127.0.0.1:{port}" in str(caught.value)

    run(test)


def test_a_listener_that_says_nothing_times_out() -> None:
    async def main() -> None:
        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)

        writers: list[asyncio.StreamWriter] = []
        hung = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = hung.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="the node did not answer within"):
            await connection.dial("127.0.0.1", port, timeout_s=0.05)
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        hung.close()

    asyncio.run(main())


def test_a_caller_of_another_protocol_gets_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        Hello.from_body({"magic": "kafka"})


def test_L4_close_returns_with_requests_in_flight() -> None:
    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        task = asyncio.create_task(link.request(LOOSE, {}))
        await asyncio.sleep(0)
        link.close()
        await link.wait_closed()
        with pytest.raises(Unavailable):
            await task
        await server.until(lambda: bool(server.closed_with))

    run(test, lambda request: None)


def test_a_handler_knows_whether_frames_came_together() -> None:
    """Messages of a node that came together share one end of a turn."""
    more: list[bool] = []

    def serve(request: Request) -> dict[str, Any]:
        more.append(request.connection.has_more)
        return {}

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        for count in (1, 3):
            more.clear()
            await asyncio.gather(*(link.request(LOOSE, {}) for _ in range(count)))
            assert more == [True] * (count - 1) + [False]
        link.close()

    run(test, serve)


def test_the_answer_to_the_only_request_leaves_at_once() -> None:
    left: list[bool] = []
    waiting: list[asyncio.Future[None]] = []

    async def serve(request: Request) -> None:
        waiting.append(asyncio.get_running_loop().create_future())
        await waiting[-1]
        request.reply({})
        left.append(request.connection.queued_bytes == 0)

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        for count in (1, 3):
            left.clear()
            waiting.clear()
            asked = [asyncio.ensure_future(link.request(LOOSE, {})) for _ in range(count)]
            await eventually(lambda count=count: len(waiting) == count)  # type: ignore[misc]
            for each in waiting:
                each.set_result(None)
            await asyncio.gather(*asked)
            assert left == [False] * (count - 1) + [True], "several answers share a write"
        link.close()

    run(test, serve)
