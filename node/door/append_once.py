"""An append that the asker may repeat: `Idempotency-Key: PRODUCER:NUMBER`.

The request is a session of a named producer with one record. Opening the session fences the session
of an earlier attempt, whose record is then applied, or never will be. The range of the key
remembers the number, so that a repetition gets the seq of the first append, from any node and after
splits and merges.

A range forgets numbers below the newest one that it has heard. So an asker sends its numbers one
after the other, each until it is answered. A lower number that the range no longer knows was
acknowledged before, or skipped; the range cannot tell which, and the answer says so.
"""

import re
from typing import Any, Final, NamedTuple

from ...client.log import AsyncLog
from ...client.protocol.errors import Conflict
from ...client.protocol.kinds import INTEGER_MAX
from ...client.protocol.types import Ack
from .json_kinds import refused
from .parameters import Parameter

_KEY: Final = re.compile(r"(.+):([1-9][0-9]{0,18})", re.DOTALL)
_TIMEOUT_S: Final = 10.0
_CLOSE_S: Final = 1.0


class OnceKey(NamedTuple):
    """The name of a producer and the number of its record."""

    producer: str
    number: int


def _read(value: bytes, name: str) -> OnceKey:
    match = _KEY.fullmatch(value.decode("utf-8", "replace"))
    if match is None or int(match[2]) >= INTEGER_MAX:
        raise refused(name, value, "PRODUCER:NUMBER, with numbers that rise from 1 on")
    return OnceKey(match[1], int(match[2]))


IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key", "header",
    "`PRODUCER:NUMBER`, for one entry: the name of a producer and the number of its record. A "
    "repetition gets the seq of the first append. Send numbers that rise, one after the other.",
    {"type": "string", "pattern": "^.+:[1-9][0-9]{0,18}$"}, _read,
)  # fmt: skip


async def append_once(log: AsyncLog, once: OnceKey, record: Any, *, snapshot: bool) -> Ack:
    """Append a record unless the range knows its number. Raises Conflict for a number that the
    range has forgotten, Fenced when another request of the producer came meanwhile, and the errors
    of an append."""
    key, value, headers = record
    producer = log.producer(name=once.producer, linger_ms=0, timeout=_TIMEOUT_S)
    try:
        await producer.open()
        ticket = await producer.submit(
            key, value, headers=headers, number=once.number, snapshot=snapshot
        )
        ack = await ticket
    finally:
        await producer.close(_CLOSE_S)
    if ack.duplicate and ack.seq is None:
        raise Conflict(
            f"the range knows higher numbers of producer {once.producer!r}, and no longer knows "
            f"number {once.number}: the entry was appended before, or the number was skipped. Send "
            "numbers one after the other, each until it is answered",
            outcome="unknown",
        )
    return ack
