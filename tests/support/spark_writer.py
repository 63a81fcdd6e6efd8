"""Somebody who appends at a rate all the while, from a process of its own.

python tests/support/spark_writer.py SERVERS LOG RATE prints how many records are acknowledged.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import lognode

_BATCH: Final = 500


@contextmanager
def writing(servers: str, log: str, rate: int, told: Path) -> Iterator[Path]:
    """Such a process, until the block ends; it tells in that file. Raises AssertionError where an
    append failed."""
    with open(told, "wb") as output:
        running = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), servers, log, str(rate)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield told
    finally:
        running.terminate()
        code = running.wait(30)
    assert code == -15, told.read_text()


def acknowledged(told: Path) -> int:
    """How many records so far."""
    lines = told.read_text().splitlines()
    return int(lines[-1]) if lines else 0


def main(servers: str, log: str, rate: str) -> None:
    """Append until killed: what is late is caught up with."""
    with lognode.Client(servers, timeout=120) as client:
        begun, count, to = time.monotonic(), 0, client.log(log)
        while True:
            time.sleep(max(0.0, begun + count / int(rate) - time.monotonic()))
            to.append_many(
                [(b"k%02d" % (at % 50), b"%d" % at) for at in range(count, count + _BATCH)]
            )
            count += _BATCH
            print(count, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
