"""Serve requests that put entries of a backup into a range, with their seqs. The leader does it.

`statemachine/restored.py` says which ranges take such entries.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ...client.protocol import limits
from ...client.protocol.errors import Unavailable, Unsupported, from_wire
from ...client.protocol.levels import RESTORES_FROM
from ...client.protocol.limit_checks import check_limit
from ...statemachine import commands
from ...statemachine.admission import admit_steps
from ..replicas.range_replica import RangeReplica

Body = dict[str, Any]


class Restores:
    """Restores entries. `level` returns the feature level of the cluster."""

    def __init__(self, level: Callable[[], int]) -> None:
        self._level = level

    async def restore(self, replica: RangeReplica, body: Body) -> Body:
        """Put the entries into the range. A repetition has no further effect.

        Raises Conflict for a range with other entries, CorruptData for entries out of order,
        GenerationMismatch for a key outside of the range, LimitExceeded, Overloaded.
        """
        self._check_level(replica)
        rows = [list(row) for row in body["rows"]]
        size = sum(len(seqs) + len(batch) for _, seqs, batch in rows)
        check_limit(
            "entry_bytes_max", limits.entry_bytes_max - limits.KIB, size,
            f"the restored batches have {size} bytes", "Send several requests",
        )  # fmt: skip
        span = replica.descriptor.span
        for _, _, batch in rows:
            for _ in admit_steps(batch, span.start, span.end):
                await asyncio.sleep(0)
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
