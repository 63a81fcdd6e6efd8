"""Kinds of frames that every connection uses, whatever its requests.

Dialler and acceptor open with

    dialler                     acceptor
    [0, HELLO, {...}]  ->
                       <-       [0, WELCOME, {...}]      or [0, ERROR, {...}] and the end
    [0, PROOF, {...}]  ->                                only between nodes with a secret
                       <-       [0, PROOF, {...}]

Then the dialler sends requests `[id, operation, body]` with an id above 0, many at once, and the
acceptor answers each with `[id, OK, body]` or `[id, ERROR, body]`, in any order. The acceptor
answers an operation that streams with `[id, PUSH, body]` until `[id, END, body]`, an error, or the
dialler's `[id, CANCEL, {}]`; `[id, CREDIT, {bytes}]` allows that many more bytes of pushes. Nobody
answers `[0, operation, body]`. An unknown operation gets the error UNSUPPORTED.
"""

from typing import Final

from .kinds import Array, Binary, Flag, Integer, Row, SecretText, Text
from .record import Optional, Record

HELLO: Final = 1
WELCOME: Final = 2
PROOF: Final = 3
OK: Final = 4
ERROR: Final = 5
PUSH: Final = 6
END: Final = 7
CREDIT: Final = 8
CANCEL: Final = 9
ALIVE: Final = 10
PING: Final = 11

OPERATIONS_FROM: Final = 32
"""Numbers below are frames, numbers from here on are operations."""
KIND_MAX: Final = 65_535

NAMES: Final = {
    HELLO: "hello",
    WELCOME: "welcome",
    PROOF: "proof",
    OK: "ok",
    ERROR: "error",
    PUSH: "push",
    END: "end",
    CREDIT: "credit",
    CANCEL: "cancel",
    ALIVE: "alive",
    PING: "ping",
}
ABOUT: Final = {
    HELLO: "The dialler says who it is, which versions it speaks, and a nonce.",
    WELCOME: "The acceptor says who it is and which version both speak.",
    PROOF: "A node proves that it holds the cluster's secret.",
    OK: "The answer to a request.",
    ERROR: (
        "The node refused the request or failed: `code`, `message`, `outcome`, `fields`. With "
        "id 0 the acceptor ends the connection for this reason."
    ),
    PUSH: "One part of a stream.",
    END: "The stream is complete.",
    CREDIT: (
        "The dialler has read this number of bytes of a stream, and the acceptor may push the "
        "same number more."
    ),
    CANCEL: "The dialler no longer wants the answer.",
    ALIVE: "The acceptor has paused reading and is alive.",
    PING: (
        "A question whether the acceptor is alive. The acceptor answers at once with an empty OK."
    ),
}

nonce_bytes: Final = 32
_NONCE: Final = Binary(nonce_bytes, nonce_bytes)
token_chars_max: Final = 256
"""The characters of a token. Tokens of other programs may have longer secrets than lognode's."""
_VERSION: Final = Integer(0, 65_535)
_CLUSTER_ID: Final = Text(256)
HELLO_BODY: Final = Record({
    "magic": Text(0, among=("lognode",)),
    "versions": Row(min=_VERSION, max=_VERSION),
    "role": Text(0, among=("client", "node")),
    "cluster": Optional(_CLUSTER_ID),
    "node": Optional(Integer()),
    "incarnation": Optional(Integer(), 0),
    "nonce": _NONCE,
    "compressions": Optional(Array(Text(32), 16), ()),
    "token": Optional(SecretText(token_chars_max)),
})  # fmt: skip
WELCOME_BODY: Final = Record({
    "version": _VERSION,
    "cluster": Optional(_CLUSTER_ID),
    "node": Optional(Integer()),
    "nonce": _NONCE,
    "wants_proof": Optional(Flag(), False),
})  # fmt: skip
PROOF_BODY: Final = Record({"proof": Binary(32, 32)})
CREDIT_BODY: Final = Record({"bytes": Integer(1)})
