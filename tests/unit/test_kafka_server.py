"""A connection of a Kafka client gives back what it has, however it ends."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.errors import Unauthorized
from lognode.node.kafka.room import Room
from lognode.node.kafka.server import _Connection, _Endings
from lognode.node.kafka.wire import Malformed

TURNS = 12
"""Turns of the loop in which a connection ends; more than enough."""


@pytest.mark.parametrize("turns", range(TURNS))
def test_a_client_that_leaves_while_its_connection_ends_gives_all_back(turns: int) -> None:
    """The rights end, and so many turns of the loop later the client leaves. Otherwise the client
    of the token would count as used for ever, and the node would remember the connection."""
    given: list[str] = []

    class Session:
        is_known = True

        def close(self) -> None:
            given.append("session")

    async def run() -> None:
        door: Any = SimpleNamespace(session=lambda **_: Session())
        accesses: Any = SimpleNamespace(closed=lambda _: given.append("access"))
        transport = SimpleNamespace(abort=lambda: given.append("socket"))
        writer: Any = SimpleNamespace(get_extra_info=lambda _: None, transport=transport)
        guest: Any = SimpleNamespace(host="h", reader=asyncio.StreamReader())
        connection = _Connection(door, accesses, None, Room(1), guest, writer, _Endings())
        serving = asyncio.create_task(connection.serve())
        for _ in range(3):
            await asyncio.sleep(0)
        connection.refuse(Unauthorized("the token was revoked"))
        for _ in range(turns):
            await asyncio.sleep(0)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(run())
    assert sorted(given) == ["access", "session", "socket"]


def test_a_client_that_breaks_the_protocol_again_and_again_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    endings, now = _Endings(), 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with caplog.at_level(logging.INFO, "lognode.kafka"):
        for _ in range(1_000):
            endings.tell(Malformed("a field has -7 bytes"))
        endings.tell(KeyError("an error of the node"))
        endings.tell(ConnectionResetError())
        now += 11
        endings.tell(TimeoutError())
    assert [each.levelname for each in caplog.records] == ["INFO", "ERROR", "INFO"]
    last: Any = caplog.records[-1]
    assert last.fields == {"reason": "the client was too slow", "others_since": 999}
