"""The incomplete frames of a listener's connections, the oldest first.

A frame is kept whole before it is read, so a sender that never ends a frame occupies memory as long
as its connection lives. This module decides which connection has to end: that of a frame that
hardly grows, and, when all frames together are too large, that of the oldest frame.
"""

from typing import Generic, Protocol, TypeVar


class Sender(Protocol):
    """The sender of frames."""

    @property
    def plain_in(self) -> int:
        """Received bytes of frames; with TLS, the bytes inside TLS."""

    @property
    def is_read(self) -> bool:
        """Whether this node is reading from the sender."""


Someone = TypeVar("Someone", bound=Sender)


class _Begun:
    """An incomplete frame."""

    __slots__ = ("begins", "excused", "held", "seen", "slow")

    def __init__(self, begins: int, seen: int) -> None:
        self.begins = begins
        """The position of its first byte in the connection, which identifies the frame."""
        self.held = 0
        self.seen = seen
        """The bytes received at the last look."""
        self.excused = True
        """Whether the frame need not have grown by the next look."""
        self.slow = False


class Incomplete(Generic[Someone]):
    """The incomplete frames, at most one per sender."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all incomplete frames."""
        self._frames: dict[Someone, _Begun] = {}

    @property
    def oldest(self) -> Someone:
        """The sender of the oldest frame. Raises StopIteration when there is no frame."""
        return next(iter(self._frames))

    def note(self, sender: Someone, begins: int, held: int) -> None:
        """Note that `held` bytes have come of the frame that begins at `begins`; 0: every frame
        is complete."""
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
        """Excuse slow growth: this node has stopped or resumed reading from the sender."""
        frame = self._frames.get(sender)
        if frame is not None:
            frame.excused = True

    def forget(self, sender: Someone) -> None:
        """Forget a frame that is complete, or whose sender has left."""
        frame = self._frames.pop(sender, None)
        if frame is not None:
            self.size -= frame.held

    def slow(self, bytes_min: int) -> list[Someone]:
        """Look at all frames; return the senders whose frame has grown by less than `bytes_min`
        in each of the last two windows between looks. One window is not enough: this process may
        have been stopped during it."""
        found = []
        for sender, frame in self._frames.items():
            lazy = sender.plain_in - frame.seen < bytes_min
            if frame.excused or not sender.is_read:
                lazy = False
            if lazy and frame.slow:
                found.append(sender)
            frame.slow, frame.seen, frame.excused = lazy, sender.plain_in, False
        return found
