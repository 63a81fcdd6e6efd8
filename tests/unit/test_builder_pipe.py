"""Sources on their way to the builder process: small data are packed, large data follow."""

import io
import os
import random
import threading
from pathlib import Path

import pytest

from lognode.client.protocol.records import encode_batch
from lognode.statemachine import builder
from lognode.statemachine.builder import Builder
from lognode.statemachine.segment_writer import build
from lognode.statemachine.sources import Source


def given(sources: list[Source]) -> list[Source]:
    """Give sources through a pipe, which takes part of a write at a time, and return what comes."""
    out, into = os.pipe()
    found: list[Source] = []

    def read() -> None:
        with os.fdopen(out, "rb") as pipe:
            while len(found) < len(sources):
                found.extend(builder._received_sources(pipe))
            assert pipe.read() == b""

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(into, "wb", 0) as pipe:
        os.set_blocking(into, False)
        for some in builder._portions(sources):
            following = builder._large(some)
            assert builder._give(pipe, builder._without_large(some), 60.0, following) > 0
    reader.join(60.0)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_sources_of_all_sizes_come_as_they_were_given(seed: int) -> None:
    rng = random.Random(seed)
    apart = builder._APART_BYTES
    sizes = rng.choices(
        (0, 1, apart - 1, apart, apart + 1, 9 * apart, 1 << 20), k=rng.randrange(90)
    )
    sources = [
        Source(rng.randbytes(size), rng.choice((None, [], [1, 5])), rng.randrange(1 << 41))
        for size in [*sizes, *rng.choices((20, 99), k=rng.choice((0, 1_200)))]
    ]
    rng.shuffle(sources)
    assert given(sources) == sources


def test_a_pipe_that_ends_within_large_data_ends_the_request() -> None:
    source = Source(bytes(2 * builder._APART_BYTES), None, 5)
    whole = io.BytesIO()
    builder._send(whole, builder._without_large([source]))
    whole.write(source.data)
    assert builder._received_sources(io.BytesIO(whole.getvalue())) == [source]
    for cut in (1, len(source.data)):
        with pytest.raises(EOFError):
            builder._received_sources(io.BytesIO(whole.getvalue()[:-cut]))


def test_the_process_builds_what_is_built_here(tmp_path: Path) -> None:
    rng = random.Random(1)
    sources = []
    for at, count in enumerate((1, 400, 3, 900)):
        keys = [b"%08d" % rng.randrange(10**6) for _ in range(count)]
        data = encode_batch(
            keys, [rng.randbytes(60) for _ in keys], producer=1, epoch=1, low=1, numbers=1
        )
        sources.append(Source(data, None if at < 3 else [*range(0, count, 2)], 1_000 + at))
    assert len(builder._large(sources)) == 2
    process = Builder()
    try:
        found = process.build(tmp_path / "one", 9, sources)
    finally:
        process.stop()
    assert found == build(tmp_path / "other", 9, sources)
