"""Nodes of a page of a segment, found by a number."""

import random
from collections.abc import Sequence

import pytest

from lognode.statemachine.segment_format import ORDINAL
from lognode.statemachine.segment_pages import _HEADER, _NODE, Page


def page(numbers: Sequence[int], *, branch: bool) -> Page:
    lower = _HEADER.size + 2 * len(numbers)
    node = _NODE.size + ORDINAL.size
    heads = b"".join((lower + at * node).to_bytes(2, "little") for at in range(len(numbers)))
    nodes = b"".join(_NODE.pack(0, 0, 0, ORDINAL.size) + ORDINAL.pack(each) for each in numbers)
    return Page(bytes(_HEADER.size) + heads + nodes, lower, lower, branch=branch)


@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_S12_a_number_is_found_where_a_search_finds_it(seed: int, branch: bool) -> None:
    rng = random.Random(seed)
    first, count = rng.randrange(3), rng.randrange(1, 30)
    numbers = list(range(first, first + count))
    if seed % 2:  # damaged: a leaf lacks numbers
        numbers = sorted(rng.sample(range(40), count))
    made = page(numbers, branch=branch)
    for number in range(45):
        found = made.last_number_at_most(number)
        assert found == made.last_at_most(number, made.ordinal), number
