"""Bases from other nodes: what a range's state can be made of, and nothing else, is stored."""

import copy
import inspect
import re
from pathlib import Path
from typing import Any

import msgpack
import pytest
from applied_entries import tables

from lognode.client.protocol.errors import CorruptData
from lognode.client.protocol.records import encode_batch
from lognode.statemachine import commands, received_base
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.received_base import received
from lognode.statemachine.segments import SegmentStore

STRANGE: tuple[Any, ...] = (
    True, -1, 1 << 63, (1 << 64) - 1, 1.5, "", "text", b"bytes", [None], [[1, 2, 3]], {"a": 1},
    {1: [2]}, {b"k": -1}, [[]], [b"a"],
)  # fmt: skip


def base(tmp_path: Path) -> dict[str, Any]:
    """Of a range with producers, floors, marks, a lease and a seal, as it comes by the wire."""
    store = SegmentStore(tmp_path)
    state = RangeState(start=b"", end=None, store=store)
    batches = [
        encode_batch([b"a", b"b"], [b"1", b"2"], producer=5, epoch=1, low=1, numbers=1),
        encode_batch([b"a"], [b"3"], producer=6, epoch=1, low=1, numbers=9),
    ]
    told: list[tuple[int, Any]] = [
        (commands.APPEND, batches),
        (commands.FENCE, [5, 2, 2]),
        (commands.TRIM_KEYS, [[b"a", 2]]),
        (commands.TRIM_SPANS, [[b"b", b"c", 1]]),
        (commands.COMPACT_TO, [b"", None, 2, commands.COMPACT, 0]),
        (commands.TAKE_LEASE, ["job", b"", None, 3, 10**6]),
        (commands.SEAL, 7),
    ]
    for index, (kind, payload) in enumerate(told, 2):
        (reply, *_) = state.apply(index, 1, commands.proposal(kind, 1_000, payload)).replies or ()
        assert reply["status"] == "ok", (kind, reply)
    frozen = state.freeze()
    assert frozen is not None
    frozen.producers.finish()
    found = Base(frozen.applied_index, frozen.applied_term, [], frozen.tables)
    body: dict[str, Any] = msgpack.unpackb(msgpack.packb(found.to_wire()), strict_map_key=False)
    return body


def places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        found += [(value, name) for name in value]
        for each in value.values():
            found += places(each)
    elif isinstance(value, list):
        found += [(value, at) for at in range(len(value))]
        for each in value:
            found += places(each)
    return found


def test_a_base_with_all_tables_is_taken(tmp_path: Path) -> None:
    body = base(tmp_path)
    taken = received(body)
    assert taken.to_wire() == body
    tables = body["tables"]
    assert tables["sealed"]
    assert tables["producers"].keys() == {5, 6}
    assert tables["removal"]["floors"]
    assert tables["removal"]["leases"]


@pytest.mark.parametrize("body", [None, 5, [], {}, {"applied": [1, 0]}, {"applied": "x"}])
def test_a_malformed_base_is_refused(body: Any) -> None:
    with pytest.raises(CorruptData):
        received(body)


def test_each_table_is_checked(tmp_path: Path) -> None:
    """A new table needs a row in `received`, or a damaged base would end the node at each start."""
    good, names = base(tmp_path), tables(tmp_path).keys()
    checks = re.findall(r'^ {8}\("(\w+)", ', inspect.getsource(received_base), re.MULTILINE)
    # No command makes tails: the first base of a range does (test_tails).
    assert {"applied", "manifest", "tails", *names} == set(checks)
    for name in names:
        body = {**good, "tables": {**good["tables"], name: 1.5}}
        with pytest.raises(CorruptData, match=f"the {name} of a base"):
            received(body)


def test_a_base_with_one_thing_that_is_wrong_is_refused_or_can_be_begun_from(
    tmp_path: Path,
) -> None:
    """It was stored before it was read: the node ended, and at each start again."""
    good = base(tmp_path)
    taken, told = 0, []
    for number in range(len(places(good))):
        for strange in STRANGE:
            body = copy.deepcopy(good)
            container, place = places(body)[number]
            container[place] = copy.deepcopy(strange)
            try:
                found = received(body)
            except CorruptData as error:
                told.append(error.message)
                continue
            taken += 1
            state = RangeState(start=b"", end=None, store=SegmentStore(tmp_path), base=found)
            producers = state.producers.capture()
            producers.finish()
            msgpack.packb(state._tables(producers))
    assert len(told) > 4 * taken
    assert max(map(len, told)) < 500
