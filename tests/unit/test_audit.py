"""X7: what is recorded of requests, commands and refusals, and what never is."""

import asyncio
from collections.abc import Awaitable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.cluster import CREATE_LOG, DELETE_LOG, FINALIZE, NODE_REKEY
from lognode.client.protocol.errors import LogNotFound, Timeout, Unauthorized
from lognode.node.audit.audit import CANCELLED, INTERNAL, OK, Audit, shown
from lognode.node.replicas.controller_replica import ControllerReplica
from lognode.partitions import commands

DENIED = Unauthorized("the token does not allow admin")


class Kept:
    """An audit with a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.records: list[dict[str, Any]] = []
        self.audit = Audit(lambda: self.now, self.records.append)

    def refuse(self, address: str = "10.0.0.1:5000", operation: str = "hello") -> None:
        self.audit.turned_away("10.0.0.1", address, operation, DENIED)


def test_X7_a_request_that_administers_is_recorded_with_who_and_outcome() -> None:
    kept = Kept()
    kept.audit.asked("ann", "10.0.0.1:5000", CREATE_LOG, {"name": "orders", "ranges": 2}, None)
    error = LogNotFound("there is no log 'x'", log="x")
    kept.audit.asked("ann", "10.0.0.1:5000", DELETE_LOG, {"name": "x"}, error)
    first, second = kept.records
    assert first == {
        "event": "request", "operation": "create_log", "principal": "ann",
        "address": "10.0.0.1:5000", "about": {"name": "orders", "ranges": 2}, "outcome": OK,
    }  # fmt: skip
    assert second["outcome"] == "LOG_NOT_FOUND"
    assert second["message"] == "there is no log 'x'"


def test_X7_a_record_names_the_operator_who_has_raised_the_feature_level() -> None:
    kept = Kept()
    kept.audit.asked("ann", "10.0.0.1:5000", FINALIZE, {"level": 2}, None)
    kept.audit.commanded(3, {"op": commands.FINALIZE, "level": 2, "nodes": [[1, 2, 9]] * 99}, None)
    request, command = kept.records
    assert (request["operation"], request["principal"]) == ("finalize", "ann")
    assert request["about"] == {"level": 2}
    assert (command["operation"], command["principal"]) == ("finalize", "node 3")
    assert command["about"]["level"] == 2


async def ended(work: Awaitable[dict[str, Any]], *, cancel: bool = False) -> str:
    """The recorded outcome of a request with that work."""
    kept = Kept()
    request = asyncio.ensure_future(
        kept.audit.recorded("ann", "10.0.0.1:5000", NODE_REKEY, {"node": 1}, work)
    )
    await asyncio.sleep(0)
    if cancel:
        request.cancel()
    await asyncio.wait([request])
    if not request.cancelled():
        request.exception()
    (record,) = kept.records
    return str(record["outcome"])


def test_X7_a_request_is_recorded_with_the_outcome_that_it_had() -> None:
    """Requests that a bug or the client ended were recorded as served."""

    async def served() -> dict[str, Any]:
        return {}

    async def bug() -> dict[str, Any]:
        raise ZeroDivisionError

    async def refused() -> dict[str, Any]:
        raise DENIED

    async def outcomes() -> list[str]:
        endless = asyncio.get_running_loop().create_future()
        return [
            await ended(served()), await ended(refused()), await ended(bug()),
            await ended(endless, cancel=True),
        ]  # fmt: skip

    assert asyncio.run(outcomes()) == [OK, DENIED.code, INTERNAL, CANCELLED]


def test_X7_a_metadata_command_is_recorded_with_the_node_that_proposed_it() -> None:
    kept = Kept()
    kept.audit.commanded(3, {"op": commands.SPLIT, "range": 7, "at": b"key"}, None)
    kept.audit.commanded(3, {"op": commands.OPEN_NAMED, "name": "import"}, None)
    (record,) = kept.records
    assert record["principal"] == "node 3"
    assert record["about"] == {"range": 7}


def test_X1_refused_commands_are_counted_and_committed_ones_are_all_told() -> None:
    """1,000 requests to delete a log that there is not were one record, and 1,000 more of the
    commands that they caused."""
    kept = Kept()
    command = {"op": commands.DELETE_LOG, "name": "x"}
    for _ in range(1_000):
        kept.audit.commanded(3, command, LogNotFound("there is no log 'x'", log="x"))
    kept.audit.commanded(3, command, Timeout("nobody knows"))
    for _ in range(2):
        kept.audit.commanded(3, command, None)
    outcomes = [record["outcome"] for record in kept.records]
    assert outcomes == ["LOG_NOT_FOUND", "TIMEOUT", OK, OK]
    kept.now = 61.0
    kept.audit.look()
    assert kept.records[-1]["times"] == 999


@pytest.mark.parametrize(
    "body",
    [{"key": b"secret"}, {"key": "secret"}, {"token": "secret"}, {"x": {"secret": "secret"}},
     {"scopes": [{"keys": "secret"}]}, {"y": {"y": {"y": {"y": {"name": "secret"}}}}},
     {"hash": b"secret", "node": 1}],
)  # fmt: skip
def test_X8_no_key_and_no_secret_is_shown(body: dict[str, Any]) -> None:
    assert "secret" not in str(shown(body).values())


def test_X7_the_text_of_a_record_is_bounded() -> None:
    body = {f"f{i}": 1 for i in range(100)} | {"name": "n" * 10_000}
    assert len(str(shown(body))) < 400
    kept = Kept()
    kept.audit.asked("ann", "a:1", NODE_REKEY, {"name": "n" * 10_000}, Unauthorized("m" * 10_000))
    assert len(str(kept.records)) < 700


def test_X7_a_command_whose_asker_has_left_is_not_recorded_as_done() -> None:
    """The record had the outcome OK, whether or not the controller committed the command."""
    kept = Kept()

    async def forever(*_: object) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def main() -> None:
        replica: Any = SimpleNamespace(
            metadata=SimpleNamespace(nodes={}, feature_level=1),
            lead_settled=lambda: asyncio.sleep(0),
            leads=True, _answer=forever, _on_command=partial(kept.audit.commanded, 3),
        )  # fmt: skip
        command = {"op": commands.DELETE_LOG, "name": "x"}
        task = asyncio.ensure_future(ControllerReplica.command(replica, command))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    (record,) = kept.records
    assert (record["event"], record["outcome"]) == ("command", "UNAVAILABLE")
    assert record["message"] == "the client left before the answer"


def test_X7_equal_refusals_are_told_once_and_counted_for_a_minute() -> None:
    kept = Kept()
    for number in range(1_000):
        kept.refuse(f"10.0.0.1:{number + 1}")
    assert [record["times"] for record in kept.records] == [1]
    kept.audit.look()
    assert len(kept.records) == 1
    kept.now = 61.0
    kept.audit.look()
    assert [record["times"] for record in kept.records] == [1, 999]
    kept.refuse()
    assert [record["times"] for record in kept.records] == [1, 999, 1]


def test_X7_counted_refusals_are_written_with_the_next_refusal() -> None:
    kept = Kept()
    kept.refuse()
    kept.refuse()
    kept.now = 61.0
    kept.refuse()
    assert [record["times"] for record in kept.records] == [1, 2]


def test_X7_other_refusals_of_the_host_and_those_of_other_hosts_are_told() -> None:
    kept = Kept()
    kept.refuse()
    kept.refuse(operation="delete_log")
    kept.refuse("10.0.0.2:5000")
    assert len(kept.records) == 3


def test_X7_refusals_of_two_principals_on_one_host_are_told() -> None:
    """The second one was counted for the first."""
    kept = Kept()
    for name in ("alice", "mallory", "alice"):
        kept.audit.turned_away(name, "10.0.0.1:5000", "delete_log", Unauthorized("no"))
    assert [record["principal"] for record in kept.records] == ["alice", "mallory"]


def test_X1_requests_that_fail_are_counted_and_those_that_are_served_are_all_told() -> None:
    """Failing requests of one client wrote 5 MB of log a second."""
    kept = Kept()
    for name in ("a", "b", "c"):
        kept.audit.asked("ann", "h:1", NODE_REKEY, {"name": name}, Unauthorized("no"))
        kept.audit.asked("ann", "h:1", NODE_REKEY, {"name": name}, None)
    kept.audit.asked("ann", "h:1", NODE_REKEY, {"name": "d"}, Timeout("it may have happened"))
    assert [record["outcome"] for record in kept.records] == [
        "UNAUTHORIZED", OK, OK, OK, "TIMEOUT"
    ]  # fmt: skip
    kept.audit.look(at_end=True)
    assert kept.records[-1]["times"] == 2


def test_X7_counted_refusals_are_written_when_the_node_stops() -> None:
    kept = Kept()
    for _ in range(3):
        kept.refuse()
    kept.audit.look(at_end=True)
    assert [record["times"] for record in kept.records] == [1, 2]
    kept.audit.look(at_end=True)
    assert len(kept.records) == 2


def test_X1_refusals_from_ever_new_hosts_are_bounded() -> None:
    kept = Kept()
    for number in range(5_000):
        kept.refuse(f"host{number}:1")
    assert len(kept.records) == 1_001
    kept.now = 61.0
    kept.audit.look()
    assert sum(record["times"] for record in kept.records) == 5_000
