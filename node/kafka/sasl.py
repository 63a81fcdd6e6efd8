"""How a client shows its token: SASL with the mechanism PLAIN, as bytes.

A cluster keeps only the SHA-256 of a token (`client.tokens`), and PLAIN sends the token itself. So
the node can check the token, and can show the token to the other nodes for the client. SCRAM cannot
be served: to check a proof of SCRAM, a node needs the salted PBKDF2 of the token, which the digest
does not give. The digest cannot be the password of SCRAM either: a reader of the metadata would
then have the passwords of all clients.
"""

from typing import Final

from ...client.protocol.errors import InvalidArgument
from . import codes
from .wire import Reader, Writer

PLAIN: Final = "PLAIN"
_V1: Final = 1
_PARTS: Final = 3


def handshake(reader: Reader, _: int) -> str:
    """Return the mechanism that the client wants. Raises Malformed."""
    return reader.text()


def authenticate(reader: Reader, _: int) -> bytes:
    """Return the bytes of the mechanism. Raises Malformed."""
    return reader.nullable_bytes() or b""


def handshake_answer(error: int) -> bytes:
    """Return the answer to a handshake, with all mechanisms of the node."""
    writer = Writer()
    writer.int16(error)
    writer.array((PLAIN,), writer.text)
    return writer.done()


def authenticate_answer(error: int, message: str | None, version: int) -> bytes:
    """Return the answer to an authentication. The session lasts as long as the token."""
    writer = Writer()
    writer.int16(error)
    writer.text(message)
    writer.bytes_field(b"")
    if version >= _V1:
        writer.int64(0)  # session_lifetime_ms: the client does not authenticate again
    return writer.done()


def refusal(mechanism: str) -> int:
    """Return the error for a mechanism, or 0."""
    return codes.NONE if mechanism == PLAIN else codes.UNSUPPORTED_SASL_MECHANISM


def token_of(data: bytes) -> str:
    """Return the token in a message of PLAIN, which is the password; the user name may be any.

    Raises InvalidArgument, whose text does not repeat the message.
    """
    parts = data.split(b"\0", _PARTS)
    if len(parts) != _PARTS or parts[0] not in (b"", parts[1]):
        raise InvalidArgument(
            "the message of PLAIN has another form; give any user name, and the token as password"
        )
    return parts[2].decode(errors="replace")
