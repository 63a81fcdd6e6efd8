"""The ids of events: a follow that begins with the id of an event goes on right behind the event.

An id is the cursor of a follow as JSON, compressed, in base64 for addresses and headers. It names
the log and what was followed: the cursor of other keys would leave entries out.
"""

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Sequence
from typing import Final

from ...client.protocol import limits
from ...client.protocol.errors import InvalidArgument, LimitExceeded
from ...client.protocol.types import Cursor

ID_CHARS_MAX: Final = 7_168
"""An id fits into a header and into an address."""
_TEXT_BYTES_MAX: Final = 128 * limits.KIB
_PIECES_MAX: Final = 1_024
"""Spans or keys of a position."""
_HASH_CHARS: Final = 16


class EventIds:
    """Makes and reads the ids of one follow. `log_id`: the id of the log. The follow has `keys`, or
    the keys that `choice` describes."""

    def __init__(self, log_id: int, keys: Sequence[bytes], choice: object = None) -> None:
        self._has_keys = bool(keys)
        told = repr((log_id, list(keys), choice)).encode()
        self._of = hashlib.sha256(told).hexdigest()[:_HASH_CHARS]

    def made(self, cursor: Cursor) -> str:
        """Return the id of a position. Raises LimitExceeded for a position of too many keys or
        ranges."""
        text = f"{self._of} {json.dumps(json.loads(cursor.to_json()), separators=(',', ':'))}"
        found = base64.urlsafe_b64encode(zlib.compress(text.encode(), 1)).decode().rstrip("=")
        if len(found) > ID_CHARS_MAX:
            raise LimitExceeded(
                f"the id of an event has {len(found)} characters; the limit is {ID_CHARS_MAX}. "
                "Follow fewer keys, or a prefix with fewer ranges",
                limit="event_id_chars_max", value=len(found), allowed=ID_CHARS_MAX,
            )  # fmt: skip
        return found

    def read(self, text: str) -> Cursor:
        """Return the position of an id. Raises InvalidArgument."""
        if len(text) > ID_CHARS_MAX:
            raise _bad(f"the id has over {ID_CHARS_MAX} characters")
        try:
            packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            unpacker = zlib.decompressobj()
            plain = unpacker.decompress(packed, _TEXT_BYTES_MAX)
            if not unpacker.eof:
                raise _bad("the id is cut off")
            of, _, saved = plain.decode().partition(" ")
            if of != self._of:
                raise _bad("the id is of another log or of other keys")
            cursor = Cursor.from_json(saved)
        except (binascii.Error, zlib.error, ValueError, RecursionError):
            raise _bad("the text is not an id") from None
        if (cursor.keys is not None) != self._has_keys:
            raise _bad("the id is of a position of another kind")
        if len(cursor.keys or cursor.spans) > _PIECES_MAX:
            raise _bad(f"the id has over {_PIECES_MAX} positions")
        return cursor


def _bad(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"{why}; give the id of an event of the same request (Last-Event-ID), or begin with `from`",
        what="Last-Event-ID",
    )
