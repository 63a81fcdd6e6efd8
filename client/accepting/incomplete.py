"""The frames of a listener's connections that have begun and not ended, the oldest first.

A frame is kept whole before it is read, so that a sender who never ends one takes memory for as
long as the connection lives. Here is told which sender has to go: one whose frame hardly grows,
and, when all of them together are too large, the one whose frame began first.
"""

from typing import Generic, Protocol, TypeVar


class Sender(Protocol):
    """Who sends frames."""

    @property
    def plain_in(self) -> int:
        """All bytes of frames that came; with TLS those inside of it."""

    @property
    def is_read(self) -> bool:
        """Whether this node takes what comes."""


Someone = TypeVar("Someone", bound=Sender)


class _Begun:
    """A frame that has begun."""

    __slots__ = ("begins", "excused", "held", "seen", "slow")

    def __init__(self, begins: int, seen: int) -> None:
        self.begins = begins
        """Which byte of its connection is its first: no other frame has that one."""
        self.held = 0
        self.seen = seen
        """The bytes that had come at the last look."""
        self.excused = True
        """It need not have grown by the next look."""
        self.slow = False


class Incomplete(Generic[Someone]):
    """At most one frame a sender."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all of them."""
        self._frames: dict[Someone, _Begun] = {}

    @property
    def oldest(self) -> Someone:
        """Whose frame began first. Raises StopIteration when there is none."""
        return next(iter(self._frames))

    def note(self, sender: Someone, begins: int, held: int) -> None:
        """Of the frame that begins there `held` bytes have come; 0: every frame is complete."""
        frame = self._frames.get(sender)
        if frame is not None and (not held or frame.begins != begins):
            self.forget(sender)
            frame = None
        if held:
            if frame is None:
                frame = self._frames[sender] = _Begun(begins, sender.plain_in)
            self.size += held - frame.held
            frame.held = held

    def excuse(self, sender: Someone) -> None:
        """This node has stopped reading from the sender, or begun again."""
        frame = self._frames.get(sender)
        if frame is not None:
            frame.excused = True

    def forget(self, sender: Someone) -> None:
        """The frame is complete, or its sender has gone."""
        frame = self._frames.pop(sender, None)
        if frame is not None:
            self.size -= frame.held

    def slow(self, bytes_min: int) -> list[Someone]:
        """A look at all of them: whose frame has grown by less than `bytes_min` in both of the
        last two windows between looks. One window is not enough: this process may have been
        stopped for all of it."""
        found = []
        for sender, frame in self._frames.items():
            lazy = sender.plain_in - frame.seen < bytes_min
            if frame.excused or not sender.is_read:
                lazy = False
            if lazy and frame.slow:
                found.append(sender)
            frame.slow, frame.seen, frame.excused = lazy, sender.plain_in, False
        return found
