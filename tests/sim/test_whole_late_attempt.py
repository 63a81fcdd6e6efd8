"""X5: a link between real nodes keeps an attempt to create a token until the token is revoked."""

import asyncio
from typing import Any

import pytest

import lognode
from lognode.chaos.watch import healthy
from lognode.chaos.whole.additions import Additions
from lognode.chaos.whole.founding import found, join
from lognode.chaos.whole.stage import Stage, stage
from lognode.chaos.whole.trace import Trace
from lognode.client import tokens
from lognode.client.client import AsyncClient
from lognode.client.connection import dial
from lognode.client.protocol.cluster import TOKEN_CREATE
from lognode.client.protocol.scopes import parse_scope

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_ADDITIONS = Additions(tokens=True)
_NODES = 3


async def _attempt(set_up: Stage, node: int, request: dict[str, Any], timeout_s: float) -> str:
    """Make one attempt at one node; return the code of the error, or ""."""
    port = int(set_up.machines[node].address.rpartition(":")[2])
    connection = await dial("127.0.0.1", port, token=set_up.machines.credentials.admin_token)
    try:
        deadline = asyncio.get_running_loop().time() + timeout_s
        await connection.request(TOKEN_CREATE, request, deadline=deadline)
    except lognode.LognodeError as error:
        return error.code
    finally:
        connection.close()
    return ""


async def _whole(set_up: Stage, *, fenced: bool) -> bool:
    """Return whether the token exists after the late attempt."""
    machines, network = set_up.machines, set_up.loop.network
    await found(machines, _ADDITIONS)
    async with AsyncClient(machines.servers, timeout=60.0) as client:
        await join(machines, machines.numbers, client, _ADDITIONS)
        await healthy(client, _NODES, 60.0)
        status = await client.status()
        leader = status["cluster"]["controller_leader"]
        other = next(number for number in machines.numbers if number != leader)
        drawn = tokens.draw()
        request: dict[str, Any] = {
            "id": tokens.id_of(drawn), "digest": tokens.digest_of(drawn), "principal": "guest",
            "scopes": [parse_scope("read guests").to_wire()],
        }  # fmt: skip
        if fenced:
            request["since"] = (await client.metadata())["version"]
        network.cut(str(other), str(leader))
        assert await _attempt(set_up, other, request, 0.1) == "TIMEOUT"
        assert await _attempt(set_up, leader, request, 10.0) == ""
        await client.admin.revoke_token(request["id"])
        network.heal(str(other), str(leader))
        await asyncio.sleep(3.0)
        return request["id"] in {row["id"] for row in await client.admin.tokens()}


@pytest.mark.parametrize("fenced", [False, True], ids=["without_since", "with_since"])
def test_X5_a_late_attempt_brings_a_revoked_token_back_only_without_since(*, fenced: bool) -> None:
    """A client of an earlier version sends no `since`: the case shows that the attempt is late."""
    with stage(1, _NODES, Trace(None), _ADDITIONS) as set_up:
        assert set_up.loop.run(_whole(set_up, fenced=fenced)) is not fenced
