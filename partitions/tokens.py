"""Tokens in the metadata: who may do what in the cluster.

The first token turns authorisation on for ever. It is part of the command that founds a cluster
with `--auth`, or is created later. The first token therefore has to allow everything, and the last
token that may create tokens for ever cannot be revoked: the administrators cannot lock themselves
out.

A record has either the digest of a secret (see `client.tokens`) or the name of a certificate's
holder. A record with a digest may have keys for SCRAM (see `client.scram`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import msgpack

from ..client.protocol import characters, limits
from ..client.protocol.errors import Conflict, InvalidArgument, LimitExceeded, NotFound
from ..client.protocol.principal import DEFAULT_CLASS, check_principal_name
from ..client.protocol.scopes import VERBS, Scope, from_rows, scopes_of, to_rows
from ..client.protocol.scopes import check_new as check_new_scope
from ..client.scram import is_client_key
from ..client.tokens import is_id, is_token
from . import levels
from .command_fields import number, text

if TYPE_CHECKING:
    from .metadata_state import MetadataState

_DIGEST_BYTES: Final = 32
_KEPT_MS: Final = 24 * 3_600 * 1_000
"""An expired token stays in the list this long, and is removed at the next creation of a token."""

Command = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token. Times are milliseconds since 1970; `expires_ms` 0 means never."""

    token_id: str
    principal: str
    scopes: tuple[Scope, ...]
    digest: bytes = field(default=b"", repr=False)
    certificate: str = ""
    """`client NAME`, `name COMMON-NAME` or `key FINGERPRINT`; "" for a token with a digest."""
    created_ms: int = 0
    expires_ms: int = 0
    quota_class: str = DEFAULT_CLASS
    scram: bytes = field(default=b"", repr=False)
    """The keys by which Kafka clients can prove the token; empty for none."""

    @property
    def rules_for_ever(self) -> bool:
        """Whether the token may create tokens, now and for ever."""
        return not self.expires_ms and any(
            "admin" in scope.verbs and scope.has_every_log for scope in self.scopes
        )

    def is_expired(self, now_ms: int) -> bool:
        """Whether the token has expired."""
        return 0 < self.expires_ms <= now_ms

    def is_shown_by(self, text: str) -> bool:
        """Whether the text is that of the token, or of a client key of the token."""
        return is_token(text, self.digest) or is_client_key(text, self.scram)

    def to_image(self) -> dict[str, Any]:
        """Return the record as msgpack values."""
        return {
            "id": self.token_id,
            "principal": self.principal,
            **to_rows(self.scopes),
            "digest": self.digest,
            "certificate": self.certificate,
            "created_ms": self.created_ms,
            "expires_ms": self.expires_ms,
            "quota_class": self.quota_class,
            **({"scram": self.scram} if self.scram else {}),
        }

    @classmethod
    def from_image(cls, body: dict[str, Any]) -> Self:
        """Undo `to_image`. Raises KeyError, TypeError, InvalidArgument."""
        return cls(
            body["id"], body["principal"], from_rows(body), body["digest"], body["certificate"],
            body["created_ms"], body["expires_ms"], body["quota_class"], body.get("scram", b""),
        )  # fmt: skip

    def to_row(self) -> dict[str, Any]:
        """Return what administrators may see: everything but the digest and the keys."""
        row = {**self.to_image(), "expires_ms": self.expires_ms or None}
        del row["digest"]
        if self.scram:
            row["scram"] = True
        return row


def create(metadata: "MetadataState", command: Command) -> dict[str, Any]:
    """Add the token. A repetition changes nothing.

    Raises InvalidArgument and LimitExceeded, and Unsupported for patterns and for keys for SCRAM
    below their feature level. Raises Conflict for an id or a certificate that has another record,
    and for a first token that does not rule for ever.
    """
    record = _record(command)
    levels.check_pattern_scopes(metadata.feature_level, record.scopes)
    levels.check_scram(metadata.feature_level, record.scram)
    patterns = sum(scope.by_pattern for scope in record.scopes)
    answer: dict[str, Any] = {"patterns": patterns} if patterns else {}
    if record.scram:
        answer["scram"] = True
    known = metadata.tokens.get(record.token_id)
    if known is not None:
        if _same(known, record):
            return {"id": known.token_id, "version": metadata.version, **answer}
        raise Conflict(f"token {record.token_id} exists already; draw another id")
    if not metadata.has_auth and not record.rules_for_ever:
        raise Conflict(
            "the first token of a cluster turns authorisation on for ever, but token "
            f"{record.token_id} may not create tokens for ever; first create a token with "
            "the scope `all` and without expiry"
        )
    kept = _kept(metadata.tokens.values(), record.created_ms)
    _check_room(kept, record)
    if record.certificate and any(each.certificate == record.certificate for each in kept):
        raise Conflict(
            f"certificate {record.certificate!r} has a record already; revoke that record first"
        )
    metadata.tokens = {each.token_id: each for each in (*kept, record)}
    metadata.tokens_version = metadata.version + 1
    return {"id": record.token_id, "version": metadata.version + 1, **answer}


def revoke(metadata: "MetadataState", command: Command) -> dict[str, Any]:
    """Remove the token. Raises NotFound, and Conflict for the last token that rules for ever."""
    record = metadata.tokens.get(text(command, "id"))
    if record is None:
        raise NotFound(
            f"token {text(command, 'id')} does not exist; `lognode token list` shows all tokens"
        )
    others = {key: each for key, each in metadata.tokens.items() if each is not record}
    if record.rules_for_ever and not any(each.rules_for_ever for each in others.values()):
        raise Conflict(
            f"token {record.token_id} is the last token that may create tokens for ever; "
            "first create another token with the scope `all` and without expiry"
        )
    metadata.tokens = others
    metadata.tokens_version = metadata.version + 1
    return {"version": metadata.version + 1}


def check_digest(digest: object) -> bytes:
    """Return a token's digest. Raises InvalidArgument."""
    if type(digest) is not bytes or len(digest) != _DIGEST_BYTES:
        raise InvalidArgument(
            f"the digest of a token must have {_DIGEST_BYTES} bytes", what="digest"
        )
    return digest


def check_new(command: Command) -> None:
    """Raise InvalidArgument unless the command may bring the names of this token into the log.

    Members of every version of lognode and of Python accept the names.
    """
    for scope in from_rows(command):
        check_new_scope(scope)
    quota_class = text(command, "quota_class")
    if not characters.is_printable(quota_class.replace(" ", "")):
        raise _bad_class(quota_class)


def first_token(token_id: str, digest: bytes, principal: str = "admin") -> Command:
    """Return the command that creates a cluster's first token: it allows everything for ever."""
    everything = Scope(frozenset(VERBS))
    return {
        "id": token_id,
        "digest": digest,
        "principal": principal,
        "scopes": [everything.to_wire()],
    }


def _record(command: Command) -> TokenRecord:
    token_id, certificate = text(command, "id"), text(command, "certificate")
    if not is_id(token_id):
        raise InvalidArgument(
            f"the token id is {token_id!r}; an id has 16 hexadecimal digits", what="id"
        )
    digest = command.get("digest")
    if (digest is None) == (not certificate):
        raise InvalidArgument(
            "a token has a digest or names a certificate; give only one of the two"
        )
    scram = command.get("scram") or b""
    if scram and (certificate or type(scram) is not bytes or len(scram) != limits.scram_keys_bytes):
        raise InvalidArgument(
            f"keys for SCRAM are {limits.scram_keys_bytes} bytes of a token with a digest",
            what="scram",
        )
    if len(certificate) > limits.certificate_holder_chars_max:
        raise InvalidArgument(
            f"the holder of the certificate has {len(certificate)} characters, which is too long",
            what="id",
        )
    created_ms, expires_ms = number(command, "at_ms"), number(command, "expires_ms")
    if 0 < expires_ms <= created_ms:
        raise InvalidArgument(
            f"the token would expire {(created_ms - expires_ms) // 1000} s ago; give a later time",
            what="expires_ms",
        )
    quota_class = text(command, "quota_class") or DEFAULT_CLASS
    fit = characters.is_fit(quota_class.replace(" ", ""))
    if len(quota_class) > limits.quota_class_chars_max or not fit:
        raise _bad_class(quota_class)
    return TokenRecord(
        token_id=token_id,
        principal=check_principal_name(text(command, "principal")),
        scopes=scopes_of(from_rows(command)),
        digest=b"" if certificate else check_digest(digest),
        certificate=certificate,
        created_ms=created_ms,
        expires_ms=expires_ms,
        quota_class=quota_class,
        scram=scram,
    )


def _bad_class(quota_class: str) -> InvalidArgument:
    return InvalidArgument(
        f"the quota class {quota_class[:80]!a} is not allowed; use 1 to "
        f"{limits.quota_class_chars_max} letters, digits and `- _ .`", what="quota_class",
    )  # fmt: skip


def _same(known: TokenRecord, asked: TokenRecord) -> bool:
    """Whether the second creation repeats the first: everything but the time is equal."""
    return {**known.to_image(), "created_ms": 0} == {**asked.to_image(), "created_ms": 0}


def _kept(tokens: Iterable[TokenRecord], now_ms: int) -> list[TokenRecord]:
    return [each for each in tokens if not each.is_expired(now_ms - _KEPT_MS)]


def _check_room(kept: list[TokenRecord], record: TokenRecord) -> None:
    if len(kept) >= limits.tokens_max:
        raise LimitExceeded(
            f"the cluster would have {len(kept)} tokens; {limits.tokens_max} are allowed: "
            "revoke some",
            limit="tokens_max", value=len(kept) + 1, allowed=limits.tokens_max,
        )  # fmt: skip
    size = sum(map(_size, (*kept, record)))
    if size > limits.tokens_bytes_max:
        raise LimitExceeded(
            f"the tokens of the cluster would have {size} bytes; {limits.tokens_bytes_max} are "
            "allowed: revoke some",
            limit="tokens_bytes_max", value=size, allowed=limits.tokens_bytes_max,
        )  # fmt: skip


def _size(record: TokenRecord) -> int:
    return len(msgpack.packb(record.to_image()))
