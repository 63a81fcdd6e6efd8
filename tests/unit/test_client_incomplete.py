"""Frames that have begun and not ended: whose sender has to go."""

from lognode.client.accepting.incomplete import Incomplete


class Sender:
    """Somebody whose bytes are counted."""

    def __init__(self) -> None:
        self.plain_in = 0
        self.is_read = True

    def send(self, frames: Incomplete["Sender"], count: int, *, begins: int = 0) -> None:
        """So many bytes of the frame that begins there."""
        self.plain_in += count
        frames.note(self, begins, self.plain_in - begins)


def test_the_size_is_that_of_what_is_held() -> None:
    frames: Incomplete[Sender] = Incomplete()
    one, other = Sender(), Sender()
    one.send(frames, 10)
    one.send(frames, 5)
    other.send(frames, 7)
    assert frames.size == 22
    frames.note(one, 15, 0)
    assert frames.size == 7
    frames.forget(other)
    frames.forget(other)
    assert frames.size == 0


def test_the_oldest_is_the_frame_that_began_first() -> None:
    frames: Incomplete[Sender] = Incomplete()
    one, other = Sender(), Sender()
    one.send(frames, 10)
    other.send(frames, 10)
    assert frames.oldest is one
    one.send(frames, 10, begins=20 - 1)  # the first frame is complete, and another has begun
    assert frames.oldest is other


def test_a_client_that_sends_a_byte_a_second_is_slow_after_two_windows() -> None:
    frames: Incomplete[Sender] = Incomplete()
    slow, steady = Sender(), Sender()
    found = []
    for _ in range(4):
        slow.send(frames, 5)
        steady.send(frames, 100)
        found.append(frames.slow(80))
    # The first window it has not seen whole.
    assert found[:2] == [[], []]
    assert found[2] == [slow]


def test_many_small_frames_are_not_one_slow_frame() -> None:
    frames: Incomplete[Sender] = Incomplete()
    sender = Sender()
    for _ in range(5):
        sender.send(frames, 5, begins=sender.plain_in)
        assert frames.slow(80) == []


def test_a_sender_from_whom_nobody_reads_is_not_slow() -> None:
    frames: Incomplete[Sender] = Incomplete()
    sender = Sender()
    sender.send(frames, 5)
    for _ in range(3):
        frames.slow(80)
        sender.is_read = False
        assert frames.slow(80) == []
        sender.is_read = True
        frames.excuse(sender)
        assert frames.slow(80) == []
    assert frames.slow(80) == []
    assert frames.slow(80) == [sender]
