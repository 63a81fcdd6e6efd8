"""Programs of a benchmark, each a module in a process of its own, that answer in lines of JSON."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from .peers.system import with_modules


@contextlib.contextmanager
def program(module: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a module of the benchmarks; it is killed if it still runs at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **with_modules()},
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Return the next line of the program's output. Raises RuntimeError when the program ends
    without it; its errors are on standard error."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise RuntimeError(f"{process.args[2]} ended with code {process.wait()}")  # type: ignore[index]
    found: dict[str, Any] = json.loads(text)
    return found


def tell(process: "subprocess.Popen[str]", text: str) -> None:
    """Write a line to the program's standard input."""
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()
