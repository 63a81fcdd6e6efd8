"""Tokens: the credentials of clients.

A token is the text `<id>.<secret>`: 16 hexadecimal digits that name the token in lists and logs,
and 64 hexadecimal digits of 256 random bits. The SDK that creates a token draws it, so the secret
is never on the wire before a client uses it. The metadata keeps only the token's digest.

The digest is SHA-256 of the whole text. A slow hash such as scrypt or argon2 protects human
passwords against guessing; 128 random bits or more cannot be guessed at any speed. A fast hash also
keeps strangers from using up the node's processor with hellos. Nodes refuse shorter secrets.
"""

import os
import re
from typing import TYPE_CHECKING, Final

from .protocol.errors import InvalidArgument
from .protocol.private_files import read_private

if TYPE_CHECKING:
    from pathlib import Path  # this import takes long

_ID: Final = re.compile(r"[0-9a-f]{16}")
_TOKEN: Final = re.compile(r"([0-9a-f]{16})\.([A-Za-z0-9_-]{22,200})")
"""22 characters of base64 hold 132 bits."""
_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32


def draw() -> str:
    """Return a new token."""
    return f"{os.urandom(_ID_BYTES).hex()}.{os.urandom(_SECRET_BYTES).hex()}"


def is_id(text: object) -> bool:
    """Return whether the text can be a token's id."""
    return type(text) is str and _ID.fullmatch(text) is not None


def id_of(token: str) -> str:
    """Return the id of a token. Raises InvalidArgument for text that is not a token; the error
    does not repeat the text."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise InvalidArgument(
            f"the token has {len(token)} characters and is not of the form ID.SECRET; give the "
            "text that `lognode token create` printed", what="token",
        )  # fmt: skip
    return match[1]


def digest_of(token: str) -> bytes:
    """Return the digest of a token, which the metadata keeps."""
    import hashlib  # this import takes long, and only these two functions need it

    return hashlib.sha256(token.encode()).digest()


def is_token(token: str, digest: bytes) -> bool:
    """Return whether the token has that digest. The comparison takes constant time."""
    import hmac

    return hmac.compare_digest(digest_of(token), digest)


def read_token(path: "Path") -> str:
    """Return the token in a file that only its owner may read. Raises InvalidArgument."""
    token = read_private(path, "token file").decode("utf-8", "replace").strip()
    id_of(token)
    return token
