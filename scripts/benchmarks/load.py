"""`lognode bench` in a process of its own, apart from the process that measures."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from lognode.node.local.dev import LocalCluster


class Load:
    """A `lognode bench` that was started; `report` waits for its results."""

    def __init__(self, cluster: LocalCluster, *arguments: str | float) -> None:
        self._arguments = list(map(str, arguments))
        # A file, since no process reads a pipe before the end.
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `end`
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "lognode.node.main", "bench", *self._arguments,
                "--server", cluster.servers, "--timeout", "60s", "--format", "json",
            ],
            stdout=self._out, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """The process id of the load."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the load still runs."""
        return self._process.poll() is None

    def report(self, limit_s: float | None = None) -> dict[str, Any]:
        """Return the report.

        Raises RuntimeError with the program's output on a failure or wrong data.
        """
        try:
            _, said = self._process.communicate(timeout=limit_s)
            if self._process.returncode != 0:
                raise RuntimeError(f"lognode bench {' '.join(self._arguments)}: {said.strip()}")
            self._out.seek(0)
            found: dict[str, Any] = json.load(self._out)
            return found
        finally:
            self.end()

    def end(self) -> None:
        """Kill the load if it still runs."""
        if self.running:
            self._process.kill()
        self._process.wait()
        self._out.close()


def bench(cluster: LocalCluster, *arguments: str | float) -> dict[str, Any]:
    """Run `lognode bench` to its end; return the report."""
    return Load(cluster, *arguments).report()


def age(seconds: float) -> str:
    """Return seconds as the command line takes them."""
    return f"{round(seconds * 1_000)}ms"


def fill(
    cluster: LocalCluster, log: str, keys: int, *, value_bytes: int = 128, ranges: int = 4,
    records: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Create a log and append to its keys in order, one entry each by default."""
    return bench(
        cluster, "append", log, "--ranges", ranges, "--keys", keys, "--records", records or keys,
        "--value-bytes", value_bytes, "--in-order", "--window", 16, "--seconds", "86400",
    )  # fmt: skip


def flat(report: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return some figures of a report; `latency_ms.p50` is a nested one."""
    row = {}
    for name in names:
        value: Any = report
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        row[name.replace(".", " ")] = value
    return row
