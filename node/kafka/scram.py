"""SCRAM (RFC 5802 and 7677), the node's side: two messages of a client, and their answers.

    client   n,,n=ID,r=NONCE                     the id of its token
    node     r=NONCE+MORE,s=SALT,i=ITERATIONS
    client   c=biws,r=NONCE+MORE,p=PROOF
    node     v=SIGNATURE                         proves that the node knows the keys

The proof is the client key of the token, hidden by the nonces of both sides. The node finds the
client key in the proof, and shows the key to the other nodes for the client (`client.scram`).
"""

import base64
import binascii
import hmac
import os
import re
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from ...client import scram
from ...client.protocol.errors import InvalidArgument, Unauthorized

_MESSAGE_BYTES_MAX: Final = 1_024
_NONCE_BYTES: Final = 18
_PRINTABLE: Final = rb"[!-+\--~]+"
"""Printable characters without a comma."""
_FIRST: Final = re.compile(rb"([ny],(?:a=[^,]*)?,)(n=([^,]+),r=(" + _PRINTABLE + rb")(,.*)?)")
_LAST: Final = re.compile(
    rb"(c=([A-Za-z0-9+/=]+),r=(" + _PRINTABLE + rb")(?:,.*)?),p=([A-Za-z0-9+/=]+)"
)
_DELEGATED: Final = b",tokenauth=true"

KeysOf = Callable[[str], Awaitable[bytes]]
"""Returns what the metadata keep of the token with an id (`client.scram.kept_keys`)."""


class Step(NamedTuple):
    """What a node makes of a message: the answer, and after the last message what the client has
    shown: the text of its token, or of a client key of the token."""

    answer: bytes
    shown: str | None = None


class _Begun(NamedTuple):
    """An exchange after the first message."""

    token_id: str
    keys: scram.Keys
    header: bytes
    """What the client says of channel bindings, which it says again with the proof."""
    nonces: tuple[bytes, bytes]
    """The nonces that a client may repeat: that of the challenge, or with the client's own in front
    once more, as librdkafka gave it before version 2.6.1. Each has the whole nonce of the node."""
    messages: bytes
    """The messages so far, as both sides sign them."""


class Exchange:
    """An authentication by one of `scram.MECHANISMS`. `keys_of` may raise Unauthorized."""

    def __init__(self, mechanism: str, keys_of: KeysOf) -> None:
        self._mechanism = mechanism
        self._keys_of = keys_of
        self._begun: _Begun | None = None

    async def step(self, message: bytes) -> Step:
        """Take the next message of the client.

        Raises InvalidArgument, whose text does not repeat the message, and Unauthorized.
        """
        if len(message) > _MESSAGE_BYTES_MAX:
            raise InvalidArgument(
                f"a message of SCRAM has {len(message)} bytes; {_MESSAGE_BYTES_MAX} are allowed"
            )
        if self._begun is None:
            return await self._first(message)
        return self._last(message, self._begun)

    async def _first(self, message: bytes) -> Step:
        match = _FIRST.fullmatch(message)
        if match is None or _DELEGATED in (match[5] or b""):
            raise InvalidArgument(
                "the first message of SCRAM has another form; channel bindings and delegation "
                "tokens are not served"
            )
        header, bare, token_id = match[1], match[2], match[3].decode(errors="replace")
        keys = scram.keys_of(await self._keys_of(token_id), self._mechanism)
        own = match[4]
        nonce = own + base64.b64encode(os.urandom(_NONCE_BYTES))
        salt = base64.b64encode(token_id.encode())
        answer = b"r=%b,s=%b,i=%d" % (nonce, salt, scram.ITERATIONS)
        self._begun = _Begun(
            token_id, keys, header, (nonce, own + nonce), bare + b"," + answer
        )  # fmt: skip
        return Step(answer)

    def _last(self, message: bytes, begun: _Begun) -> Step:
        match = _LAST.fullmatch(message)
        if match is None or match[3] not in begun.nonces or _decoded(match[2]) != begun.header:
            raise InvalidArgument("the last message of SCRAM does not belong to the first message")
        signed = begun.messages + b"," + match[1]
        name = scram.MECHANISMS[self._mechanism]
        signature = hmac.digest(begun.keys.stored, signed, name)
        proof = _decoded(match[4])
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        text = scram.text_of(begun.token_id, self._mechanism, client_key)
        if len(proof) != len(signature) or not scram.is_key(name, client_key, begun.keys):
            raise Unauthorized(
                "the password is not the text of the token. The user name is the id of the token; "
                "the password is the whole text that `lognode token create --scram` printed"
            )
        return Step(b"v=" + base64.b64encode(hmac.digest(begun.keys.server, signed, name)), text)


def _decoded(data: bytes) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise InvalidArgument("a message of SCRAM has a value that is not base64") from None
