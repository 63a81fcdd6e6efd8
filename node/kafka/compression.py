"""Unpack the records of a batch, with a bound on the result: a small batch may claim to be huge.

gzip and zstandard come with lognode. Snappy and LZ4 need the extra `lognode[kafka]`; without the
extra, clients get UNSUPPORTED_COMPRESSION_TYPE.
"""

import zlib
from importlib import import_module
from typing import Any, Final

import zstandard

from . import codes
from .refused import Refused

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
_ZSTD_WINDOW_MAX: Final = 1 << 23
_GZIP_BITS: Final = 31
_LZ4_RATIO_MAX: Final = 255
"""The most bytes that a byte of an LZ4 block becomes."""
_XERIAL: Final = b"\x82SNAPPY\x00"
"""How a file of Java's Snappy begins; two numbers of 32 bits follow, then blocks."""
_XERIAL_HEAD: Final = 16
_BLOCK_LEAST: Final = 1_024
"""A block counts as so many bytes at least: thousands of tiny blocks take long, too, and the blocks
of one client keep those of others waiting. Clients make blocks of 32 KiB; 1 KiB is the least that
Java's Snappy can be set to."""
_SIZE_BYTES: Final = 4
_VARINT_BITS: Final = 7
_VARINT_MORE: Final = 0x80
_SNAPPY_SIZE_BYTES: Final = 5


def unpacked(kind: int, data: bytes, most: int) -> bytes:
    """Return the records of a batch. Raises Refused for damaged records, for records of more than
    `most` bytes, and for a compression that this node does not know."""
    try:
        match kind:
            case 0:
                found = data
            case 1:
                found = _gzip(data, most)
            case 2:
                found = _snappy(data, most)
            case 3:
                found = _lz4(data, most)
            case 4:
                found = _zstd(data, most)
            case _:
                raise Refused(codes.UNSUPPORTED_COMPRESSION_TYPE, f"compression {kind} is unknown")
    except Refused:
        raise
    except Exception as error:  # each library has errors of its own
        raise Refused(codes.CORRUPT_MESSAGE, f"the records cannot be unpacked: {error}") from None
    if len(found) > most:
        raise _too_large(most)
    return found


def _too_large(most: int) -> Refused:
    return Refused(
        codes.MESSAGE_TOO_LARGE, f"the batch has more than {most} bytes. Send smaller batches"
    )


def _gzip(data: bytes, most: int) -> bytes:
    unpacker = zlib.decompressobj(_GZIP_BITS)
    found = unpacker.decompress(data, most + 1)
    if not unpacker.eof and len(found) <= most:
        raise ValueError("the end is missing")
    return found


def _zstd(data: bytes, most: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX)
    with unpacker.stream_reader(data, read_across_frames=True) as stream:
        return stream.read(most + 1)


def _lz4(data: bytes, most: int) -> bytes:
    lz4 = _library("cramjam", "LZ4").lz4
    largest = _LZ4_RATIO_MAX * len(data)
    found = bytearray(min(most, largest))
    try:
        size = lz4.decompress_into(data, found)
    except Exception:
        if largest > most:  # the checksum of the batch holds, so the frame is hardly damaged
            raise _too_large(most) from None
        raise
    return bytes(found[:size])


def _snappy(data: bytes, most: int) -> bytes:
    unpack = _library("cramjam", "Snappy").snappy.decompress_raw
    if not data.startswith(_XERIAL):
        return _snappy_block(unpack, data, most)
    at, found, cost = _XERIAL_HEAD, bytearray(), 0
    while at < len(data) and cost <= most:
        end = at + _SIZE_BYTES + int.from_bytes(data[at : at + _SIZE_BYTES], "big")
        if end > len(data):
            raise ValueError("the end is missing")
        block = _snappy_block(unpack, data[at + _SIZE_BYTES : end], most - len(found))
        found += block
        cost += max(_BLOCK_LEAST, len(block))
        at = end
    if cost > most:
        raise _too_large(most)
    return bytes(found)


def _snappy_block(unpack: Any, data: bytes, most: int) -> bytes:
    """Unpack a block, which begins with its size when unpacked."""
    size = shift = 0
    for each in data[:_SNAPPY_SIZE_BYTES]:
        size |= (each & ~_VARINT_MORE) << shift
        shift += _VARINT_BITS
        if each < _VARINT_MORE:
            break
    if size > most:
        raise _too_large(most)
    return bytes(unpack(data))


def _library(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise Refused(
            codes.UNSUPPORTED_COMPRESSION_TYPE,
            f"{what} needs the extra lognode[kafka] on this node. Install the extra, or compress "
            "with gzip or zstd",
        ) from None
