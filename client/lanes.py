"""The batches of one range in flight: one open, some ready, a few requests sent."""

import asyncio

from .appends import AppendBatch
from .protocol import limits


class Lane:
    """The batches of one range; `in_flight` counts requests. The sender fills and empties the
    lane."""

    __slots__ = ("due", "in_flight", "open", "ready", "timer")

    def __init__(self) -> None:
        self.open: AppendBatch | None = None
        self.due = False
        """Whether the open batch has waited long enough for more records."""
        self.timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self.ready: list[AppendBatch] = []
        self.in_flight = 0

    def take(self) -> list[AppendBatch]:
        """Take the batches of the next request: those that wait for no other batch, in order."""
        taken: list[AppendBatch] = []
        left: list[AppendBatch] = []
        size = records = 0
        for at, batch in enumerate(self.ready):
            if batch.after is not None and not batch.after.done.done():
                left.append(batch)
                continue
            size += batch.bytes
            records += len(batch)
            if taken and (
                batch.settles is not None
                or taken[0].settles is not None
                or len(taken) >= limits.request_batches_max
                or size > limits.batch_bytes_max
                or records > limits.request_records_max
            ):
                left += self.ready[at:]
                break
            batch.after = None
            taken.append(batch)
        self.ready = left
        return taken
