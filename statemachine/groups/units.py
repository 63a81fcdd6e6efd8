"""Units: what a consumer of a group has at a time.

With `ordering` "key" the unit is a key. With "none" the unit is one entry: its key, and its seq in
8 bytes. Commands, rows and leases name units. Spans are of keys, and the bytes of a unit say
nothing about spans: a range may end between a key and the units of its entries.
"""

from typing import Final

from ...client.protocol import limits

_SEQ_BYTES: Final = 8
UNIT_BYTES_MAX: Final = limits.key_bytes_max + _SEQ_BYTES
ENTRY_UNIT_BYTES_MIN: Final = 1 + _SEQ_BYTES


def entry_unit(key: bytes, seq: int) -> bytes:
    """Return the unit of an entry."""
    return key + seq.to_bytes(_SEQ_BYTES, "big")


def key_of(unit: bytes) -> bytes:
    """Return the key of the unit of an entry."""
    return unit[:-_SEQ_BYTES]


def seq_of(unit: bytes) -> int:
    """Return the seq of the unit of an entry."""
    return int.from_bytes(unit[-_SEQ_BYTES:], "big")
