"""A client of SCRAM (RFC 5802) that shares no code with lognode."""

import base64
import hashlib
import hmac


class ScramClient:
    """One exchange: `first`, then `last` with the answer, then `is_proven` with the last answer."""

    def __init__(
        self, user: str, password: str, hash_name: str, *, nonce: bytes = b"fyko+d2lbbFgONRv9qkx",
        header: bytes = b"n,,", more: bytes = b"", again: bytes = b"",
    ) -> None:  # fmt: skip
        self._password = password.encode()
        self._hash = hash_name
        self._nonce = nonce
        self._header = header
        self._again = again
        """What goes before the nonce in the last message."""
        self._bare = b"n=" + user.encode() + b",r=" + nonce + more
        self._signed = b""
        self._salted = b""

    @property
    def first(self) -> bytes:
        return self._header + self._bare

    def last(self, answer: bytes) -> bytes:
        parts = dict(part.split(b"=", 1) for part in answer.split(b","))
        assert parts[b"r"].startswith(self._nonce)
        assert len(parts[b"r"]) >= len(self._nonce) + 16
        salt = base64.b64decode(parts[b"s"])
        self._salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(parts[b"i"]))
        without = b"c=" + base64.b64encode(self._header) + b",r=" + self._again + parts[b"r"]
        self._signed = b",".join((self._bare, answer, without))
        client = self._hmac(self._salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client).digest(), self._signed)
        proof = bytes(a ^ b for a, b in zip(client, signature, strict=True))
        return without + b",p=" + base64.b64encode(proof)

    def is_proven(self, answer: bytes) -> bool:
        server = self._hmac(self._salted, b"Server Key")
        return answer == b"v=" + base64.b64encode(self._hmac(server, self._signed))

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)
