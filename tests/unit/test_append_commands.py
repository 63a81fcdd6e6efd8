"""The command of an append is made without msgpack's copies: the bytes are those of msgpack."""

import msgpack
import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument
from lognode.statemachine import commands

SIZES = (0, 1, 31, 32, 255, 256, 65_535, 65_536, limits.MIB)


@pytest.mark.parametrize("timestamp_ms", [0, 127, 128, 1_700_000_000_000, limits.number_max])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_536])
def test_the_bytes_are_those_of_msgpack(timestamp_ms: int, count: int) -> None:
    batches = [bytes(SIZES[at % len(SIZES)] if count < 100 else 3) for at in range(count)]
    command = commands.encode(commands.APPEND, timestamp_ms, batches)
    assert command == b"\x00" + msgpack.packb((commands.APPEND, timestamp_ms, batches))


@pytest.mark.parametrize("size", SIZES)
def test_a_batch_of_any_size_comes_out_as_it_went_in(size: int) -> None:
    batch = bytes(at % 251 for at in range(size))
    decoded = commands.decode(commands.proposal(commands.APPEND, 5, [batch, b"other"]))
    assert decoded is not None
    assert (decoded.timestamp_ms, decoded.payload) == (5, [batch, b"other"])


@pytest.mark.parametrize("timestamp_ms", [-1, limits.number_max + 1, 1 << 64])
def test_a_time_out_of_bounds_is_refused(timestamp_ms: int) -> None:
    with pytest.raises(InvalidArgument, match="out of bounds"):
        commands.proposal(commands.APPEND, timestamp_ms, [b"batch"])
