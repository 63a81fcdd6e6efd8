"""What is left of a file's unsynced changes: nothing, what came first, or any of its blocks."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lognode.chaos.powerfs.files import BLOCK_BYTES, HOW, Unsynced


class Bytes:
    """A file in memory, with its unsynced changes; `states` is its content after each."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.unsynced = Unsynced()
        self.states = [bytes(content)]

    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.content[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        self.resize(max(self.size(), offset + len(data)))
        self.content[offset : offset + len(data)] = data

    def resize(self, size: int) -> None:
        self.content = self.content[:size] + bytes(max(0, size - self.size()))

    def change(self, offset: int, data: bytes | None) -> None:
        """None: the file ends at `offset`."""
        if data is None:
            self.unsynced.will_resize(self, offset)
            self.resize(offset)
        else:
            self.unsynced.will_write(self, offset, len(data))
            self.write(offset, data)
        self.states.append(bytes(self.content))

    def sync(self) -> None:
        self.unsynced.synced(self.unsynced.count)
        self.states = [bytes(self.content)]


changes = st.lists(
    st.tuples(
        st.integers(0, 5 * BLOCK_BYTES),
        st.none() | st.binary(min_size=1, max_size=9) | st.just(b"x" * 2 * BLOCK_BYTES),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=50), changes, changes, st.integers(0, 9))
def test_synced_bytes_stay_and_unsynced_ranges_show_old_or_new_bytes(
    content: bytes, before: list[tuple[int, bytes | None]],
    after: list[tuple[int, bytes | None]], seed: int,
) -> None:  # fmt: skip
    for how in HOW:
        file = Bytes(content)
        for change in before:
            file.change(*change)
        file.sync()
        for change in after:
            file.change(*change)
        file.unsynced.lose(file, how, random.Random(seed))
        assert not file.unsynced
        if how == "lost":
            assert file.content == file.states[0]
        elif how == "prefix":
            assert bytes(file.content) in file.states
        else:
            ends = [file.states[0], file.states[-1]]
            for at in range(0, file.size(), BLOCK_BYTES):
                block = file.read(at, BLOCK_BYTES)
                there = [end[at : at + BLOCK_BYTES] for end in ends]
                rest = [each + one[len(each) :] for each in there for one in there]
                padded = [each.ljust(len(block), b"\0")[: len(block)] for each in rest]
                assert block in padded, at


def test_every_prefix_and_every_choice_of_blocks_is_drawn() -> None:
    prefixes: set[tuple[bool, ...]] = set()
    torn: set[tuple[bool, ...]] = set()
    for seed in range(200):
        for how in ("prefix", "torn"):
            file = Bytes(bytes(3 * BLOCK_BYTES))
            for block in range(3):
                file.change(block * BLOCK_BYTES, b"x" * BLOCK_BYTES)
            file.unsynced.lose(file, how, random.Random(seed))
            assert file.size() == 3 * BLOCK_BYTES
            kept = tuple(file.content[block * BLOCK_BYTES] != 0 for block in range(3))
            (prefixes if how == "prefix" else torn).add(kept)
    assert prefixes == {(False,) * 3, (True, False, False), (True, True, False), (True,) * 3}
    assert len(torn) == 8


@pytest.mark.parametrize("how", HOW)
def test_a_sync_covers_what_was_written_before_it_began(how: str) -> None:
    file = Bytes(b"old")
    file.change(0, b"one")
    began = file.unsynced.count
    file.change(0, b"two")
    file.unsynced.synced(began)
    assert len(file.unsynced) == 1
    file.unsynced.lose(file, how, random.Random(1))  # type: ignore[arg-type]
    assert bytes(file.content) in (b"one", b"two")
    if how == "lost":
        assert bytes(file.content) == b"one"


def test_syncs_that_end_in_another_order_than_they_began_cover_nothing_twice() -> None:
    file = Bytes(b"0")
    began = []
    for digit in (b"1", b"2", b"3"):
        file.change(0, digit)
        began.append(file.unsynced.count)
    file.unsynced.synced(began[1])
    file.unsynced.synced(began[0])
    assert len(file.unsynced) == 1
    file.unsynced.lose(file, "lost", random.Random(1))
    assert file.content == b"2"


def test_blocks_that_survive_behind_the_end_leave_zeros_before_them() -> None:
    seen = set()
    for seed in range(50):
        file = Bytes(b"synced")
        file.change(6, b"x" * (3 * BLOCK_BYTES))
        file.unsynced.lose(file, "torn", random.Random(seed))
        assert file.content[:6] == b"synced"
        seen.add(file.size())
        if file.size() == 6 + 3 * BLOCK_BYTES and not file.content[2 * BLOCK_BYTES]:
            assert file.content[-1:] == b"x"
    assert seen == {6, BLOCK_BYTES, 2 * BLOCK_BYTES, 3 * BLOCK_BYTES, 3 * BLOCK_BYTES + 6}
