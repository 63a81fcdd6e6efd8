"""X5: an attempt that arrives after later changes of what it concerns is refused (seed 302)."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client import tokens
from lognode.client.cluster import Cluster
from lognode.client.protocol import Operation, limits
from lognode.client.protocol.cluster import TOKEN_CREATE
from lognode.client.protocol.errors import (
    OVERTAKEN,
    Conflict,
    LognodeError,
    NotFound,
    Timeout,
)
from lognode.client.protocol.quotas import QUOTA_DELETE, QUOTA_LIST
from lognode.client.protocol.scopes import VERBS, Scope
from lognode.node.replicas.controller_replica import ControllerReplica
from lognode.partitions import overtaken
from lognode.partitions.commands import decode
from lognode.partitions.metadata import Metadata

Body = dict[str, Any]
_NOW_MS = 1_000_000_000_000
_SCOPES = [Scope(frozenset(VERBS)).to_wire()]
_INVITE = {
    "op": "create_invite", "id": "ab" * 8, "digest": b"d" * 32, "by": "ann", "at_ms": _NOW_MS,
    "expires_ms": _NOW_MS + 60_000,
}  # fmt: skip


def _token() -> Body:
    drawn = tokens.draw()
    return {
        "op": "create_token", "id": tokens.id_of(drawn), "digest": tokens.digest_of(drawn),
        "principal": "guest", "scopes": _SCOPES, "at_ms": _NOW_MS,
    }  # fmt: skip


class _Leader(Controller):
    """A controller's log, and what its leader would propose."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes(4)
        self.do(**_token())
        self.do("create_log", name="known")
        self.do("set_quota", name="gold", limits={"requests": 5})

    def ask(self, command: Body, since: int | None = None) -> Body:
        """Send a command as a client does; return the answer. Raises the refusal."""

        async def now(**_: object) -> None:
            """Be ready at once."""

        replica: Any = SimpleNamespace(
            metadata=self.metadata, lead_settled=now, leads=True, ready=now, is_sealed=False,
            applied_index=9, applied_term=1, propose=self._propose,
            _on_command=lambda command, error: None,
        )  # fmt: skip
        replica._rehearsed = partial(ControllerReplica._rehearsed, replica)
        replica._answer = partial(ControllerReplica._answer, replica)
        sent = command if since is None else {**command, "since": since}
        return asyncio.run(ControllerReplica.command(replica, sent))

    def _propose(self, data: bytes, futures: tuple[asyncio.Future[Body]]) -> None:
        command = decode(data)
        assert command is not None
        assert "since" not in command, "members of all versions apply the same command"
        futures[0].set_result(self.do(**command))


_CASES: dict[str, tuple[Body, Body]] = {
    "create_token": (_token(), {"op": "revoke_token"}),
    "create_invite": (_INVITE, {"op": "revoke_invite"}),
    "drain_node": (
        {"op": "drain_node", "node": 3, "undo": False},
        {"op": "drain_node", "node": 3, "undo": True},
    ),
    "rekey_node": (
        {"op": "rekey_node", "node": 2, "key": "a" * 64},
        {"op": "rekey_node", "node": 2, "key": "b" * 64},
    ),
    "set_quota": (
        {"op": "set_quota", "name": "gold", "limits": {"requests": 7}},
        {"op": "set_quota", "name": "gold", "limits": {"requests": 5}},
    ),
    "delete_quota": (
        {"op": "delete_quota", "name": "gold"},
        {"op": "set_quota", "name": "gold", "limits": {"requests": 5}},
    ),
    "alter_log": (
        {"op": "alter_log", "name": "known", "changes": {"retention_ms": 60_000}},
        {"op": "alter_log", "name": "known", "changes": {"retention_ms": None}},
    ),
    "create_log": ({"op": "create_log", "name": "gone"}, {"op": "delete_log", "name": "gone"}),
}
"""For each command: a request, and a command that undoes the request."""


@pytest.mark.parametrize("op", _CASES)
def test_X5_a_late_attempt_does_not_undo_what_came_after_its_answer(op: str) -> None:
    """A token existed again after its revocation: a node that was cut off had kept the first
    attempt to create the token, whose second attempt had been answered."""
    leader = _Leader()
    request, undo = _CASES[op]
    since = leader.metadata.version
    leader.ask(request, since)
    leader.ask({"id": request.get("id"), **undo} if "id" in request else undo)
    before = leader.metadata.image()

    with pytest.raises(Conflict) as found:
        leader.ask(request, since)

    assert leader.metadata.image() == before
    assert found.value.fields == {"reason": OVERTAKEN, "newer": leader.metadata.version}
    assert found.value.outcome == "not_applied"
    leader.ask(request, found.value.fields["newer"])
    assert leader.metadata.image() != before, "a request that knows of the change is executed"


@pytest.mark.parametrize("op", _CASES)
def test_a_repetition_without_changes_in_between_gets_the_answer(op: str) -> None:
    leader = _Leader()
    request, _ = _CASES[op]
    request = {**request, "creation": b"c" * 16} if op == "create_log" else request
    since = leader.metadata.version
    first, version = leader.ask(request, since), leader.metadata.version
    if op == "delete_quota":
        with pytest.raises(NotFound):
            leader.ask(request, since)
    else:
        assert leader.ask(request, since) == first
    assert leader.metadata.version == version


def test_changes_of_other_records_refuse_no_attempt() -> None:
    leader = _Leader()
    since = leader.metadata.version
    leader.ask({"op": "set_quota", "name": "gold", "limits": {"requests": 9}})
    leader.ask({"op": "create_log", "name": "another"})
    leader.ask(_token(), since)
    leader.ask({"op": "drain_node", "node": 3, "undo": False}, since)


def test_an_attempt_from_before_a_loaded_image_is_refused() -> None:
    """The node does not know when the records of the image changed."""
    leader = _Leader()
    loaded = Metadata.from_image(leader.metadata.image())
    with pytest.raises(Conflict):
        overtaken.check(loaded, _token(), loaded.version - 1)
    overtaken.check(loaded, _token(), loaded.version)


class _Node:
    """Answers requests with what is scripted."""

    def __init__(self, *answers: Body | LognodeError) -> None:
        self.answers = list(answers)
        self.since: list[int | None] = []

    async def request(self, _: Operation, body: Body, *, deadline: float) -> Body:
        self.since.append(body.get("since"))
        answer = self.answers.pop(0)
        if isinstance(answer, LognodeError):
            raise answer
        return answer


def _cluster_of(node: _Node) -> Cluster:
    """Return a client's cluster with this node alone, at version 1 of the metadata."""
    cluster = Cluster([("h", 1)])
    cluster.version = 1

    async def get(*_: object) -> _Node:
        return node

    cluster.pool = SimpleNamespace(rank=lambda _: 0, suspect=lambda _: None, get=get)  # type: ignore[assignment]
    return cluster


def _call(node: _Node, operation: Operation = QUOTA_DELETE) -> Body:
    async def main() -> Body:
        cluster = _cluster_of(node)
        return await cluster.call_any(operation, {"name": "q"}, deadline=cluster.now() + 5.0)

    return asyncio.run(main())


def _overtaken(newer: int) -> Conflict:
    return Conflict("changed", reason=OVERTAKEN, newer=newer)


def _lost() -> Timeout:
    return Timeout("no answer", outcome="unknown")


def test_a_client_repeats_a_late_attempt_with_the_version_of_the_refusal() -> None:
    node = _Node(_lost(), _overtaken(7), _overtaken(9), {"done": True})
    assert _call(node) == {"done": True}
    assert node.since == [1, 1, 7, 9]


def test_a_client_names_the_version_of_its_last_change() -> None:
    async def main() -> None:
        node = _Node({"id": "a", "version": 12}, {"id": "b", "version": 13})
        cluster = _cluster_of(node)
        for _ in range(2):
            await cluster.call_any(TOKEN_CREATE, {}, deadline=cluster.now() + 5.0)
        assert node.since == [1, 12]

    asyncio.run(main())


def test_operations_that_have_no_since_are_sent_as_they_are() -> None:
    node = _Node({"quotas": []})
    _call(node, QUOTA_LIST)
    assert node.since == [None]


def test_S11_a_refused_late_attempt_says_nothing_of_earlier_attempts() -> None:
    node = _Node(_lost(), _overtaken(7), NotFound("gone"))
    with pytest.raises(NotFound) as found:
        _call(node)
    assert found.value.outcome == "unknown"


@pytest.mark.parametrize("newer", [1, -1, limits.number_max + 1, "7", None, True])
def test_a_node_that_names_no_later_version_is_not_asked_for_ever(newer: Any) -> None:
    node = _Node(_overtaken(newer))
    with pytest.raises(Conflict):
        _call(node)
    assert node.since == [1]
