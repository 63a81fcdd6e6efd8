"""Operations that take and answer any map, for tests of connections as such."""

from dataclasses import replace
from typing import Any

from lognode.client.protocol import Operation, Permission, Retry, Sender
from lognode.client.protocol.kinds import Integer
from lognode.client.protocol.record import Optional, Record

ANY = Record({}, loose=True)
LOOSE = Operation(
    "loose", 60_000, "Take any map and answer any map.",
    Sender.CLIENT, Permission.NONE, Retry.SAFE, ANY, ANY, 4096,
)  # fmt: skip
STREAM = replace(
    LOOSE, name="stream", number=60_001, streams=True,
    request=Record({"credit": Optional(Integer(), 0)}, loose=True),
)  # fmt: skip
ONE_WAY = replace(LOOSE, name="one_way", number=60_002, answer=None)
_BY_NUMBER = {each.number: each for each in (LOOSE, STREAM, ONE_WAY)}


def by_number(number: int) -> Operation | None:
    """The loose operation with this number."""
    return _BY_NUMBER.get(number)


def loosened(operation: Operation) -> Operation:
    """The operation without the dialler's check, to send what the acceptor has to refuse."""
    return replace(operation, request=ANY, answer=None if operation.answer is None else ANY)


def asked(operation: Operation, **body: Any) -> dict[str, Any]:
    """A body as a handler gets it: of range 1 at generation 1 unless `body` names others."""
    return operation.request.check({"range": 1, "generation": 1, **body})
