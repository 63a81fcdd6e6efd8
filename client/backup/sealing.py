"""Names, compression and encryption of what a backup stores.

Without a key an object's name is the SHA-256 of its content. With a key the name is an HMAC-SHA-256
by a key of its own, so that names tell nobody whether a guessed content is there. Objects are
compressed first and encrypted then, by AES-256-GCM with a random nonce; the name is authenticated
too, so that an object cannot take the place of another.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Any, Final

from ..protocol.errors import CorruptData, InvalidArgument

CONTENT_BYTES_MAX: Final = 64 << 20
"""The largest content: a manifest of many objects. Nothing larger is unpacked."""
_NONCE_BYTES: Final = 12
_SALT_BYTES: Final = 16
_SCRYPT: Final = {"n": 1 << 15, "r": 8, "p": 1}
_CHECK: Final = b"lognode backup"


class Sealing:
    """Names, seals and opens contents. All methods block for milliseconds: call them in a thread.

    `key`: 64 bytes, for encryption and for names; None: without encryption.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key

    @classmethod
    def new(cls, secret: bytes | None) -> tuple["Sealing", dict[str, Any]]:
        """Return the sealing of a new store with this secret, and its description."""
        if secret is None:
            return cls(), {"encryption": None}
        salt = os.urandom(_SALT_BYTES)
        found = cls(_derived(secret, salt))
        check = found.name(_CHECK)
        return found, {"encryption": {"kdf": "scrypt", "salt": salt.hex(), "check": check}}

    @classmethod
    def described(cls, description: Mapping[str, Any], secret: bytes | None) -> "Sealing":
        """Return the sealing of a store. Raises InvalidArgument for a missing or wrong secret, and
        CorruptData for an invalid description."""
        told = description.get("encryption")
        if told is None:
            if secret is not None:
                raise InvalidArgument(
                    "a secret was given; this store is not encrypted. Leave the secret out, or "
                    "use another store",
                    what="secret",
                )
            return cls()
        if secret is None:
            raise InvalidArgument(
                "the store is encrypted; give its secret with --key-file", what="secret"
            )
        try:
            salt, check = bytes.fromhex(told["salt"]), str(told["check"])
        except (KeyError, TypeError, ValueError):
            raise CorruptData("the description of the store's encryption is damaged") from None
        found = cls(_derived(secret, salt))
        if not hmac.compare_digest(found.name(_CHECK), check):
            raise InvalidArgument(
                "the secret does not open this store; give the secret with which the store was "
                "made",
                what="secret",
            )
        return found

    def name(self, content: bytes) -> str:
        """Return the name of an object with this content."""
        if self._key is None:
            return hashlib.sha256(content).hexdigest()
        return hmac.new(self._key[32:], content, hashlib.sha256).hexdigest()

    def seal(self, name: str, content: bytes) -> bytes:
        """Return the bytes to store."""
        import zstandard

        packed = zstandard.ZstdCompressor(level=3).compress(content)
        if self._key is None:
            return packed
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._key[:32]).encrypt(nonce, packed, name.encode())

    def open(self, name: str, stored: bytes, told: str = "") -> bytes:
        """Return the content of stored bytes. Raises CorruptData with the name `told`, or `name`
        without it."""
        import zstandard

        packed, told = stored, told or name
        if self._key is not None:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            nonce, sealed = stored[:_NONCE_BYTES], stored[_NONCE_BYTES:]
            try:
                packed = AESGCM(self._key[:32]).decrypt(nonce, sealed, name.encode())
            except (InvalidTag, ValueError):
                raise damaged(told, "the authentication fails") from None
        try:
            claimed = zstandard.frame_content_size(packed)
            if not 0 <= claimed <= CONTENT_BYTES_MAX:
                raise damaged(told, f"the frame claims {claimed} bytes")
            return zstandard.ZstdDecompressor().decompress(packed)
        except zstandard.ZstdError as error:
            raise damaged(told, str(error)) from None

    def open_object(self, name: str, stored: bytes, digest: str) -> bytes:
        """Return the content of an object, whose hash must fit. Raises CorruptData, which has the
        object's name."""
        content = self.open(digest, stored, f"object {name}")
        if not hmac.compare_digest(self.name(content), digest):
            raise damaged(f"object {name}", "the content has another hash")
        return content


def damaged(name: str, why: str) -> CorruptData:
    """Return the error for a damaged object or manifest."""
    return CorruptData(
        f"{name} of the backup is damaged: {why}. Restore from another backup",
        outcome="not_applied",
    )


def _derived(secret: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(secret, salt=salt, dklen=64, maxmem=1 << 27, **_SCRYPT)
