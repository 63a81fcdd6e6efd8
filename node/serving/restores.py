"""Serve requests that put entries of a backup into a range, with their seqs. The leader does it.

`statemachine/restored.py` says which ranges take such entries.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...client.protocol import limits
from ...client.protocol.errors import (
    BatchSpansRanges,
    GenerationMismatch,
    Unavailable,
    Unsupported,
    from_wire,
)
from ...client.protocol.levels import RESTORES_FROM
from ...client.protocol.limit_checks import check_limit
from ...partitions.model import Span
from ...statemachine import commands
from ...statemachine.admission import admit_steps
from ..replicas.range_replica import RangeReplica
from ..runtime.slices import stepped

Body = dict[str, Any]


class Restores:
    """Restores entries. `level` returns the feature level of the cluster."""

    def __init__(self, level: Callable[[], int]) -> None:
        self._level = level

    async def restore(self, replica: RangeReplica, body: Body) -> Body:
        """Put the entries into the range. A repetition has no further effect.

        Raises Conflict for a range with other entries, CorruptData for entries out of order,
        BatchSpansRanges for a key outside of the range, LimitExceeded, Overloaded.
        """
        self._check_level(replica)
        rows = [list(row) for row in body["rows"]]
        size = sum(len(seqs) + len(batch) for _, seqs, batch in rows)
        check_limit(
            "entry_bytes_max", limits.entry_bytes_max - limits.KIB, size,
            f"the restored batches have {size} bytes", "Send several requests",
        )  # fmt: skip
        await _check(rows, replica.descriptor.span)
        replica.check_takes()
        reply = await replica.propose_and_wait(commands.RESTORE, [body["next_seq"], rows])
        if reply.get("status") == "error":
            raise from_wire(reply["error"])
        return {"next_seq": replica.state.next_seq}

    def _check_level(self, replica: RangeReplica) -> None:
        """Raise an error while a member of the range may not know the command."""
        if replica.state.level >= RESTORES_FROM:
            return
        if self._level() >= RESTORES_FROM:
            raise Unavailable(
                f"range {replica.gid.range_id} is at feature level {replica.state.level} and "
                f"follows the cluster to level {self._level()}; try again in a second",
                reason="level",
            )
        raise Unsupported(
            f"the cluster is at feature level {self._level()}; a restore needs level "
            f"{RESTORES_FROM}. Run `lognode cluster finalize` when all nodes run this version"
        )


async def _check(rows: Sequence[Sequence[Any]], span: Span) -> None:
    """Check each batch, and the sums over all batches: members apply the request in one step."""
    records = values_bytes = 0
    for _, _, data in rows:
        try:
            batch = await stepped(admit_steps(data, span.start, span.end))
        except GenerationMismatch:  # the client knows the generation, and must cut the entries
            raise BatchSpansRanges(
                "a restored key is outside of the range; the range was split. Ask for the ranges "
                "of the log, and send entries of one range"
            ) from None
        records += batch.count
        values_bytes += batch.values_size
        check_limit(
            "batch_records_max", limits.batch_records_max, records,
            f"the restored batches have {records:,} records or more", "Send several requests",
        )  # fmt: skip
        check_limit(
            "values_bytes_max", limits.values_bytes_max, values_bytes,
            f"the restored values have {values_bytes:,} bytes or more", "Send several requests",
        )  # fmt: skip
