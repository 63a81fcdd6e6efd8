"""The running hash of what entries did: the seqs and replies that apply gave, the rows it changed.

The state hash is one of commands: members that were given the same entries have the same, also
where one of them applied an entry differently. This hash tells such members apart at the next seal.
Members compare it only where it means the same on both sides:

*   `VERSION` is that of the definition. A program that hashes anything else raises it.
*   `since` is the entry behind which the hash begins: the first one of the generation, or the base
    from which a program began that found none of its own version, so after an upgrade in the
    middle of a generation.

Hashed are codes of refusals, not their texts, which a new version may word better.
"""

import struct
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgpack

VERSION: Final = 1
_DIGEST_BYTES: Final = 16
_BUFFER_BYTES: Final = 1_024
_HEAD: Final = struct.Struct(">BQ")
_BYTES: Final = _HEAD.size + _DIGEST_BYTES


class Effects:
    """The hash of one replica, as far as its entries are applied."""

    __slots__ = ("_digest", "_head")

    def __init__(self, stored: bytes, index: int, *, begins: bool) -> None:
        """Go on from what the tables of the base at `index` have. `begins`: the generation begins
        there, and so does its hash, whatever the tables of its parents say."""
        self._head, self._digest = _HEAD.pack(VERSION, index), bytes(_DIGEST_BYTES)
        if not begins and len(stored) == _BYTES and stored[0] == VERSION:
            self._head, self._digest = stored[: _HEAD.size], stored[_HEAD.size :]

    def add(self, effects: Sequence[Any]) -> None:
        """An entry was applied: msgpack values that say what it did."""
        # `packb` takes twice as long: it begins with a buffer of 256 KiB.
        packed: bytes = msgpack.Packer(buf_size=_BUFFER_BYTES).pack(effects)
        self._digest = blake2b(self._digest + packed, digest_size=_DIGEST_BYTES).digest()

    def to_wire(self) -> bytes:
        """As tables and reports have it."""
        return self._head + self._digest


def differ(one: bytes, other: bytes) -> bool:
    """Whether these, of the same entries, show that the entries did different things. Not so where
    they cannot be compared: b"" is what a program knows that keeps no such hash."""
    return one != other and one[: _HEAD.size] == other[: _HEAD.size] and bool(one and other)


def of_reply(reply: Mapping[str, Any]) -> Any:
    """What of a reply is hashed."""
    if reply["status"] == "ok":
        return reply
    error = reply["error"]
    return error["code"], error["fields"].get("actual")
