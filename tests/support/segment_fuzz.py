"""Spoil a segment file below its hash, read it, and see that no wrong entry is read.

Each spoiled file is opened in a fork of this process, without hashing it, as the store opens a file
after a start: pages of LMDB's are flipped, overwritten, swapped, zeroed, the file is cut. Reads
must give what was written or say that it is damaged, and end; a file that rots or is cut while it
is open must not give anything else either. Run as a program: `segment_fuzz.py DIRECTORY FIRST
COUNT` prints the result of each seed, and fails at the first that is wrong.
"""

import os
import random
import signal
import struct
import sys
from collections import Counter
from pathlib import Path

from lognode.client.protocol.errors import CorruptData
from lognode.client.protocol.records import encode_batch
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.segment_reader import Segment
from lognode.statemachine.segment_writer import Source, build

PAGE = 4096
_HUNG_S = 60
_SAMPLED = 40
_OVERFLOW = 4
SOUND, FOUND, WRONG, RAISED = range(4)
Expected = dict[bytes, list[tuple[int, bytes]]]


def write(path: Path) -> Expected:
    """A file with keys of many lengths, one of them in many blocks; so all kinds of pages."""
    rng = random.Random(1)
    expected: Expected = {}
    keys = [(b"%05d" % rng.randrange(1200)).ljust(rng.choice([5, 300]), b"k") for _ in range(2500)]
    keys += [b"hot"] * 150
    sources = []
    for at in range(0, len(keys), 100):
        part = keys[at : at + 100]
        values = [rng.randbytes(3000 if key == b"hot" else 100) for key in part]
        data = encode_batch(part, values, producer=0, epoch=0, low=0, numbers=1)
        sources.append(Source(data, None, 1000 + at))
        for seq, (key, value) in enumerate(zip(part, values, strict=True), at + 1):
            expected.setdefault(key, []).append((seq, value))
    build(path, 1, sources)
    return expected


def trees(whole: bytes) -> list[int]:
    """The pages that are LMDB's own: metas, branches and leaves."""
    found, at = [], 0
    while at < len(whole) // PAGE:
        flags, length = struct.unpack_from("=10xHI", whole, at * PAGE)
        if flags == _OVERFLOW:
            at += length
        else:
            found.append(at)
            at += 1
    return found


def spoil(whole: bytes, pages: list[int], rng: random.Random) -> bytes:
    """The file with one thing wrong, mostly in a page of LMDB's own."""
    broken = bytearray(whole)
    page = PAGE * (rng.choice(pages) if rng.random() < 0.8 else rng.randrange(len(whole) // PAGE))
    at = page + rng.randrange(PAGE)
    kind = rng.choice(["flip", "byte", "head", "pointer", "noise", "zero", "swap", "cut"])
    if kind == "flip":
        broken[at] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        broken[at] = rng.randrange(256)
    elif kind == "head":
        broken[page + rng.randrange(16)] = rng.randrange(256)
    elif kind == "pointer":
        struct.pack_into("=H", broken, page + 2 * rng.randrange(6, 60), rng.randrange(1 << 16))
    elif kind == "noise":
        broken[at : at + 16] = rng.randbytes(len(broken[at : at + 16]))
    elif kind == "zero":
        broken[page : page + PAGE] = bytes(PAGE)
    elif kind == "swap":
        other = PAGE * rng.choice(pages)
        broken[page : page + PAGE] = whole[other : other + PAGE]
    else:
        del broken[rng.choice([at, page]) :]
    return bytes(broken)


def look(segment: Segment, keys: list[bytes], expected: Expected) -> int:
    """Read these keys in all ways, then everything."""
    result = SOUND
    for key in keys:
        seqs = [seq for seq, _ in expected[key]]
        try:
            entries = list(segment.entries(key, 1, None))
            right = [(entry.seq, entry.value) for entry in entries] == expected[key] and (
                [entry.seq for entry in segment.entries_reversed(key, 1, None)] == seqs[::-1]
                and segment.last_seq(key) == seqs[-1]
                and segment.count(key, 1, None) == len(seqs)
                and next(segment.keys_after(key, None)) == key
                and segment.entry_at_seq(seqs[0]) == entries[0]
            )
        except CorruptData:
            result = FOUND
        else:
            if not right:
                return WRONG
    try:
        segment.check()
    except CorruptData:
        return FOUND
    return result


def child(path: Path, whole: bytes, broken: bytes, rng: random.Random, expected: Expected) -> int:
    """The result: spoiled before it is opened, or, now and then, while it is open."""
    keys = rng.sample(sorted(expected), _SAMPLED)
    late = len(broken) < len(whole) and rng.random() < 0.5
    path.write_bytes(whole if late else broken)
    try:
        segment = Segment(path, "x", BlockCache(rng.choice([0, 1 << 22])))
    except CorruptData:
        return FOUND
    if late:
        if look(segment, keys[:3], expected) != SOUND:
            return WRONG
        os.truncate(path, len(broken))
    return look(segment, keys, expected)


def attempt(path: Path, seed: int, whole: bytes, pages: list[int], expected: Expected) -> str:
    """In a process of its own."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(_HUNG_S)
        code = RAISED
        try:
            rng = random.Random(seed)
            code = child(path, whole, spoil(whole, pages, rng), rng, expected)
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return ("sound", "found", "WRONG", "RAISED")[os.WEXITSTATUS(status)]


def main() -> None:
    directory, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    expected = write(directory / "whole")
    whole = (directory / "whole").read_bytes()
    pages = trees(whole)
    results: Counter[str] = Counter()
    for seed in range(first, first + count):
        result = attempt(directory / "spoiled", seed, whole, pages, expected)
        results[result] += 1
        if result not in ("sound", "found"):
            sys.exit(f"seed {seed}: {result}")
    print(*(f"{name} {number}" for name, number in sorted(results.items())))


if __name__ == "__main__":
    main()
