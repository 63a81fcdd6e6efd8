"""Record numbers of a producer with their seqs, ascending, in blocks as they were applied.

A batch's numbers are one block, whose seqs are consecutive, so a large batch costs nothing per
number: a dict entry for each took 0.2 us of every member, most of it waiting for memory. Numbers of
small batches are gathered in the last block. A look-up is a binary search for the block, and one in
the block; few records are looked up. No hash table holds numbers that a client may choose.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Final, NamedTuple

_BLOCK: Final = 64
"""The numbers from which on a batch is a block of its own, and a gathered block is complete: four
bytes a number for the block itself."""
_RUN: Final = 16
"""The same for consecutive numbers, of which none is stored."""


class _Block(NamedTuple):
    """Ascending numbers and their seqs."""

    numbers: Sequence[int]
    seqs: Sequence[int]

    def part(self, begin: int, end: int) -> "_Block":
        return _Block(self.numbers[begin:end], self.seqs[begin:end])


class NumberBlocks:
    """See the module. Numbers and seqs are below 2**63."""

    __slots__ = ("_blocks", "_ends", "_firsts", "_forgotten", "_gathers")

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        """Only the last one may change, while `_gathers`."""
        self._firsts: list[int] = []
        """The first number of each block."""
        self._ends: list[int] = []
        """How many numbers there are up to the end of each block, those forgotten included."""
        self._forgotten = 0
        self._gathers = False
        """Whether the last block consists of two arrays of this object, which may grow."""

    def __len__(self) -> int:
        return self._ends[-1] - self._forgotten if self._ends else 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the numbers, ascending, each with its seq."""
        return chain.from_iterable(zip(*block, strict=True) for block in self._blocks)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield runs of consecutive numbers with consecutive seqs, ascending: the first number, its
        seq, and the length. A block of consecutive numbers is one run, and each other number."""
        for numbers, seqs in self._blocks:
            if isinstance(numbers, range):
                yield numbers[0], seqs[0], len(numbers)
            else:
                yield from zip(numbers, seqs, repeat(1))

    def copy(self) -> "NumberBlocks":
        """Return blocks that do not change with these."""
        copy = NumberBlocks()
        copy._blocks, copy._firsts, copy._ends = self._blocks[:], self._firsts[:], self._ends[:]
        copy._forgotten, copy._gathers = self._forgotten, self._gathers
        if self._gathers:
            last = self._blocks[-1]
            copy._blocks[-1] = last.part(0, len(last.numbers))
        return copy

    def add(self, numbers: Sequence[int], first_seq: int) -> None:
        """Append ascending numbers above all others, with consecutive seqs."""
        seqs = range(first_seq, first_seq + len(numbers))
        is_run = numbers[-1] - numbers[0] == len(numbers) - 1
        if is_run and len(numbers) >= _RUN:
            self._append(_Block(range(numbers[0], numbers[-1] + 1), seqs))
        elif len(numbers) >= _BLOCK:
            self._append(_Block(array("q", numbers), seqs))
        elif self._gathers:
            last = self._blocks[-1]
            last.numbers.extend(array("q", numbers))  # type: ignore[attr-defined]  # an array
            last.seqs.extend(array("q", seqs))  # type: ignore[attr-defined]
            self._ends[-1] += len(numbers)
            self._gathers = len(last.numbers) < _BLOCK
        else:
            self._append(_Block(array("q", numbers), array("q", seqs)))
            self._gathers = True

    def get(self, number: int) -> int | None:
        """Return the seq of a number, or None for an unknown number."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return None
        numbers, seqs = self._blocks[at]
        if isinstance(numbers, range):  # consecutive, as the SDK numbers records
            place = number - numbers.start
            return seqs[place] if place < len(numbers) else None
        place = bisect_left(numbers, number)
        if place == len(numbers) or numbers[place] != number:
            return None
        return seqs[place]

    def of_one_block(self, numbers: Sequence[int]) -> Sequence[int] | None:
        """Return the seqs of numbers that follow each other in one block, as those of a batch that
        comes again do; None for other numbers. No number is looked up."""
        at = bisect_right(self._firsts, numbers[0]) - 1
        if at < 0:
            return None
        block = self._blocks[at]
        begin = bisect_left(block.numbers, numbers[0])
        found = block.part(begin, begin + len(numbers))
        return found.seqs if list(found.numbers) == list(numbers) else None

    def below(self, low: int) -> int:
        """Return how many numbers are below `low`."""
        at = bisect_left(self._firsts, low) - 1
        if at < 0:
            return 0
        numbers = self._blocks[at].numbers
        return self._ends[at] - len(numbers) + bisect_left(numbers, low) - self._forgotten

    def settle(self, low: int) -> None:
        """Forget the numbers below `low`."""
        at = bisect_left(self._firsts, low) - 1
        if at < 0:
            return
        self._forgotten += self.below(low)
        block = self._blocks[at]
        rest = block.part(bisect_left(block.numbers, low), len(block.numbers))
        if rest.numbers:
            self._blocks[at], self._firsts[at] = rest, rest.numbers[0]
            at -= 1
        for column in (self._blocks, self._firsts, self._ends):
            del column[: at + 1]
        self._gathers = self._gathers and bool(self._blocks)

    def _append(self, block: _Block) -> None:
        end = self._ends[-1] if self._ends else self._forgotten
        self._blocks.append(block)
        self._firsts.append(block.numbers[0])
        self._ends.append(end + len(block.numbers))
        self._gathers = False
