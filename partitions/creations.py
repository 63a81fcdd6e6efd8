"""What tells the repetition of a `create_log` from another one of the same name.

A client draws `limits.creation_bytes` random bytes for each call, and sends the same bytes with
every attempt. The log's record keeps them tied to the principal that asked: a repetition whose
first answer was lost gets the answer of the first, and nobody else does.
"""

import hashlib

from ..client.protocol import limits


def tied(drawn: bytes | None, owner: str) -> bytes | None:
    """Return what the command and the record have for the drawn bytes of that principal.

    `drawn`: of the request; None for a client that draws none. `owner`: the principal's name, ""
    while clients have no names. The result has as many bytes as `drawn`.
    """
    if drawn is None:
        return None
    digest = hashlib.sha256(drawn + owner.encode("utf-8", "surrogatepass"))
    return digest.digest()[: limits.creation_bytes]
