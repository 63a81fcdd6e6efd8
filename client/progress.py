"""Relations between a request and its answer.

The table of operations checks each field of an answer by itself. The relations here end reads that
would otherwise go on for ever: an answer must lie beyond what was asked for.
"""

from typing import Any

from .protocol.errors import RemoteProtocolError

Answer = dict[str, Any]


def higher(answer: Answer, name: str, than: int) -> int:
    """Return the field where a read goes on.

    Raises RemoteProtocolError unless the field is above `than`.
    """
    value: int = answer[name]
    if value <= than:
        raise RemoteProtocolError(f"an answer has `{name}` {value}, which must be above {than}")
    return value


def lower(answer: Answer, name: str, than: int | None) -> int:
    """Return the field where a read backwards goes on.

    `than`: None is above every number. Raises RemoteProtocolError unless the field is below `than`.
    """
    value: int = answer[name]
    if than is not None and value >= than:
        raise RemoteProtocolError(f"an answer has `{name}` {value}, which must be below {than}")
    return value


def later_key(answer: Answer, name: str, than: bytes | None) -> bytes:
    """Return the key after which a list of keys goes on.

    `than`: None is below every key. Raises RemoteProtocolError unless the key is above `than`.
    """
    value: bytes | None = answer[name]
    if value is None or (than is not None and value <= than):
        raise RemoteProtocolError(f"an answer has a key `{name}` that is not above the last one")
    return value


def later_id(answer: Answer, name: str, than: str | None) -> str | None:
    """Return the id after which a list goes on; None: the list is complete.

    `than`: None is below every id. Raises RemoteProtocolError unless the id is above `than`.
    """
    value: str | None = answer[name]
    if value is not None and than is not None and value <= than:
        raise RemoteProtocolError(f"an answer has an id `{name}` that is not above the last one")
    return value


def end_key(answer: Answer, start: bytes) -> bytes | None:
    """Return the key at which the answer ends; None: the answer is about all keys asked for.

    Raises RemoteProtocolError unless the key is above `start`.
    """
    value: bytes | None = answer["end_key"]
    if value is not None and value <= start:
        raise RemoteProtocolError("an answer has an `end_key` that is not above its first key")
    return value
