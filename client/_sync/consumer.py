# Generated from client/consumer.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/consumer.py`."""

from types import TracebackType
from typing import Self

from ..consumer import AsyncConsumer, leave_s_default
from ..loop_thread import LoopThread
from ..protocol.types import GroupInfo
from .group_batch import GroupBatch


class Consumer:
    """A consumer of a group: `for batch in consumer`. Made by `Log.consume`; a context
    manager.

    Several tasks may take batches from one consumer and settle them. A slow caller takes no more
    than its credit. When the context ends by an error, the batches that the caller has and has not
    settled count as failed deliveries, with the error; everything else is given back without a
    failure.
    """

    def __init__(self, loop: LoopThread, twin: AsyncConsumer) -> None:
        self._loop = loop
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncConsumer", "Consumer")

    @property
    def group(self) -> GroupInfo:
        """The group. Raises InvalidArgument before the consumer is open."""
        return self._twin.group

    @property
    def held(self) -> int:
        """How many keys the consumer has: batches that wait, and batches that are not settled."""
        return self._loop.run(lambda: self._twin.held)

    def open(self) -> None:
        """Create the group unless it exists, and begin to take keys. Entering the context calls
        `open`.

        Raises Conflict when the group exists with other options than the given ones, with both
        values; LogNotFound, InvalidArgument, LimitExceeded with too many groups, Unauthorized,
        Unavailable, Timeout, and Unsupported below feature level 4.
        """
        self._loop.call(self._twin.open())

    def close(self, timeout: float = leave_s_default) -> None:
        """Settle what was acknowledged with `wait=False`, and give back everything else that the
        consumer has. Always returns; the iteration ends."""
        self._loop.call(self._twin.close(timeout))

    def flush(self) -> None:
        """Wait until all acknowledgements so far are settled. Raises Fenced when one of those
        without `wait` was refused since the last flush."""
        self._loop.call(self._twin.flush())

    def __enter__(self) -> Self:
        self._loop.call(self._twin.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call(self._twin.__aexit__(kind, error, traceback))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> GroupBatch:
        return GroupBatch(self._loop, self._loop.following(self._twin))
