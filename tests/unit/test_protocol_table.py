"""The table of messages: whole, consistent, and strict at each bound of each field."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lognode.client.protocol import (
    OPERATIONS,
    Operation,
    Permission,
    Retry,
    Sender,
    by_number,
    limits,
)
from lognode.client.protocol.cluster import ALTER_LOG, CREATE_LOG
from lognode.client.protocol.common import READ
from lognode.client.protocol.errors import InvalidArgument, LimitExceeded, RemoteProtocolError
from lognode.client.protocol.frames import KIND_MAX, NAMES, OPERATIONS_FROM
from lognode.client.protocol.kinds import INTEGER_MAX, Column, Integer, Text
from lognode.client.protocol.reads import COUNT_ENTRIES, SCAN
from lognode.client.protocol.record import Optional, Record
from lognode.node.serving.reads import READS

ROOT = Path(__file__).parents[2]
ALL = sorted(OPERATIONS.values(), key=lambda operation: operation.number)


@pytest.mark.parametrize("operation", ALL, ids=str)
def test_every_row_is_complete(operation: Operation) -> None:
    assert operation.about.endswith(".")
    assert OPERATIONS_FROM <= operation.number <= KIND_MAX
    assert by_number(operation.number) is operation
    assert (operation.permission is Permission.PEER) == (
        operation.sender in (Sender.PEER, Sender.STRANGER)
    )
    assert not (operation.answer is None and operation.retry is Retry.ONCE)


def test_numbers_are_given_once() -> None:
    numbers = [*NAMES, *(operation.number for operation in ALL)]
    assert len(set(numbers)) == len(numbers)
    assert by_number(KIND_MAX) is None


@pytest.mark.parametrize("operation", ALL, ids=str)
def test_every_valid_message_passes_and_fits_its_answer(operation: Operation) -> None:
    rng = random.Random(operation.number)
    for _ in range(200):
        checked = operation.request.check(operation.request.sample(rng))
        assert 0 <= operation.answer_bytes(checked) <= limits.frame_bytes_max
        if operation.answer is not None:
            operation.check_answer(operation.answer.sample(rng))


@pytest.mark.parametrize("operation", ALL, ids=str)
def test_every_fault_of_every_field_is_refused_by_name(operation: Operation) -> None:
    for why, body in operation.request.beyond():
        with pytest.raises(InvalidArgument) as caught:
            operation.request.check(body)
        names = [name.strip() for name in why.split(":")[:2]]  # the second: a field in a field
        name = caught.value.fields.get("what", names[0])
        assert name in names or isinstance(caught.value, LimitExceeded)
        assert name in caught.value.message, why
        assert caught.value.outcome == "not_applied"


@pytest.mark.parametrize("operation", ALL, ids=str)
def test_every_fault_of_an_answer_is_the_other_sides(operation: Operation) -> None:
    if operation.answer is None:
        return
    for _, body in operation.answer.beyond():
        with pytest.raises(RemoteProtocolError, match=f"the answer to {operation.name} breaks"):
            operation.check_answer(body)


def fields_of(record: Record) -> Iterator[tuple[str, Any]]:
    for name, field in record.shape.items():
        yield name, field.kind if isinstance(field, Optional) else field


@pytest.mark.parametrize("operation", ALL, ids=str)
def test_every_field_has_faults_to_try(operation: Operation) -> None:
    """A fuzz test generated from kinds without faults would find nothing."""
    for name, kind in fields_of(operation.request):
        assert list(kind.faults()), name


def test_integers_have_63_bits() -> None:
    assert Integer().check(INTEGER_MAX, "n") == INTEGER_MAX
    for value in (-1, 1 << 63, (1 << 64) - 1, True, 1.0, "1", None):
        with pytest.raises(InvalidArgument, match=r"`n` is .*allowed: an integer of 0 to"):
            Integer().check(value, "n")


def test_a_column_is_checked_as_a_whole() -> None:
    column = Column(bytes, 3, low=1, high=2, nil=True)
    assert column.check([b"a", None, b"bc"], "values") == [b"a", None, b"bc"]
    for wrong in ([b""], [b"abc"], ["a"], [b"a"] * 4, [[]], b"a", {}):
        with pytest.raises(InvalidArgument):
            column.check(wrong, "values")


def test_a_text_is_valid_and_has_no_control_characters() -> None:
    kind = Text(8)
    assert kind.check("häuser", "name") == "häuser"
    for wrong in ("a\0b", "a\nb", "\x7f", "\ud800", "ääääa", 5):
        with pytest.raises(InvalidArgument):
            kind.check(wrong, "name")
    assert Text(8, lines=True).check("a\nb", "reason") == "a\nb"


def test_missing_fields_have_their_defaults_and_unknown_fields_go() -> None:
    body = {"range": 3, "generation": 2, "key": b"k", "of_the_future": 1, "end": None}
    assert COUNT_ENTRIES.request.check(body) == {
        "range": 3, "generation": 2, "key": b"k", "start": 1, "end": None, "as_of": None,
        "consistency": "linearizable", "node": None, "through": None, "timeout_ms": 10_000,
        "applied": None,
    }  # fmt: skip


def test_for_rules_of_a_policy_nil_and_missing_differ() -> None:
    body = CREATE_LOG.request.check({"name": "orders", "split_bytes": None})
    assert body["split_bytes"] is None
    assert "split_rate" not in body
    changes = ALTER_LOG.request.check({"name": "orders", "changes": {"retention_ms": None}})
    assert changes["changes"] == {"retention_ms": None}


def test_a_page_weighs_what_was_asked_for_and_one_largest_entry() -> None:
    asked = {"range": 1, "generation": 1, "key": b"k", "bytes": 1000}
    weight = SCAN.answer_bytes(SCAN.request.check(asked))
    assert 1000 + limits.value_bytes_max < weight < 1000 + 2 * limits.value_bytes_max


def test_the_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "protocol", "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_read_may_say_how_fresh_its_answer_has_to_be() -> None:
    for operation in READS:
        assert READ.keys() <= operation.request.shape.keys(), operation
