"""How a client shows its token: SASL with the mechanism PLAIN or SCRAM (`scram`), as bytes.

PLAIN sends the token itself, so the node can show the token to the other nodes for the client.
SCRAM needs a token that was created with keys for SCRAM: the cluster keeps nothing but a digest of
any other token, from which nobody can check a proof.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from ...client.protocol.errors import InvalidArgument
from ...client.scram import MECHANISMS
from . import codes
from .scram import Exchange, KeysOf, Step
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
    writer.array((PLAIN, *MECHANISMS), writer.text)
    return writer.done()


def authenticate_answer(
    error: int, message: str | None, version: int, answer: bytes = b""
) -> bytes:
    """Return the answer to an authentication, with the answer of the mechanism. The session lasts
    as long as the token."""
    writer = Writer()
    writer.int16(error)
    writer.text(message)
    writer.bytes_field(answer)
    if version >= _V1:
        writer.int64(0)  # session_lifetime_ms: the client does not authenticate again
    return writer.done()


def refusal(mechanism: str) -> int:
    """Return the error for a mechanism, or 0."""
    is_served = mechanism == PLAIN or mechanism in MECHANISMS
    return codes.NONE if is_served else codes.UNSUPPORTED_SASL_MECHANISM


def begun(mechanism: str, keys_of: KeysOf) -> Callable[[bytes], Awaitable[Step]]:
    """Return what takes the messages of a client, one after another. It raises InvalidArgument and
    Unauthorized; for a failure of `keys_of` see there."""
    if mechanism in MECHANISMS:
        return Exchange(mechanism, keys_of).step

    async def plain(message: bytes) -> Step:
        return Step(b"", token_of(message))

    return plain


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
