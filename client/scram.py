"""SCRAM for tokens: what a cluster keeps of a token so that Kafka clients can prove the token.

A client of SCRAM (RFC 5802; RFC 7677 for SHA-256) never sends its password, which is the text of
the token. The cluster keeps two keys for each mechanism instead. By these keys a node checks the
proofs of clients, and nobody can make a proof:

    salted     PBKDF2 of the token, with the id of the token as the salt
    client key HMAC of the text "Client Key" by `salted`; the proof gives the client key to the node
    stored     the hash of the client key, which the metadata keep
    server     HMAC of the text "Server Key" by `salted`, which the metadata keep

The hash of the client key is kept like the hash of a token (`tokens`). So the client key is a
second text of the token (`text_of`): a node shows the text to other nodes for a Kafka client, as
the node shows the token of a client that sent the token itself (PLAIN).

The secret of a token has 132 random bits or more, which nobody guesses at any speed. So the fewest
iterations that clients of Kafka take are enough, and the id, which no other token has, is salt.
"""

import re
from typing import Final, NamedTuple

from .tokens import id_of

MECHANISMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The names of the hash functions, by mechanism."""
ITERATIONS: Final = 4_096
_KEY_BYTES: Final = {"sha256": 32, "sha512": 64}
_CLIENT_KEY: Final = re.compile(r"[0-9a-f]{16}\.(sha256|sha512)-((?:[0-9a-f]{64}){1,2})")


class Keys(NamedTuple):
    """The keys that a cluster keeps of a token for one mechanism."""

    stored: bytes
    server: bytes


def kept_keys(token: str) -> bytes:
    """Return what the metadata keep of a token: the keys of each mechanism, side by side, of
    `limits.scram_keys_bytes`.

    Takes some 10 ms. Raises InvalidArgument for text that is not a token.
    """
    salt = id_of(token).encode()
    found = [derived(name, token.encode(), salt, ITERATIONS) for name in MECHANISMS.values()]
    return b"".join(key for keys in found for key in keys)


def derived(hash_name: str, password: bytes, salt: bytes, iterations: int) -> Keys:
    """Return the keys of a password."""
    import hashlib  # these imports take long, and few programs need them
    import hmac

    salted = hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)
    client = hmac.digest(salted, b"Client Key", hash_name)
    return Keys(
        stored=hashlib.new(hash_name, client).digest(),
        server=hmac.digest(salted, b"Server Key", hash_name),
    )


def keys_of(kept: bytes, mechanism: str) -> Keys:
    """Return the keys of a mechanism out of `kept_keys`."""
    begin = 0
    for name, hash_name in MECHANISMS.items():
        size = _KEY_BYTES[hash_name]
        if name == mechanism:
            break
        begin += 2 * size
    return Keys(kept[begin : begin + size], kept[begin + size : begin + 2 * size])


def text_of(token_id: str, mechanism: str, client_key: bytes) -> str:
    """Return the text by which a node shows a client key of a token to other nodes."""
    return f"{token_id}.{MECHANISMS[mechanism]}-{client_key.hex()}"


def is_client_key(text: str, kept: bytes) -> bool:
    """Return whether the text is that of a client key of the token with these `kept_keys`.

    The comparison takes constant time. `kept` is empty for a token without keys.
    """
    match = _CLIENT_KEY.fullmatch(text)
    if match is None or not kept:
        return False
    mechanism = next(name for name, each in MECHANISMS.items() if each == match[1])
    return is_key(match[1], bytes.fromhex(match[2]), keys_of(kept, mechanism))


def is_key(hash_name: str, client_key: bytes, keys: Keys) -> bool:
    """Return whether the bytes are the client key of these keys; takes constant time."""
    import hashlib
    import hmac

    return hmac.compare_digest(hashlib.new(hash_name, client_key).digest(), keys.stored)
