"""Reads meta.mdb without trusting it, in a separate process that garbage may end.

LMDB trusts its pages; a damaged page can make it read unmapped memory. The child prints each row as
two lengths, key and value. It opens the file read-only, without its lock file.
"""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import lmdb

from ...client.protocol.errors import CorruptData

_LENGTHS: Final = struct.Struct(">II")
_SAID_BYTES_MAX: Final = 4096


def read_rows(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield every row as it is in the file.

    Raises CorruptData, maybe after some rows; OSError.
    """
    if not path.is_file():
        raise CorruptData("the file is missing")
    process = subprocess.Popen(
        [sys.executable, "-m", "lognode.node.directory.meta_reader", str(path)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    with process:
        if process.stdout is None or process.stderr is None:
            raise CorruptData("the reader process has no pipes")
        yield from _parsed(process.stdout, path.stat().st_size)
        said = process.stderr.read(_SAID_BYTES_MAX).decode(errors="replace").strip()
    if process.returncode < 0:
        raise CorruptData(f"the file ends the reader process with signal {-process.returncode}")
    if process.returncode:
        raise CorruptData(said.splitlines()[-1] if said else "the file cannot be read")


def _parsed(stream: IO[bytes], size: int) -> Iterator[tuple[bytes, bytes]]:
    while len(lengths := stream.read(_LENGTHS.size)) == _LENGTHS.size:
        key_bytes, value_bytes = _LENGTHS.unpack(lengths)
        if key_bytes + value_bytes > size:
            raise CorruptData("a row is larger than the file")
        key, value = stream.read(key_bytes), stream.read(value_bytes)
        if len(value) < value_bytes:
            return
        yield key, value


def _dump(path: str, out: IO[bytes]) -> None:
    environment = lmdb.open(
        path, subdir=False, readonly=True, lock=False, readahead=False, lib_version=0
    )
    before, count = None, 0
    with environment.begin() as transaction, transaction.cursor() as cursor:
        for key, value in cursor:
            if before is not None and key <= before:
                raise lmdb.CorruptedError("the keys of the file do not ascend")  # a cycle of pages
            out.write(_LENGTHS.pack(len(key), len(value)) + key + value)
            before, count = key, count + 1
        out.flush()
        expected = transaction.stat()["entries"]
        if count != expected:
            raise lmdb.CorruptedError(f"the file has {count} of {expected} rows")


def main() -> int:
    """Run the child process."""
    try:
        _dump(sys.argv[1], sys.stdout.buffer)
    except (lmdb.Error, OSError, MemoryError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
