"""All members build the same file from the same entries, and so does another version of lognode.

`tests/golden/segments.txt` has the content ids of some segments and of their merges. The builder
that sorted Python objects wrote the first lines. `pytest tests/unit/test_segment_golden.py
--rewrite` writes what is built now. Members that build different files for the same entries
disagree, so other bytes need another format of segments or another feature level.
"""

import random
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest
import zstandard

from lognode.client.protocol import limits
from lognode.client.protocol.records import encode_batch
from lognode.statemachine.merge import merge
from lognode.statemachine.segment_writer import SegmentInfo, Source, build

GOLDEN = Path(__file__).parents[1] / "golden" / "segments.txt"
LIBRARIES = f"zstandard {zstandard.__version__}, LMDB {lmdb.version()}"
"""What the bytes depend on besides the program."""

Make = Callable[[random.Random], bytes | None]
KEYS: dict[str, Make] = {
    "numbers": lambda rng: b"%016d" % rng.randrange(3_000),
    "bytes": lambda rng: rng.randbytes(rng.randrange(1, 20)),
    "zeros": lambda rng: bytes(rng.randrange(1, 40)),
    "prefixes": lambda rng: b"ab" * rng.randrange(1, 12) + bytes(rng.randrange(3)),
    "long": lambda rng: b"x" * rng.randrange(1, 470) + rng.randbytes(1),
    "one": lambda rng: b"the same key",
}
VALUES: dict[str, Make] = {
    "random": lambda rng: rng.randbytes(100),
    "digits": lambda rng: rng.randbytes(32).hex().encode(),
    "lengths": lambda rng: rng.randbytes(rng.choice([0, 1, 7, 64, 300, 5_000])),
    "some": lambda rng: None if rng.random() < 0.5 else b"v" * rng.randrange(60),
    "none": lambda rng: None,
    "little": lambda rng: rng.randbytes(110) + bytes(10),
}


def sources(name: str, key: Make, value: Make) -> list[Source]:
    rng, made = random.Random(name), []
    for at, count in enumerate([700, 1, 16, 15, 300, 2, 900]):
        headers = [{b"h": b"v" * rng.randrange(9)} if rng.random() < 0.1 else None
                   for _ in range(count)] if at in (2, 4) else None  # fmt: skip
        data = encode_batch(
            [key(rng) or b"k" for _ in range(count)], [value(rng) for _ in range(count)],
            producer=1, epoch=1, low=1, numbers=1, headers=headers,
            snapshots=[0, count - 1] if at == 3 else None, compress=at % 3 > 0,
        )  # fmt: skip
        chosen = sorted(rng.sample(range(count), count // 2 + 1)) if at in (4, 6) else None
        made.append(Source(data, chosen, 5_000 + 7 * at))
    return made


def kept(key: bytes, seqs: list[int], *_: object) -> list[int]:
    return [at for at, seq in enumerate(seqs) if seq % 3]


def lines(directory: Path, value_gain: int) -> list[str]:
    """A line for each kind of keys and values: the content ids of two segments and two merges."""
    found = []
    for key_name, key in KEYS.items():
        for value_name, value in VALUES.items():
            name = f"{key_name} {value_name}"
            made: list[tuple[Path, SegmentInfo]] = []
            for part in ("1", "2"):
                path, batches = directory / part, sources(name + part, key, value)
                first = made[-1][1].end_seq if made else 1 << 40
                made.append((path, build(path, first, batches, value_gain=value_gain)))
            ids = [info.content_id for _, info in made]
            for rule in (None, kept):
                merged = merge(
                    directory / "merged", made, start=b"", end=None, kept=rule,
                    value_gain=value_gain,
                )  # fmt: skip
                assert merged is not None
                ids.append(merged.content_id)
            found.append(f"{name}: {' '.join(each[:16] for each in ids)}")
    return found


def test_segments_have_the_bytes_that_they_had(
    tmp_path: Path, rewrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lognode.statemachine.segment_output.write_back", lambda path: None)
    first = lines(tmp_path, limits.value_gain_level_1)
    sixth = lines(tmp_path, limits.value_gain)
    made = [*first, *(f"level 6, {line}" for line in sixth if line not in first)]
    if rewrite:
        GOLDEN.write_text("\n".join([LIBRARIES, *made]) + "\n")
    libraries, *expected = GOLDEN.read_text().splitlines()
    if libraries != LIBRARIES:
        pytest.skip(f"the bytes are those of {libraries}")
    assert made == expected
