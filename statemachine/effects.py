"""The running hash of the effects of entries: the seqs and replies of apply, the changed rows.

The state hash covers commands: members that were given the same entries have the same hash, even if
one of them applied an entry differently. This hash tells such members apart at the next seal.
Members compare it only where it has the same meaning on both sides:

*   `VERSION` is the version of the definition. A program that hashes anything else raises it.
*   `since` is the entry after which the hash begins: the first entry of the generation, or the base
    from which a program began that found no hash of its version there. The latter happens after an
    upgrade in the middle of a generation.

The hash covers the codes of refusals, not their texts, which a new version may word better.
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
    """The hash of one replica, over its applied entries."""

    __slots__ = ("_digest", "_head")

    def __init__(self, stored: bytes, index: int, *, begins: bool) -> None:
        """Continue the hash in the tables of the base at `index`.

        `begins`: the generation begins there, and so does its hash, whatever its parents' tables
        contain.
        """
        self._head, self._digest = _HEAD.pack(VERSION, index), bytes(_DIGEST_BYTES)
        if not begins and len(stored) == _BYTES and stored[0] == VERSION:
            self._head, self._digest = stored[: _HEAD.size], stored[_HEAD.size :]

    def add(self, effects: Sequence[Any]) -> None:
        """Add the effects of an applied entry, as msgpack values."""
        # `packb` takes twice as long: it begins with a buffer of 256 KiB.
        packed: bytes = msgpack.Packer(buf_size=_BUFFER_BYTES).pack(effects)
        self._digest = blake2b(self._digest + packed, digest_size=_DIGEST_BYTES).digest()

    def to_wire(self) -> bytes:
        """Return the hash as tables and reports store it."""
        return self._head + self._digest


def differ(one: bytes, other: bytes) -> bool:
    """Whether two hashes of the same entries show that the entries had different effects.

    False where the hashes cannot be compared: b"" comes from a program without such a hash.
    """
    return one != other and one[: _HEAD.size] == other[: _HEAD.size] and bool(one and other)


def of_reply(reply: Mapping[str, Any]) -> Any:
    """Return the part of a reply that is hashed."""
    if reply["status"] == "ok":
        return reply
    error = reply["error"]
    return error["code"], error["fields"].get("actual")
