"""Relations between a request and its answer.

The table of operations checks the fields of an answer one by one. The relations here end reads that
would otherwise continue for ever: an answer must lie beyond the requested position.
"""

from typing import Any

from .protocol.errors import RemoteProtocolError

Answer = dict[str, Any]


def higher(answer: Answer, name: str, than: int) -> int:
    """Return the field at which a read continues.

    Raises RemoteProtocolError unless the field is above `than`.
    """
    value: int = answer[name]
    if value <= than:
        raise RemoteProtocolError(f"an answer has `{name}` {value}, which must be above {than}")
    return value


def lower(answer: Answer, name: str, than: int | None) -> int:
    """Return the field at which a reverse read continues.

    `than`: None is above every number. Raises RemoteProtocolError unless the field is below `than`.
    """
    value: int = answer[name]
    if than is not None and value >= than:
        raise RemoteProtocolError(f"an answer has `{name}` {value}, which must be below {than}")
    return value


def later_key(answer: Answer, name: str, than: bytes | None) -> bytes:
    """Return the key after which a list of keys continues.

    `than`: None is below every key. Raises RemoteProtocolError unless the key is above `than`.
    """
    value: bytes | None = answer[name]
    if value is None or (than is not None and value <= than):
        raise RemoteProtocolError(f"an answer has a key `{name}` that is not above the last one")
    return value


def later_id(answer: Answer, name: str, than: str | None) -> str | None:
    """Return the id after which a list continues; None: the list is complete.

    `than`: None is below every id. Raises RemoteProtocolError unless the id is above `than`.
    """
    value: str | None = answer[name]
    if value is not None and than is not None and value <= than:
        raise RemoteProtocolError(f"an answer has an id `{name}` that is not above the last one")
    return value


def end_key(answer: Answer, start: bytes) -> bytes | None:
    """Return the key at which the answer ends; None: the answer covers all requested keys.

    Raises RemoteProtocolError unless the key is above `start`.
    """
    value: bytes | None = answer["end_key"]
    if value is not None and value <= start:
        raise RemoteProtocolError("an answer has an `end_key` that is not above its first key")
    return value
