"""The handshake of the protocol: the contents of hello, welcome and proof.

`protocol/frames.py` shows their order; `protocol/` has everything that follows them.

Both sides of a node link prove that they hold the cluster's secret: HMAC-SHA-256 over both nonces,
both identities and a label of the side, so no proof can be reflected or replayed. The dialler
proves first: a stranger gets no proof from an acceptor, since a proof would allow guesses at the
secret. Inside TLS the proofs also cover the certificate of the acceptor, so a relay that ends TLS
cannot pass them on. The secret authenticates links; it encrypts nothing.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgpack

from . import frames
from .errors import InvalidArgument, RemoteProtocolError, Unauthorized, Unsupported
from .record import Record

MAGIC: Final = "lognode"
VERSION_MIN: Final = 2
VERSION_MAX: Final = 2
"""Version 1 named operations by texts; version 2 uses the numbers of `protocol`."""
COMPRESSIONS: Final = ("zstd",)
nonce_bytes: Final = frames.nonce_bytes

Role = Literal["client", "node"]


class Hello(NamedTuple):
    """The identity of the dialler. `cluster` and `node` may be None: unknown."""

    role: Role
    nonce: bytes
    cluster: str | None = None
    node: int | None = None
    incarnation: int = 0
    version_min: int = VERSION_MIN
    version_max: int = VERSION_MAX
    compressions: tuple[str, ...] = COMPRESSIONS
    token: str | None = None
    """The credential of a client; see `tokens`."""

    def __repr__(self) -> str:
        return f"<Hello of a {self.role}, cluster {self.cluster}, node {self.node}>"

    def to_body(self) -> dict[str, Any]:
        """Return the body of the hello frame."""
        told = {} if self.token is None else {"token": self.token}
        return {
            "magic": MAGIC,
            "versions": [self.version_min, self.version_max],
            "role": self.role,
            "cluster": self.cluster,
            "node": self.node,
            "incarnation": self.incarnation,
            "nonce": self.nonce,
            "compressions": list(self.compressions),
            **told,
        }

    @classmethod
    def from_body(cls, body: Mapping[Any, Any]) -> "Hello":
        """Return the hello of a body. Raises RemoteProtocolError where `frames.HELLO_BODY`
        forbids the body."""
        if body.get("magic") != MAGIC:
            raise RemoteProtocolError(
                "this is a lognode listener; the other side speaks another protocol"
            )
        hello = _checked(frames.HELLO_BODY, "hello", body)
        return cls(
            role=hello["role"],
            nonce=hello["nonce"],
            cluster=hello["cluster"],
            node=hello["node"],
            incarnation=hello["incarnation"],
            version_min=hello["versions"][0],
            version_max=hello["versions"][1],
            compressions=tuple(hello["compressions"]),
            token=hello["token"],
        )

    def agreed_version(self) -> int:
        """Return the highest version that both sides speak. Raises Unsupported."""
        version = min(self.version_max, VERSION_MAX)
        if version < max(self.version_min, VERSION_MIN):
            raise Unsupported(
                f"the other side speaks protocol versions {self.version_min} to "
                f"{self.version_max}, this side {VERSION_MIN} to {VERSION_MAX}: upgrade the "
                "older side"
            )
        return version


class Welcome(NamedTuple):
    """The identity of the acceptor. `node` is None on a node that has not joined a cluster yet;
    `wants_proof`: nodes have to prove that they hold the cluster's secret."""

    nonce: bytes
    version: int = VERSION_MAX
    cluster: str | None = None
    node: int | None = None
    wants_proof: bool = False

    def to_body(self) -> dict[str, Any]:
        """Return the body of the welcome frame."""
        return {
            "version": self.version,
            "cluster": self.cluster,
            "node": self.node,
            "nonce": self.nonce,
            "wants_proof": self.wants_proof,
        }

    @classmethod
    def from_body(cls, body: Mapping[Any, Any]) -> "Welcome":
        """Return the welcome of a body. Raises RemoteProtocolError where `frames.WELCOME_BODY`
        forbids the body, and for another version."""
        welcome = _checked(frames.WELCOME_BODY, "welcome", body)
        if not VERSION_MIN <= welcome["version"] <= VERSION_MAX:
            raise RemoteProtocolError(
                "the welcome has a protocol version that this side did not offer"
            )
        return cls(
            nonce=welcome["nonce"],
            version=welcome["version"],
            cluster=welcome["cluster"],
            node=welcome["node"],
            wants_proof=welcome["wants_proof"],
        )


def prove(
    secret: bytes,
    side: Literal["dialler", "acceptor"],
    hello: Hello,
    welcome: Welcome,
    binding: bytes = b"",
) -> bytes:
    """Return the proof that `side` holds the secret.

    `binding`: the unique property of the TLS channel (`Channel.binding`); empty without TLS.
    """
    import hmac  # this import takes long, and only a cluster with a secret needs it

    claims = [
        "lognode/2", side, hello.nonce, welcome.nonce, hello.role, hello.cluster, hello.node,
        hello.incarnation, welcome.version, welcome.cluster, welcome.node, binding,
    ]  # fmt: skip
    return hmac.new(secret, msgpack.packb(claims), "sha256").digest()


def check_proof(
    secret: bytes,
    side: Literal["dialler", "acceptor"],
    hello: Hello,
    welcome: Welcome,
    proof: object,
    binding: bytes = b"",
) -> None:
    """Raise Unauthorized unless `proof` is the proof of `side`."""
    import hmac

    if type(proof) is not bytes:
        raise Unauthorized(
            f"this cluster has a secret and the {side} sent no proof of the secret: start "
            "every node with the same --secret-file"
        )
    if not hmac.compare_digest(prove(secret, side, hello, welcome, binding), proof):
        raise Unauthorized(
            f"the {side} holds another secret, or a third party relays this connection: "
            "compare the --secret-file of both nodes"
        )


def _checked(record: Record, kind: str, body: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the fields of a handshake frame. Raises RemoteProtocolError."""
    try:
        return record.check(body)
    except InvalidArgument as error:
        raise RemoteProtocolError(f"malformed {kind}: {error.message}") from None
