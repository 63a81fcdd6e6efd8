"""S11: what a call of many records says of each record, and of all of them."""

import pytest
from fake_cluster import Drop, FakeCluster, FakeNode
from sdk_faults import run

import lognode
from lognode import ABSENT, ANY, AsyncClient, AsyncLog
from lognode.client.accepting.request import Request
from lognode.client.appends import all_or_raise
from lognode.client.cli.main import exit_code
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.errors import (
    LognodeError,
    Outcome,
    PartialFailure,
    SequenceMismatch,
    Timeout,
    Unavailable,
    common_outcome,
)
from lognode.client.window import Delivery

ACK = lognode.Ack(5, 0)
REFUSED = SequenceMismatch("no", key=b"k", expected=1, actual=2)
UNSURE = Timeout("late")
AFTER_ALL = Unavailable("late", outcome="applied")


@pytest.mark.parametrize(
    ("results", "outcome", "outcomes"),
    [
        ([ACK, REFUSED], "unknown", ["applied", "not_applied"]),
        ([ACK, UNSURE], "unknown", ["applied", "unknown"]),
        ([ACK, AFTER_ALL], "applied", ["applied", "applied"]),
        ([REFUSED, Unavailable("x")], "not_applied", ["not_applied", "not_applied"]),
        ([REFUSED, UNSURE], "unknown", ["not_applied", "unknown"]),
    ],
)
def test_S11_a_partial_failure_says_the_outcome_of_each_record(
    results: list[lognode.Ack | LognodeError], outcome: Outcome, outcomes: list[Outcome]
) -> None:
    with pytest.raises(PartialFailure) as told:
        all_or_raise(results)
    assert (told.value.outcome, told.value.outcomes) == (outcome, outcomes)
    assert [ack.seq if ack else None for ack in told.value.acks] == [
        5 if result is ACK else None for result in results
    ]
    assert exit_code(told.value, writes=True) == (6 if outcome == "unknown" else 1)


def test_a_failure_without_records_has_no_outcomes() -> None:
    assert PartialFailure("2 of 5 were not acknowledged").outcomes == []


@pytest.mark.parametrize(
    ("delivery", "outcome"),
    [
        (Delivery(acknowledged=3), "applied"),
        (Delivery(acknowledged=3, not_applied=1), "unknown"),
        (Delivery(not_applied=2), "not_applied"),
        (Delivery(unknown=1), "unknown"),
        (Delivery(not_applied=1, unknown=1), "unknown"),
        (Delivery(), "applied"),
    ],
)
def test_S11_a_session_says_the_outcome_of_all_its_records(
    delivery: Delivery, outcome: Outcome
) -> None:
    assert delivery.outcome == outcome
    several: list[Outcome] = ["applied"] * (delivery.acknowledged > 0)
    several += ["not_applied"] * (delivery.not_applied > 0) + ["unknown"] * (delivery.unknown > 0)
    assert not several or common_outcome(several) == outcome


def test_S11_append_many_tells_the_outcomes_in_the_order_of_the_records() -> None:
    """One range has appended its records, one refuses a condition, one does not answer."""

    async def test(cluster: FakeCluster, client: AsyncClient, log: AsyncLog) -> None:
        await log.append_many([("a", b"0"), ("n", b"0"), ("z", b"0")])

        def silent(node: FakeNode, request: Request, when: str) -> None:
            last = cluster.range_of(b"z").range_id
            if when == "after" and request.operation is APPEND and request.body["range"] == last:
                raise Drop

        cluster.faults.append(silent)
        records: list[tuple[str, bytes | None]] = [("z", b"1"), ("a", b"1"), ("n", b"1")]
        with pytest.raises(PartialFailure) as told:
            await log.append_many(records, expects=[ANY, ANY, ABSENT], timeout=1.0)
        assert told.value.outcomes == ["unknown", "applied", "not_applied"]
        assert told.value.outcome == "unknown"
        found = [entry.seq for entry in cluster.entries() if entry.key == b"a"]
        assert told.value.acks[1].seq == found[-1]

    run(test, split_at=(b"m", b"t"))
