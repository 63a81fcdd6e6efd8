"""Grants of producer ids: who may append, fence and close under an id (capabilities).

Ranges believe whoever names a producer id: a retry is told from a new record by it (S8), a fence
shuts out lower epochs (S9), and a close lets a range forget the numbers. So with authorisation an
id is a capability of the principal that opened it. Opening answers a grant, a block of ids with a
keyed hash of the block and of its owner, and each request that names an id brings the grant. A node
checks the grant by itself, without asking anybody and without a record per id: it needs only the
key, which all nodes have with the metadata. A grant is of no use to another principal.

The key is drawn once and stays: a grant holds as long as its principal. Compare macaroons
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
"""The first id and how many."""
_TAG_BYTES: Final = 16
GRANT_BYTES: Final = _BLOCK.size + _TAG_BYTES


def grant(key: bytes, first: int, count: int, owner: str) -> bytes:
    """Return the grant of `count` ids from `first` on to a principal."""
    block = _BLOCK.pack(first, count)
    return block + _tag(key, block, owner)


def granted(key: bytes, told: bytes, owner: str) -> range:
    """Return the ids of a grant that the principal shows. Raises Unauthorized."""
    block, tag = told[: _BLOCK.size], told[_BLOCK.size :]
    if len(told) != GRANT_BYTES or not hmac.compare_digest(tag, _tag(key, block, owner)):
        raise Unauthorized(
            f"the grant of producer ids was not given to {owner} by this cluster; open a producer "
            "and send the grant of the answer"
        )
    first, count = _BLOCK.unpack(block)
    return range(first, first + count)


def _tag(key: bytes, block: bytes, owner: str) -> bytes:
    return hashlib.blake2b(block + owner.encode(), digest_size=_TAG_BYTES, key=key).digest()
