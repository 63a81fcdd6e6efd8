"""What leaves for a peer in one turn goes in frames that the peer takes in a turn each."""

import asyncio
import random
from typing import Any

import pytest

from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.request import Request
from lognode.client.protocol import Operation
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.peers import RAFT
from lognode.client.protocol.wire import Hello, Welcome
from lognode.node.links.peers import PeerLinks
from lognode.node.metrics import Metrics
from lognode.raft import messages
from lognode.raft.messages import Ack, Append
from lognode.raft.types import GroupId


class Peer:
    """Keeps the frames that arrive."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, cluster="c", node=2)

    def believe(self, connection: ServerConnection, hello: Hello) -> None: ...

    def opened(self, connection: ServerConnection) -> None: ...
    def closed(self, connection: ServerConnection, error: LognodeError) -> None: ...

    def request(self, request: Request) -> None:
        raise AssertionError(request.operation)

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        assert number == RAFT.number
        return RAFT

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        raise AssertionError(number) from error

    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None:
        self.frames.append(body)

    def failed(self, number: int, error: Exception) -> None:
        raise AssertionError(number) from error


@pytest.mark.parametrize(
    ("body", "per_frame"),
    [(Ack(1, 1, 5), 128), (Append(1, 1, 5, 1, 5, [[1, b"\x00" * 20]] * 500), 3)],
)
def test_many_messages_go_in_several_frames_in_their_order(
    body: messages.Body, per_frame: int
) -> None:
    async def main() -> None:
        peer = Peer()
        listener = await acceptor.serve(peer, "127.0.0.1", 0)
        up = asyncio.Event()
        links = PeerLinks(
            who=lambda: ("c", 1, 5), secret=None, tls=None, resolve=str, on_up=lambda *_: up.set(),
            on_down=lambda _: None, on_full=lambda _: None, on_room=lambda _: None,
            on_queued=lambda: None, on_broken=pytest.fail, rng=random.Random(1), boot=(1, 1),
            clock_ms=lambda: 0, check_nodes=lambda _: None, ping_to=lambda _: [1, 1, []],
            metrics=Metrics(),
        )  # fmt: skip
        links.set_peers({2: f"127.0.0.1:{listener.port}"})
        async with asyncio.timeout(30):
            await up.wait()
            for n in range(300):
                links.send(2, GroupId(n, 1), b"fingerprint", messages.encode(body))
            links.flush_queued()
            while sum(len(frame["messages"]) for frame in peer.frames) < 300:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        arrived = [item for frame in peer.frames for item in frame["messages"]]
        assert [item[0] for item in arrived] == list(range(300))
        assert max(len(frame["messages"]) for frame in peer.frames) == per_frame
        assert messages.decode(arrived[0][3]) == body
        links.stop()
        await listener.close()

    asyncio.run(main())
