"""What a leader refuses, so that no member ever meets it in apply (x22)."""

import pytest

from lognode import InvalidArgument
from lognode.client.protocol.records import encode_batch
from lognode.statemachine.admission import admit


def _batch(numbers: int | list[int], count: int = 2) -> bytes:
    pairs = [(b"k%d" % n, b"v") for n in range(count)]
    keys, values = zip(*pairs, strict=True)
    return encode_batch(keys, values, producer=1, epoch=1, low=1, numbers=numbers)


@pytest.mark.parametrize("numbers", [[3, 3], [3, 2], [0, 1], 0, (1 << 63) - 1, (1 << 64) - 1])
def test_x22_record_numbers_rise_and_have_64_bits(numbers: int | list[int]) -> None:
    """The last of consecutive ones may have more bits than the first says: it was applied, and then
    no member could store the range's tables."""
    with pytest.raises(
        InvalidArgument,
        match=r"a record number is not valid|record numbers of a batch do not increase",
    ):
        admit(_batch(numbers), b"", None)


def test_record_numbers_that_rise_are_taken() -> None:
    assert admit(_batch([3, 9]), b"", None).count == 2
    assert admit(_batch((1 << 63) - 2), b"", None).count == 2
