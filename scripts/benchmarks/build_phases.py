"""Building one segment: processor time a record, by phase. Keys are uniform, as in P1.

A phase is some functions of the builder; the time of one within another counts for the inner one
only. What no phase covers is `rest`. The values are those of `lognode bench append` (a key and
hexadecimal digits), random bytes, words of any length, or bytes of any length up to twice the size.
"""

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lognode.client.bench.shape import Shape
from lognode.client.protocol.records import encode_batch
from lognode.statemachine import (
    batch_entries,
    block_output,
    bloom_output,
    order_output,
    segment_block,
    segment_output,
    segment_writer,
    strings,
)
from lognode.statemachine.segment_writer import Source, build

_PHASES: dict[str, Sequence[tuple[object, str]]] = {
    "decompress": [(batch_entries._Opened, "__init__")],
    "locate": [(segment_writer, "entries_of")],
    "sort": [(segment_writer, "sort_keys")],
    "codec": [(segment_output, "choose_codec")],
    "gather keys": [(strings.Strings, "take")],
    "filter": [(bloom_output, "hash_keys"), (bloom_output, "build_filter")],
    "cut, lay out": [(segment_output.SegmentOutput, "add")],
    "encode": [(block_output.BlockEncoder, "encode")],
    "compress": [(segment_block.Codec, "pack_head"), (segment_block.Codec, "pack_values")],
    "order": [(order_output.OrderOutput, "add"), (order_output.OrderOutput, "finish")],
    "LMDB puts": [(segment_output.SegmentOutput, "_put")],
    "write, sync": [(segment_output.SegmentOutput, "finish")],
    "SHA-256": [(segment_output, "hash_file")],
}


class _Clock:
    """The processor time of each phase, less that of the phases within it."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._running: list[str] = ["rest"]
        self._since = time.thread_time()

    def turn_to(self, phase: str | None) -> None:
        """Begin a phase, or end the running one."""
        now = time.thread_time()
        self.spent[self._running[-1]] += now - self._since
        self._since = now
        if phase is None:
            self._running.pop()
        else:
            self._running.append(phase)

    def measured(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as a part of a phase."""

        def run(*arguments: Any, **named: Any) -> Any:
            self.turn_to(phase)
            try:
                return function(*arguments, **named)
            finally:
                self.turn_to(None)

        return run


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench build", description=__doc__)
    parser.add_argument("--records", type=int, default=300_000, help="size of the segment")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--batch", type=int, default=250, help="records of a batch")
    parser.add_argument("--repeats", type=int, default=3, help="the quickest counts")
    parser.add_argument("--kinds", default="bench,random,words,lengths")
    parser.add_argument("--directory", type=Path, default=Path(), help="where the file goes")
    options = parser.parse_args(arguments)
    for kind in options.kinds.split(","):
        sources = _sources(kind, options)
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            path = Path(directory) / "segment"
            plain = min(_build(path, sources) for _ in range(options.repeats))
            size = path.stat().st_size
            found = [_phases(path, sources) for _ in range(options.repeats)]
        best = min(found, key=lambda spent: sum(spent.values()))
        scale = 1e6 / options.records
        print(
            f"{kind}: {plain * scale:.2f} us a record, {size / options.records:.0f} bytes a "
            f"record; with a clock at each phase {sum(best.values()) * scale:.2f} us:"
        )
        for phase in [*_PHASES, "rest"]:
            print(f"  {phase:12} {best[phase] * scale:.3f}")
    return 0


def _build(path: Path, sources: Sequence[Source]) -> float:
    begun = time.process_time()
    build(path, 1, sources)
    return time.process_time() - begun


def _phases(path: Path, sources: Sequence[Source]) -> Counter[str]:
    clock, kept = _Clock(), []
    for phase, places in _PHASES.items():
        for owner, name in places:
            kept.append((owner, name, getattr(owner, name)))
            setattr(owner, name, clock.measured(phase, kept[-1][2]))
    try:
        build(path, 1, sources)
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)
    clock.turn_to(None)
    return clock.spent


def _sources(kind: str, options: argparse.Namespace) -> list[Source]:
    """Return the batches of one memtable."""
    rng, size = random.Random(1), options.value_bytes
    shape = Shape(options.keys, value_bytes=size)
    words = [rng.randbytes(3).hex().encode() for _ in range(2_000)]
    make: dict[str, Callable[[], bytes]] = {
        "random": lambda: rng.randbytes(size),
        "words": lambda: b" ".join(rng.choices(words, k=rng.randrange(1, size // 4))),
        "lengths": lambda: rng.randbytes(rng.randrange(2 * size)),
    }
    sources = []
    for at in range(0, options.records, options.batch):
        keys = shape.draw(min(options.batch, options.records - at), rng)
        values = [make[kind]() for _ in keys] if kind in make else shape.values(keys, at)
        data = encode_batch(keys, values, producer=1, epoch=1, low=1, numbers=1 + at)
        sources.append(Source(data, None, 1_000 + at // 1_000))
    return sources
