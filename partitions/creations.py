"""The identity of a `create_log`: it tells a repetition from another creation of the same name.

A client draws `limits.creation_bytes` random bytes for each call, and sends the same bytes with
every attempt. The log's record keeps them tied to the principal of the request. A repetition whose
first answer was lost gets the first answer again; other requests do not.
"""

import hashlib

from ..client.protocol import limits


def tied(drawn: bytes | None, owner: str) -> bytes | None:
    """Return the bytes that the command and the record keep for the drawn bytes of that principal.

    `drawn` comes from the request; None: the client draws none. `owner` is the principal's name, ""
    while clients have no names. The result has as many bytes as `drawn`.
    """
    if drawn is None:
        return None
    digest = hashlib.sha256(drawn + owner.encode("utf-8", "surrogatepass"))
    return digest.digest()[: limits.creation_bytes]
