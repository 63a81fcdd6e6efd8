"""Where each string of many packed columns lies in their bytes.

A packed column is a msgpack array of binary data, or nil where a value is absent. Where all strings
of a column have one length, as keys mostly have, one comparison of all their heads proves where
each string begins. Any other column is unpacked once, for the lengths only. The compiled module
passes over the heads of all columns once.
"""

from array import array
from collections.abc import Sequence
from typing import Final

import msgpack
import numpy as np

from ..client.protocol.columns import column
from ..client.protocol.invariants import invariant
from ..client.protocol.native import native
from .scattered import PLACE_BITS, Scattered
from .strings import SLACK, Bytes, Marks, Numbers, Strings

_SHORT, _MIDDLE = 1 << 8, 1 << 16
"""From these lengths on the head of a string has 3 and 5 bytes instead of 2."""
_FEW: Final = 16
"""From this count on the head of an array has 3 bytes instead of 1; from `_MIDDLE` on 5."""
_NIL: Final = -1
"""The length of an absent string, while its place is looked for."""


def unpacked(packed: Sequence[bytes], counts: Sequence[int]) -> Strings:
    """Return all strings of these columns of `counts` strings. Raises ValueError."""
    found = None if native is None else native.locate([*packed], [*counts], False, 0)
    if found is None:
        layout = _layout(packed, counts, none=False)
        return Strings(layout.data, layout.starts, layout.lengths)
    starts, lengths = (np.frombuffer(each, np.int64) for each in found)
    return Strings(np.frombuffer(_joined(packed), np.uint8), starts, lengths)


def located(packed: Sequence[bytes], counts: Sequence[int]) -> tuple[Scattered, Marks | None]:
    """Return all strings of these columns of `counts` strings, and which are absent.

    The columns are the buffers of the strings. The marks are None when no string is absent. Raises
    ValueError.
    """
    found = None if native is None else native.locate([*packed], [*counts], True, PLACE_BITS)
    buffers = tuple(packed)
    if found is None:
        layout = _layout(packed, counts, none=True)
        buffers, places, lengths = (layout.joined,), layout.starts, layout.lengths
    else:
        places, lengths = (np.frombuffer(each, np.int64) for each in found)
    absent = lengths == _NIL
    if not absent.any():
        return Scattered(buffers, places, lengths), None
    return Scattered(buffers, places, np.maximum(lengths, 0)), absent


def _layout(packed: Sequence[bytes], counts: Sequence[int], *, none: bool) -> "_Layout":
    found = _Layout(packed, counts, none=none)
    if len(found.strange):
        # The sender packed some heads in more bytes than they need: pack these columns anew.
        packed = [*packed]
        for at in found.strange.tolist():
            packed[at] = msgpack.packb(column(packed[at], counts[at], none=none))
        found = _Layout(packed, counts, none=none)
        invariant(not len(found.strange), "a column that was packed anew has no known layout")
    return found


def _joined(packed: Sequence[bytes]) -> bytes:
    return b"".join([*packed, bytes(SLACK)])


class _Layout:
    """Starts and lengths of the strings. `strange`: the columns for which these are not known."""

    def __init__(self, packed: Sequence[bytes], counts: Sequence[int], *, none: bool) -> None:
        self.joined = _joined(packed)
        self.data: Bytes = np.frombuffer(self.joined, np.uint8)
        self._counts = np.array(counts, np.int64)
        self._firsts = np.cumsum(self._counts) - self._counts
        sizes = np.fromiter(map(len, packed), np.int64, len(packed))
        self._ends = np.cumsum(sizes)
        begins = self._ends - sizes
        heads = np.where(self._counts < _FEW, 1, np.where(self._counts < _MIDDLE, 3, 5))
        self._elements = begins + heads
        sound = _array_heads(self.data, begins, self._counts)
        even = self._lay_out_even(sizes - heads) & sound
        self.strange = np.flatnonzero(~sound)
        uneven = np.flatnonzero(~even)
        if len(uneven):
            self._lay_out_uneven(uneven, packed, none)

    def _lay_out_even(self, sizes: Numbers) -> Marks:
        """Take the strings of each column as equally long, and return for which that is right."""
        counts = self._counts
        strides, rest = np.divmod(np.maximum(sizes, 0), counts)
        heads = np.where(strides < 2 + _SHORT, 2, np.where(strides < 3 + _MIDDLE, 3, 5))
        every, head, stride = int(counts.sum()), _each(heads, counts), _each(strides, counts)
        starts = np.repeat(self._elements - self._firsts * strides, counts)
        starts += np.arange(every) * stride
        self.lengths = np.broadcast_to(stride - head, every).copy()
        right = _string_heads(self.data, starts, stride - head, head)
        self.starts = starts + head
        even: Marks = np.logical_and.reduceat(right, self._firsts)
        even &= (rest == 0) & (strides >= heads)
        return even

    def _lay_out_uneven(self, uneven: Numbers, packed: Sequence[bytes], none: bool) -> None:
        found = array("q")
        for at in uneven.tolist():
            strings = column(packed[at], int(self._counts[at]), none=none)
            try:
                found.extend(list(map(len, strings)))
            except TypeError:  # some are absent
                found.extend([_NIL if each is None else len(each) for each in strings])
        lengths = np.frombuffer(found, np.int64)
        counts = self._counts[uneven]
        heads = np.where(lengths < _SHORT, 2, np.where(lengths < _MIDDLE, 3, 5))
        heads[lengths == _NIL] = 1
        sizes = np.maximum(lengths, 0)
        ends = np.cumsum(heads + sizes)
        lasts = np.cumsum(counts) - 1
        ends += np.repeat(self._elements[uneven] - np.concatenate(([0], ends[lasts[:-1]])), counts)
        places = np.repeat(self._firsts[uneven], counts)
        places += np.arange(len(lengths)) - np.repeat(lasts + 1 - counts, counts)
        self.starts[places], self.lengths[places] = ends - sizes, lengths
        strange = uneven[ends[lasts] != self._ends[uneven]]
        self.strange = np.union1d(self.strange, strange)


def _each(numbers: Numbers, counts: Numbers) -> Numbers:
    """Return each number so many times, or once if all are the same."""
    return numbers[:1] if (numbers == numbers[0]).all() else np.repeat(numbers, counts)


def _array_heads(data: Bytes, places: Numbers, counts: Numbers) -> Marks:
    """Return at which places the shortest head of an array of so many elements is."""
    few, middle = counts < _FEW, counts < _MIDDLE
    kinds = np.where(few, 0x90 | counts, np.where(middle, 0xDC, 0xDD))
    widths = np.where(few, 0, np.where(middle, 2, 4))
    return _numbers_are(data, places + 1, widths, counts, data[places] == kinds)


def _string_heads(data: Bytes, places: Numbers, lengths: Numbers, heads: Numbers) -> Marks:
    """Return at which places a head of so many bytes and of a string so long is."""
    kinds = np.where(heads == 2, 0xC4, np.where(heads == 3, 0xC5, 0xC6))
    return _numbers_are(data, places + 1, heads - 1, lengths, data[places] == kinds)


def _numbers_are(
    data: Bytes, places: Numbers, widths: Numbers, expected: Numbers, among: Marks
) -> Marks:
    """Return where a big-endian number of so many bytes is the expected one, among the marked."""
    numbers: Numbers = np.zeros(1, np.int64)
    for at in range(int(widths.max(initial=0))):
        longer = numbers << 8 | data[places + at]
        numbers = longer if (widths > at).all() else np.where(widths > at, longer, numbers)
    among &= (numbers == expected) | (widths == 0)
    return among
