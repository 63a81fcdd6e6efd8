# Generated from client/group.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/group.py`."""

from ..group import AsyncGroup
from ..loop_thread import LoopThread
from ..protocol.types import CursorStart, GroupDecision, GroupInfo, GroupKey, GroupLag


class Group:
    """A consumer group of a log, for its operators; made by `Log.group`. Nothing is sent
    before the first call.

    Every method takes `timeout`, seconds, the log's by default. All raise LogNotFound, NotFound for
    a group that does not exist, Unavailable, Timeout, and Unauthorized. Looking needs the right to
    read the group's keys; decisions and `delete` need the verb `group` on the log.
    """

    def __init__(self, loop: LoopThread, twin: AsyncGroup) -> None:
        self._loop = loop
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncGroup", "Group")

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._twin.name

    def describe(self, *, timeout: float | None = None) -> GroupInfo:
        """Return the id and the options of the group."""
        return self._loop.call(self._twin.describe(timeout=timeout))

    def lag(self, *, timeout: float | None = None) -> GroupLag:
        """Return what the group has not done: entries, bytes, the oldest entry, and keys.

        Each range counts exactly at one index; the ranges answer one after another. The call reads
        the entries that are not done, so it costs time after a long pause of all consumers.
        """
        return self._loop.call(self._twin.lag(timeout=timeout))

    def parked(self, *, timeout: float | None = None) -> list[GroupKey]:
        """Return the keys that wait for `retry` or `skip`, in order, with their last errors."""
        return self._loop.call(self._twin.parked(timeout=timeout))

    def in_flight(self, *, timeout: float | None = None) -> list[GroupKey]:
        """Return the keys that consumers have now, in order."""
        return self._loop.call(self._twin.in_flight(timeout=timeout))

    def history(self, *, timeout: float | None = None) -> list[GroupDecision]:
        """Return what was decided about keys, the oldest first: parked, rejected, retried, skipped,
        dead letter, reset, lost. Each range remembers the last 1,000 decisions."""
        return self._loop.call(self._twin.history(timeout=timeout))

    def retry(self, key: bytes | str, *, timeout: float | None = None) -> None:
        """Let a parked key go on with the entry at which it stopped. Raises Conflict for a key that
        is not parked, with unknown outcome if an attempt without an answer may have let it go on.
        """
        self._loop.call(self._twin.retry(key, timeout=timeout))

    def skip(
        self,
        key: bytes | str,
        through: int | None = None,
        *,
        why: str = "",
        timeout: float | None = None,
    ) -> int:
        """Pass entries of a key, parked or not, without a consumer: up to the seq `through`,
        inclusive; None: the next entry alone. Without an order, pass the entry with this seq alone;
        None: the first parked entry, or else the first entry. Returns the seq.

        The range remembers who has skipped what, and `why`. Raises NotFound for a key without
        another entry, InvalidArgument for a seq that is passed already, and Conflict when the key
        has moved meanwhile, but not past the seq.
        """
        return self._loop.call(self._twin.skip(key, through, why=why, timeout=timeout))

    def reset(
        self, to: CursorStart, *, key: bytes | str | None = None, timeout: float | None = None
    ) -> None:
        """Set the position of all keys of the group, or of one `key`, forwards or back.

        `to`: a seq, "earliest", "latest" or Timestamp(ms). Consumers lose what they have, and their
        acknowledgements raise Fenced; parked keys are parked no longer. A failed call may be made
        again: some ranges may have been reset.
        """
        self._loop.call(self._twin.reset(to, key=key, timeout=timeout))

    def delete(self, *, timeout: float | None = None) -> None:
        """Delete the group with its positions; its consumers raise NotFound. A group that is
        created later with this name begins anew."""
        self._loop.call(self._twin.delete(timeout=timeout))
