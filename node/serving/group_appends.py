"""Requests and answers of appends with acknowledgements; `group_service` serves them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...client.protocol.errors import (
    CorruptData,
    Fenced,
    GenerationMismatch,
    InvalidArgument,
    Overloaded,
    Unavailable,
    to_wire,
)
from ...client.protocol.groups import FULL
from ...client.protocol.records import Batch, PackedBatch, open_batch
from ...partitions.model import Descriptor
from ...statemachine.spans import Span, has
from ..dispatch.commands import AckFrom, Appending
from ..dispatch.settling import Refused

Shown = Callable[[Sequence[Refused], Mapping[bytes, int]], dict[str, Any]]
_BUSY_S = 0.02
_FULL_S = 0.1


def checked_acks(rows: Sequence[Sequence[Any]]) -> list[AckFrom]:
    """Return the acknowledgements of a request. Raises InvalidArgument."""
    acks = [AckFrom(*row) for row in rows]
    if len({(ack.key, ack.first) for ack in acks}) < len(acks) or not all(
        a.first < a.through for a in acks
    ):
        raise InvalidArgument(
            "the acknowledgements name a key twice, or a `first` that is not below `through`; give "
            "each key once, with the seqs of its batch",
            what="acks",
        )
    return acks


def opened(data: bytes) -> PackedBatch:
    """Return the batch with its columns still packed. Raises CorruptData."""
    try:
        return open_batch(data)
    except CorruptData as error:
        raise CorruptData(error.message, outcome="not_applied") from None


def check_batch(batch: Batch, acks: Sequence[AckFrom], span: Span, range_: Descriptor) -> None:
    """Raise InvalidArgument for a batch that cannot be applied as one, or whose repetition would
    not be known; GenerationMismatch for a key outside of the range."""
    if not batch.producer or not batch.atomic or batch.each:
        raise InvalidArgument(
            "a batch with acknowledgements has no producer, or is not marked as atomic; give the "
            "batch a producer and flag 2",
            what="batch",
        )
    if not all(has(span, ack.key) for ack in acks):
        raise GenerationMismatch(
            f"a key is outside of range {range_.range_id}", ranges=[range_.to_wire()]
        )


def answer(done: Appending, shown: Shown, *, is_fenced: bool) -> dict[str, Any]:
    """Return the answer to a request whose outcome is known. `shown` returns the fields of an
    answer about refused units. `is_fenced`: the group has begun anew meanwhile. Raises Overloaded
    and Unavailable where the same request may succeed later."""
    lost = [refused for refused in done.refused if refused.reason != FULL]
    tokens = {ack.key: ack.token for ack in done.acks}
    key = shown(done.refused[:1], tokens)["refused"][0][0] if done.refused else b""
    if lost:
        told = shown(lost, tokens)
        key = told["refused"][0][0]
        error = Fenced(
            f"the consumer no longer has key {key!r}: its lease ended, its entries were "
            "settled before, or the group was reset. This request appended nothing; take the key "
            "again",
            key=key,
        )
        return {"result": {"status": "error", "error": to_wire(error)}, **told}
    if done.refused:
        raise Overloaded(
            f"the range of key {key!r} has no room for another position of the "
            "group: too many keys failed or are ahead of others. Retry or skip the parked keys",
            retry_after=_FULL_S,
        )
    if done.is_early:
        raise Overloaded(
            "another request about a key of the batch is under way; send this request again",
            retry_after=_BUSY_S,
        )
    reply = done.reply or {}
    is_moved = reply.get("status") == "error" and (is_fenced or "refused" in reply)
    if not reply or is_moved:
        raise Unavailable("the positions of the group have changed; ask again", reason="group")
    return {"result": dict(reply), "refused": []}
