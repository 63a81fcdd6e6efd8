"""A committed entry, decoded before its turn, and the keys whose last seqs its conditions need."""

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import NamedTuple

from ..client.protocol.errors import CorruptData
from ..client.protocol.records import EXPECT_ANY, Batch, decode_batch
from . import commands


class Ahead(NamedTuple):
    """A committed entry, decoded before its turn."""

    command: commands.Command | CorruptData | None
    batches: Sequence[Batch | CorruptData]

    @classmethod
    def of(cls, command: bytes) -> "Ahead":
        """Decode a command. A malformed command becomes an error, and `apply` refuses it."""
        try:
            decoded = commands.decode(command)
        except CorruptData as error:
            return cls(error, ())
        if decoded is not None and decoded.kind == commands.GROUP_APPEND:
            return cls(decoded, [_batch(decoded.payload[-1])])
        if decoded is None or decoded.kind != commands.APPEND:
            return cls(decoded, ())
        return cls(decoded, list(map(_batch, decoded.payload)))


def conditional_keys(batch: Batch | CorruptData) -> Iterable[bytes]:
    """Return the keys of the records with a condition."""
    if isinstance(batch, CorruptData) or batch.expects is None:
        return ()
    if EXPECT_ANY not in batch.expects:
        return batch.keys
    return compress(batch.keys, map(EXPECT_ANY.__ne__, batch.expects))


def _batch(data: bytes) -> Batch | CorruptData:
    try:
        return decode_batch(data)
    except CorruptData as error:
        return error
