"""What claims to be compressed: no frame makes a node take memory for what it only claims."""

import msgpack
import pytest
import zstandard

from lognode.client.protocol.errors import CorruptData
from lognode.client.protocol.records import check_limits, decode_batch, decompress, encode_batch


def claiming(size: int) -> bytes:
    """A frame whose head says that `size` bytes come out of it."""
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(100_000)))
    assert zstandard.frame_content_size(bytes(frame)) == 100_000
    assert frame[4] >> 6 == 2  # four bytes of size
    frame[4] |= 0xC0
    at = 5 if frame[4] & 0x20 else 6
    frame[at : at + 4] = size.to_bytes(8, "little")
    return bytes(frame)


def test_a_frame_that_claims_another_size_is_refused_before_anything_is_allocated() -> None:
    """Found by fuzzing: the library allocates what the frame claims, whatever it is told."""
    data = bytes(range(256)) * 40
    frame = zstandard.ZstdCompressor().compress(data)
    assert decompress(frame, len(data)) == data
    for size in (0, len(data) - 1, len(data) + 1, 1 << 40):
        with pytest.raises(ValueError, match="instead of"):
            decompress(frame, size)
    for size in (1 << 40, 1 << 62):
        with pytest.raises(ValueError, match="instead of"):
            decompress(claiming(size), 100_000)
    for broken in (b"", b"x" * 9, frame[: len(frame) // 2], b"\0" + frame):
        with pytest.raises(ValueError, match=r"."):
            decompress(broken, len(data))


def test_x22_a_batch_of_such_values_is_refused_and_ends_nothing() -> None:
    good = encode_batch([b"k"], [bytes(100_000)], producer=0, epoch=0, low=0, numbers=1)
    fields = msgpack.unpackb(good)
    fields[12] = claiming(1 << 62)
    with pytest.raises(CorruptData, match="the values of a record batch are damaged"):
        check_limits(decode_batch(msgpack.packb(fields)))
