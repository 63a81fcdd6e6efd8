"""The table of producers of one moment, made into rows while the range goes on."""

import asyncio
import gc
import random
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_turns import Turns
from storage_node import StorageNode, descriptor, one_life

from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.records import decode_batch, encode_batch
from lognode.statemachine import commands
from lognode.statemachine.number_runs import NumberRuns
from lognode.statemachine.producer_row import Elder
from lognode.statemachine.producers import Producers
from lognode.statemachine.range_state import Base

TURN_S = 0.05
SCATTERED = 118_000


@pytest.fixture
def _no_garbage_collection() -> Iterator[None]:
    """A node looks at what is old at moments of its own (`node.runtime.garbage`)."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def record(table: Producers, producer: int, numbers: list[int], low: int, seq: int) -> int:
    """Apply what is new of a batch; the next seq."""
    count = len(numbers)
    batch = decode_batch(
        encode_batch([b"k"] * count, [b"v"] * count, producer=producer, epoch=1, low=low,
                     numbers=numbers)
    )  # fmt: skip
    fresh = table.check(batch)
    if isinstance(fresh, LognodeError):
        return seq
    new = batch.numbers if fresh is None else [batch.numbers[at] for at in fresh]
    table.record(batch, new, seq, seq)
    return seq + len(new)


def change(table: Producers, rng: random.Random, seq: int) -> int:
    """Do to the table one of the things that entries do; the next seq."""
    producer = rng.randrange(1, 6)
    chance = rng.random()
    if chance < 0.05:
        table.retire([producer])
    elif chance < 0.15:
        table.fence(producer, rng.randrange(1, 3), rng.randrange(9), seq)
    else:
        first = rng.randrange(1, 60_000)
        step = rng.choice((1, 1, 3))
        numbers = list(range(first, first + step * rng.randrange(1, 900), step))
        seq = record(table, producer, numbers, rng.choice((1, 1, first)), seq)
    return seq


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_x16_a_capture_is_the_table_of_its_moment_whatever_comes_afterwards(seed: int) -> None:
    rng = random.Random(seed)
    table, seq = Producers(), 1
    under_way: list[tuple[Any, Generator[None, None, None], dict[int, list[Any]]]] = []
    made = 0
    for _ in range(200):
        seq = change(table, rng, seq)
        if rng.random() < 0.1:
            wanted = table.to_wire()
            capture = table.capture()
            under_way.append((capture, capture.steps(), wanted))
        going, under_way = under_way, []
        for capture, steps, wanted in going:
            for _ in range(rng.randrange(4)):
                next(steps, None)
            if capture.is_done:
                made += 1
                assert capture.rows == wanted
                assert list(capture.rows) == list(wanted)
            elif rng.random() < 0.02:  # a build that failed: it is begun again
                steps.close()
                under_way.append((capture, capture.steps(), wanted))
            else:
                under_way.append((capture, steps, wanted))
        if rng.random() < 0.05:  # a replica that begins with a base
            table = Producers.from_wire(table.to_wire())
            under_way.clear()
    for capture, _, wanted in under_way:
        capture.finish()
        assert capture.rows == wanted
    assert made or under_way


def test_x16_a_row_with_elders_is_captured_whole() -> None:
    table = Producers()
    record(table, 7, [4, 6, 8], 1, 1)
    runs = NumberRuns([1, 2, 9], [5, 6, 7])
    table.rows[7].elders.append(Elder(b"a", b"c", 1, 9, runs))
    wanted = table.to_wire()
    capture = table.capture()
    steps = capture.steps()
    next(steps)
    record(table, 7, [10, 12], 10, 9)
    assert table.rows[7].elders == []
    for _ in steps:
        pass
    assert capture.rows == wanted
    assert wanted[7][6] == [[b"a", b"c", 1, 9, [[1, 9], [5, 7], [0, 2, 3]]]]


def scattered() -> Producers:
    """A producer with as many numbers as the range takes, none beside another, a part of them
    late; and many producers with little."""
    table, seq = Producers(), 1
    for first in (3, 1):
        for begin in range(first, 4 * SCATTERED // (3 if first == 1 else 1), 4_000):
            seq = record(table, 7, list(range(begin, begin + 4_000, 4)), 1, seq) + 1
    for producer in range(1_000, 31_000):
        seq = record(table, producer, [1], 1, seq)
    return table


@pytest.mark.slow
@pytest.mark.usefixtures("_no_garbage_collection")
def test_no_step_of_a_capture_is_long() -> None:
    table = scattered()
    assert table.rows[7].count > SCATTERED
    began = time.thread_time()
    capture = table.capture()
    capture.keep(7)
    longest = time.thread_time() - began
    steps = capture.steps()
    while not capture.is_done:
        began = time.thread_time()
        next(steps, None)
        longest = max(longest, time.thread_time() - began)
    assert longest < TURN_S, longest
    assert len(capture.rows[7][3][0]) == table.rows[7].count


@pytest.mark.slow
@pytest.mark.usefixtures("_no_garbage_collection")
def test_a_checkpoint_of_scattered_numbers_holds_the_loop_for_no_long_turn(tmp_path: Path) -> None:
    """Rows of 118,000 scattered numbers took 135 ms in one turn."""

    async def test(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(5), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        replica.state.producers = scattered()
        data = encode_batch([b"k"], [b"v"], producer=0, epoch=1, low=1, numbers=1)
        replica.propose(commands.encode(commands.APPEND, 1, [data]), ())
        await node.applied(replica)
        wanted = replica.state.producers.to_wire()
        gc.collect()
        turns = Turns()
        await asyncio.sleep(0)
        await node.flusher.flush(replica)
        longest = turns.stop()
        assert replica.state.durable_base.applied_index == replica.applied_index
        assert replica.state.durable_base.tables["producers"] == wanted
        assert longest < TURN_S, longest

    one_life(tmp_path, test)
