"""Grants of producer ids: who may append, fence and close under an id (capabilities).

Ranges trust any request that names a producer id. The id tells a retry from a new record (S8), a
fence shuts out lower epochs (S9), and a close lets a range forget the numbers. With authorisation,
an id is therefore a capability of the principal that opened it. An opening answers a grant: a block
of ids with a keyed hash of the block and of its owner. Each request that names an id brings the
grant. A node checks the grant without asking another node and without a record per id: it needs
only the key, which all nodes have with the metadata. Another principal cannot use the grant.

The key is drawn once and stays: a grant is valid as long as its principal is. Compare macaroons
(Birgisson et al., NDSS 2014), of which this is the simplest case, and sealed capabilities of Amoeba
(Tanenbaum et al., ICDCS 1986).
"""

import hashlib
import hmac
import struct
from typing import Final

from ..client.protocol.errors import Unauthorized

KEY_BYTES: Final = 16
_BLOCK: Final = struct.Struct(">QI")
"""The first id and the number of ids."""
_TAG_BYTES: Final = 16
GRANT_BYTES: Final = _BLOCK.size + _TAG_BYTES


def grant(key: bytes, first: int, count: int, owner: str) -> bytes:
    """Return the grant of `count` ids, from `first` on, to a principal."""
    block = _BLOCK.pack(first, count)
    return block + _tag(key, block, owner)


def granted(key: bytes, told: bytes, owner: str) -> range:
    """Return the ids of a grant that a principal shows. Raises Unauthorized."""
    block, tag = told[: _BLOCK.size], told[_BLOCK.size :]
    if len(told) != GRANT_BYTES or not hmac.compare_digest(tag, _tag(key, block, owner)):
        raise Unauthorized(
            f"this cluster did not give {owner} the grant of producer ids; open a producer "
            "and send the grant of the answer"
        )
    first, count = _BLOCK.unpack(block)
    return range(first, first + count)


def _tag(key: bytes, block: bytes, owner: str) -> bytes:
    return hashlib.blake2b(block + owner.encode(), digest_size=_TAG_BYTES, key=key).digest()
