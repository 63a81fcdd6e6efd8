"""What travels: encoding, and the refusal of everything else."""

import gc
import random
import time
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lognode.client.protocol import limits, raft_messages
from lognode.client.protocol.errors import InvalidArgument, RemoteProtocolError
from lognode.client.protocol.kinds import Kind
from lognode.raft.journal import _SLICE_ENTRIES_MAX
from lognode.raft.messages import KINDS, Append, Body, decode, encode

NUMBERS = st.integers(min_value=0, max_value=limits.number_max)
COMMANDS = st.binary(max_size=20).map(lambda rest: b"\x00" + rest)


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    cls: Any = draw(st.sampled_from(list(KINDS.values())))
    fields = {name: draw(NUMBERS) for name in cls._fields}
    if cls is Append:
        prev_term, *terms, term = sorted(draw(st.lists(NUMBERS, min_size=2, max_size=8)))
        entries = [[each, draw(COMMANDS)] for each in terms]
        fields.update(prev_term=prev_term, term=term, entries=entries)
    body: Body = cls(**fields)
    return body


@given(bodies())
def test_every_message_survives_the_wire(body: Body) -> None:
    assert decode(msgpack.unpackb(msgpack.packb(encode(body)))) == body


@pytest.mark.parametrize(
    "message",
    [
        [],
        [99, 1, 1],
        [2, 1, 1],  # an ack without its index
        [2, 1, 1, 5, 5],
        [2, 1, 1, -1],
        [2, 1, 1, "5"],
        [2, 1, 1, True],
        [2, 1, 1, 5.0],
        [1, 1, 1, 1, 1, 1, None],
        [1, 1, 1, 1, 1, 1, [[1]]],
        [1, 1, 1, 1, 1, 1, [[1, "text"]]],
        [1, 1, 1, 1, 1, 1, [[-1, b"\x00"]]],
        [1, 1, 1, 1, 1, 1, [[1, b""]]],
        [1, 1, 1, 1, 1, 1, [[1, b"\x00"], []]],
        [1, 1, 1, 1, 1, 1, [[1, b"\x00"], {}]],
        [1, 1, 1, 1, 1, 1, [[1, b"\x00"], [2**63, b"\x00"]]],
        [1, 1, 1, 1, 1, 1, [[True, b"\x00"]]],
        [2, 1, 1, 2**63],
        [4, 2**64 - 1, 1, 1, 1],
        [2, 1, 1, 1 << 63],
        [2, (1 << 64) - 1, 1, 5],
        [1, 1, 1, 1, 1, 1, [[0, b"\x00"]]],  # terms that fall
        [1, 5, 1, 1, 1, 1, [[4, b"\x00"], [3, b"\x00"]]],
        [1, 5, 1, 1, 1, 1, [[6, b"\x00"]]],  # above the leader's
        [1, 5, 1, 1, 6, 1, [[5, b"\x00"]]],
    ],
)
def test_a_malformed_message_is_refused(message: list[object]) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(message)


def test_each_kind_has_its_row_in_the_table() -> None:
    assert raft_messages.MESSAGE.rows.keys() == KINDS.keys()
    for number, cls in KINDS.items():
        assert list(raft_messages.MESSAGE.rows[number].kinds) == ["kind", *cls._fields]


ROWS: dict[str, Kind] = {
    "message": raft_messages.MESSAGE, "reads": raft_messages.READ_ROUNDS.kind,
    "answers": raft_messages.READ_ANSWERS.kind, "ping": raft_messages.PING,
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_every_fault_of_every_field_is_refused(name: str) -> None:
    kind = ROWS[name]
    faults = list(kind.faults())
    assert len(faults) > (500 if name == "message" else 20)
    for why, value in faults:
        with pytest.raises(InvalidArgument) as caught:
            kind.check(value, name)
        assert caught.value.fields["what"], why
        if name == "message":
            with pytest.raises(RemoteProtocolError):
                decode(value)
    rng = random.Random(1)
    for _ in range(200):
        good = kind.sample(rng)
        assert kind.check(good, name) == good
        assert kind.check(tuple(good), name) == good


def test_20_000_messages_with_one_fault_each() -> None:
    """No other error than the documented ones, and none that takes long."""
    rng = random.Random(20)
    faults = list(raft_messages.MESSAGE.faults())
    strange = [None, True, -1, 1 << 63, 1.5, "text", b"", [], [[]], {}, [[1, b"\0"], [0, b"\0"]]]
    longest, refused = 0.0, 0
    gc.collect()
    gc.freeze()
    for number in range(20_000):
        if number % 2:
            value = rng.choice(faults)[1]
        else:
            value = raft_messages.MESSAGE.sample(rng)
            value[rng.randrange(len(value))] = rng.choice(strange)
        began = time.thread_time()
        try:
            decode(value)
        except RemoteProtocolError:
            refused += 1
        longest = max(longest, time.thread_time() - began)
    assert refused > 12_000
    assert longest < 0.05


@pytest.mark.parametrize("kind", [2, 3, 4, 255])
def test_holes_17_18_19_membership_and_version_commands_never_enter(kind: int) -> None:
    pickled = bytes([kind]) + b"\x80\x02]q\x00."
    with pytest.raises(RemoteProtocolError):
        decode(encode(Append(1, 1, 1, 0, 1, [[1, pickled]])))


def test_x23_the_largest_append_fits_a_frame() -> None:
    """The engine stops adding entries once it has one more than the largest entry."""
    assert limits.frame_bytes_max >= 2 * limits.entry_bytes_max + 64 * limits.KIB
    big = b"\x00" * limits.entry_bytes_max
    number = limits.number_max
    packed = msgpack.packb(
        encode(Append(number, number, number, number, number, [[number, big], [number, big]]))
    )
    assert len(packed) + 200 < limits.frame_bytes_max
    one = len(msgpack.packb([number, b"\x00"])) + 4
    assert one * _SLICE_ENTRIES_MAX < 64 * limits.KIB + limits.MIB
