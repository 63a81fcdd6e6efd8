"""S11: administration whose answer was lost, on a real node behind a proxy that loses the answer.

The node advertises the address of the proxy, so that the client has no other way to it.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lost_answers import LosesAnswers

import lognode
from lognode import testing
from lognode.client import tokens
from lognode.client.connection import dial
from lognode.client.protocol import Operation, limits
from lognode.client.protocol.cluster import (
    CREATE_LOG,
    DELETE_LOG,
    TOKEN_CREATE,
    TOKEN_REVOKE,
)  # fmt: skip
from lognode.client.protocol.quotas import QUOTA_DELETE, QUOTA_SET
from lognode.client.protocol.scopes import parse_scope

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def proxy(module_path: Path) -> Iterator[LosesAnswers]:
    port = testing.free_row(3)
    with LosesAnswers(f"127.0.0.1:{port}") as proxy:
        node = testing.LocalCluster(
            module_path, 1, base_port=port, auth=True,
            flags=("--advertise", proxy.address),
        )  # fmt: skip
        try:
            node.start()
            proxy.servers = node.servers.replace(node.nodes[0].address, proxy.address)
            yield proxy
        finally:
            node.stop()


@pytest.fixture
def client(proxy: LosesAnswers) -> Iterator[lognode.Client]:
    with lognode.Client(proxy.servers, timeout=20) as client:
        yield client


def names(client: lognode.Client) -> list[str]:
    return [log["name"] for log in client.logs()]


def test_S11_a_client_that_repeats_create_log_recognises_its_own_log(
    proxy: LosesAnswers, client: lognode.Client
) -> None:
    """The client got LogExists for the log that its own first attempt had created."""
    proxy.lose(CREATE_LOG)
    log = client.create_log("own", ranges=2)
    assert (proxy.requests, proxy.lost) == (2, 1)
    assert names(client).count("own") == 1
    log.append("k", b"v")
    with pytest.raises(lognode.LogExists):
        client.create_log("own")
    client.create_log("own", exist_ok=True)


def test_S11_the_log_that_was_first_is_not_the_callers(
    proxy: LosesAnswers, client: lognode.Client
) -> None:
    """The lost answer was a refusal; the repetition gets the same one."""
    client.create_log("taken")
    proxy.lose(CREATE_LOG)
    with pytest.raises(lognode.LogExists):
        client.create_log("taken")
    assert proxy.lost == 1


def test_nobody_else_can_claim_a_creation(proxy: LosesAnswers, client: lognode.Client) -> None:
    """Two principals send the same bytes; the second one gets an error, the first one its log."""
    tokens = [
        client.admin.create_token(name, ["admin claimed"])["token"] for name in ("ann", "bob")
    ]
    body = {"name": "claimed", "creation": os.urandom(limits.creation_bytes)}

    async def ask(token: str) -> str:
        connection = await dial("127.0.0.1", proxy.port, token=token)
        deadline = asyncio.get_running_loop().time() + 10
        try:
            answer = await connection.request(CREATE_LOG, body, deadline=deadline)
        except lognode.LognodeError as error:
            return error.code
        finally:
            connection.close()
        return f"log {answer['log']}"

    first, other, again = (asyncio.run(ask(tokens[at])) for at in (0, 1, 0))
    assert first == again
    assert first.startswith("log ")
    assert other == "LOG_EXISTS"


def test_S11_a_client_that_repeats_delete_log_has_deleted_it(
    proxy: LosesAnswers, client: lognode.Client
) -> None:
    """The client got LogNotFound for what it had deleted."""
    client.create_log("gone")
    proxy.lose(DELETE_LOG)
    client.delete_log("gone")
    assert (proxy.requests, proxy.lost) == (2, 1)
    with pytest.raises(lognode.LogNotFound):
        client.delete_log("gone")


def test_S2_a_repeated_delete_log_leaves_a_newer_log_alone(
    proxy: LosesAnswers, client: lognode.Client
) -> None:
    """The repetition deleted what another client had created and written in between."""

    def create_again() -> None:
        with lognode.Client(proxy.servers, timeout=20) as other:
            other.create_log("anew").append("k", b"kept")

    client.create_log("anew")
    proxy.lose(DELETE_LOG, create_again)
    client.delete_log("anew")
    assert (proxy.requests, proxy.lost) == (2, 1)
    (entry,) = client.log("anew").scan("k")
    assert entry.value == b"kept"


def set_quota(client: lognode.Client) -> None:
    client.admin.set_quota("gold", {"requests": 5})


def delete_quota(client: lognode.Client) -> None:
    set_quota(client)
    client.admin.delete_quota("gold")


def create_token(client: lognode.Client) -> None:
    client.admin.create_token("eve", ["read own"])


def revoke_token(client: lognode.Client) -> None:
    made = client.admin.create_token("eve", ["read own"])
    client.admin.revoke_token(made["id"])
    with pytest.raises(lognode.NotFound):
        client.admin.revoke_token(made["id"])


@pytest.mark.parametrize(
    ("operation", "call"),
    [(QUOTA_SET, set_quota), (QUOTA_DELETE, delete_quota), (TOKEN_CREATE, create_token),
     (TOKEN_REVOKE, revoke_token)],
    ids=["quota_set", "quota_delete", "token_create", "token_revoke"],
)  # fmt: skip
def test_S11_other_administration_survives_a_lost_answer(
    proxy: LosesAnswers, client: lognode.Client,
    operation: Operation, call: Callable[[lognode.Client], None],
) -> None:  # fmt: skip
    proxy.lose(operation)
    call(client)
    assert proxy.lost == 1
    assert proxy.requests >= 2


def test_X5_a_late_attempt_to_create_a_token_does_not_bring_the_token_back(
    proxy: LosesAnswers, client: lognode.Client
) -> None:
    """A revoked token existed again once a node, which had been cut off, executed the first attempt
    to create the token."""
    drawn = tokens.draw()
    request = {
        "id": tokens.id_of(drawn), "digest": tokens.digest_of(drawn), "principal": "eve",
        "scopes": [parse_scope("read own").to_wire()],
    }  # fmt: skip
    administrator = client.admin.create_token("root", ["admin"])["token"]

    async def ask(since: int) -> None:
        connection = await dial("127.0.0.1", proxy.port, token=administrator)
        try:
            deadline = asyncio.get_running_loop().time() + 10
            await connection.request(TOKEN_CREATE, {**request, "since": since}, deadline=deadline)
        finally:
            connection.close()

    since = client.metadata()["version"]
    asyncio.run(ask(since))
    asyncio.run(ask(since))  # a repetition gets the answer
    client.admin.revoke_token(request["id"])
    with pytest.raises(lognode.Conflict, match="later commands have changed") as found:
        asyncio.run(ask(since))
    assert found.value.fields["newer"] > since
    assert request["id"] not in {row["id"] for row in client.admin.tokens()}
