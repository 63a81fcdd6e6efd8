"""Payloads that are small on the wire and large in memory, or long to unpack.

As a program, `python hostile_payloads.py batch|frame`, it gives what it reads to the decoders of a
node, and prints as JSON how much memory that took at most, in KiB, and how much processor time the
longest step took, in seconds.
"""

import gc
import json
import re
import struct
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import google_crc32c
import msgpack
import zstandard

MIB = 1 << 20
FRAME_MAX = 9 * MIB
READ_BYTES = 256 * 1024
"""What an event loop reads from a socket at once."""


def array(count: int, body: bytes) -> bytes:
    """The header of an array that claims `count` elements, and what follows it."""
    return b"\xdd" + struct.pack(">I", count) + body


def framed(payload: bytes) -> bytes:
    """The payload as a frame."""
    return struct.pack(">II", len(payload), google_crc32c.value(payload)) + payload


def message(field: bytes) -> bytes:
    """A frame whose body has one field."""
    return framed(b"\x93\x01\x28\x81\xa1a" + field)


def batch(
    *,
    count: int = 1,
    keys: bytes | None = None,
    values: bytes = b"\x91\xc4\x00",
    headers: bytes | None = None,
    flags: int = 0,
    size: int | None = None,
) -> bytes:
    """A batch of packed columns; what is not given is as it should be."""
    keys = msgpack.packb([b"k"] * count) if keys is None else keys
    size = len(values) if size is None else size
    packed: bytes = msgpack.packb(
        (1, count, 0, 0, 0, 1, None, flags, None, None, keys, headers, values, size)
    )
    return packed


def compressed(values: bytes, count: int = 1) -> bytes:
    """A batch whose values column is compressed."""
    smaller = zstandard.ZstdCompressor(level=19).compress(values)
    return batch(count=count, values=smaller, flags=1, size=len(values))


_EMPTY_ARRAYS = array(2 * MIB, b"\x90" * (2 * MIB))
_CLAIMS = array(10_000, b"")
"""Five bytes for which an unpacker reserves 80 KB."""
_LONG = 4 * MIB - 16 * 1024
"""About the longest batch that is taken."""
BATCHES: dict[str, Callable[[], bytes]] = {
    "values that are 2 Mi empty arrays, in 119 bytes": lambda: compressed(_EMPTY_ARRAYS),
    "values of an honest count that are empty arrays": lambda: compressed(
        array(10_000, b"\x90" * 10_000), 10_000
    ),
    "values that are arrays in arrays which claim 10,000 elements each": lambda: compressed(
        _CLAIMS * 1_000 + bytes(2 * MIB), 10_000
    ),
    "values that are an array of 2 Mi numbers": lambda: compressed(
        array(1, array(2 * MIB, bytes(2 * MIB)))
    ),
    "keys that are 4 Mi empty arrays": lambda: batch(keys=array(_LONG, b"\x90" * _LONG)),
    "keys that are maps of maps": lambda: batch(
        count=10_000, keys=array(10_000, b"\x81\x01\x80" * (_LONG // 3))
    ),
    "headers that are 4 Mi empty arrays": lambda: batch(
        headers=array(1, array(_LONG, b"\x90" * _LONG))
    ),
    "headers that are a map of empty maps": lambda: batch(
        headers=array(1, b"\xdf" + struct.pack(">I", _LONG // 2) + b"\x01\x80" * (_LONG // 2))
    ),
    "headers that are maps in maps": lambda: batch(
        count=10_000,
        values=msgpack.packb([None] * 10_000),
        headers=array(10_000, b"\x81\x01" * 1_000 + b"\x80" * (_LONG - 40_000)),
    ),
    "numbers that are arrays in arrays which claim 10,000 elements each": lambda: (
        b"\x9e\x01\x01\x00\x00\x00" + _CLAIMS * 1_000 + bytes(300_000)
    ),
    "numbers that are 4 Mi empty arrays": lambda: (
        b"\x9e\x01\x01\x00\x00\x00" + array(_LONG, b"\x90" * _LONG)
    ),
}
"""Batches that are refused."""
LEGAL_BATCHES: dict[str, Callable[[], bytes]] = {
    "10,000 records with 20 headers each": lambda: batch(
        count=10_000,
        values=msgpack.packb([None] * 10_000),
        headers=msgpack.packb([{b"%d" % n: b"" for n in range(20)}] * 10_000),
    ),
    "10,000 records of 200 bytes, compressed": lambda: batch_of(10_000, 200),
}


def batch_of(count: int, value_bytes: int) -> bytes:
    """A legal batch, with conditions and everything else that takes time to check."""
    from lognode.client.protocol.records import encode_batch

    keys = [b"key-%08d" % n for n in range(count)]
    values = [(b"%d " % n * value_bytes)[:value_bytes] for n in range(count)]
    numbers = list(range(1_000_000, 1_000_000 + count))
    return encode_batch(
        keys, values, producer=1, epoch=1, low=1, numbers=numbers, prevs=[n - 1 for n in numbers],
        expects=[-1] * count,
    )  # fmt: skip


_BOMB = array(131_072, b"") * 1_000
FRAMES: dict[str, Callable[[], bytes]] = {
    "arrays in arrays that claim 131,072 elements each, in 5 KB": lambda: message(_BOMB),
    "the same in 9 MiB": lambda: message(_BOMB + bytes(FRAME_MAX - 6_000)),
    "1.5 Mi time stamps": lambda: message(
        array(70, array(18_000, b"\xd6\xff\0\0\0\1" * 18_000) * 70)
    ),
    "9 Mi numbers": lambda: message(array(71, array(131_072, b"\1" * 131_072) * 71)),
    "2 Mi strings of two bytes": lambda: message(
        array(17, array(131_072, b"\xc4\2ab" * 131_072) * 17)
    ),
    "9 Mi empty arrays": lambda: message(array(71, array(131_072, b"\x90" * 131_072) * 71)),
    "2 Mi maps": lambda: message(array(23, array(131_072, b"\x81\1\1" * 131_072) * 23)),
    "a text of 9 MiB": lambda: message(
        b"\xdb" + struct.pack(">I", 9 * 10**6) + "\u20ac".encode() * (3 * 10**6)
    ),
}
"""Frames that break the stream."""
LEGAL_FRAMES: dict[str, Callable[[], bytes]] = {
    "50,000 arrays": lambda: message(array(50_000, b"\x91\1" * 50_000)),
    "50,000 maps": lambda: message(array(50_000, b"\x81\1\1" * 50_000)),
    "7,000 chains of 12 arrays": lambda: message(array(7_000, (b"\x91" * 11 + b"\x90") * 7_000)),
    "600,000 numbers": lambda: message(array(6, array(100_000, b"\1" * 100_000) * 6)),
    "one value of 9 MiB": lambda: message(
        b"\xc6" + struct.pack(">I", 9 * 10**6) + bytes(9 * 10**6)
    ),
    "15,000 frames at once": lambda: framed(msgpack.packb([1, 11, {}])) * 15_000,
}


def _steps_of_frames(data: bytes) -> Iterable[str | None]:
    from lognode.client.protocol.frame import Broken, Decoder

    decoder = Decoder()
    for at in range(0, len(data), READ_BYTES):
        decoder.put(data[at : at + READ_BYTES])
        while (event := decoder.next()) is not None or decoder.in_steps:
            yield None if event is None else "broken" if isinstance(event, Broken) else "taken"
        yield None


def _steps_of_batch(data: bytes) -> Iterable[str | None]:
    from lognode.client.protocol.errors import CorruptData
    from lognode.statemachine.admission import admit_steps

    try:
        yield from admit_steps(data, b"", None)
    except CorruptData:
        yield "corrupt"
        return
    yield "taken"


def _peak_kib() -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def main(kind: str) -> None:
    """Measure the payload that comes on the standard input."""
    data = sys.stdin.buffer.read()
    steps_of = _steps_of_batch if kind == "batch" else _steps_of_frames
    list(steps_of(batch() if kind == "batch" else message(b"\1")))  # imports
    # As a node does it: what is old is not looked at while others wait.
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 2**31 - 1)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what there is now
    before = _peak_kib()
    longest, outcome, began = 0.0, "nothing", time.thread_time()
    for step in steps_of(data):
        now = time.thread_time()
        longest, outcome, began = max(longest, now - began), step or outcome, time.thread_time()
    print(
        json.dumps(
            {
                "kib": _peak_kib() - before,
                "longest_s": longest,
                "outcome": outcome,
                "size": len(data),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
