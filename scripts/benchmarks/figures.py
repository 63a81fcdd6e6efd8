"""Latencies, rates, and what has to be said beside them: the machine, the disk, the versions."""

import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Result:
    """One workload on one system."""

    system: str
    workload: str
    replicas: int
    durability: str
    records: int
    seconds: float
    records_per_second: float
    p50_ms: float
    p99_ms: float


def quantile(values: Sequence[float], fraction: float) -> float:
    """The nearest-rank quantile; 0 of an empty sequence."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def result(
    system: str,
    workload: str,
    durability: str,
    *,
    records: int,
    seconds: float,
    latencies_s: Sequence[float],
) -> Result:
    """Sum a run up."""
    return Result(
        system=system,
        workload=workload,
        replicas=3,
        durability=durability,
        records=records,
        seconds=round(seconds, 2),
        records_per_second=round(records / seconds, 1),
        p50_ms=round(quantile(latencies_s, 0.5) * 1e3, 3),
        p99_ms=round(quantile(latencies_s, 0.99) * 1e3, 3),
    )


def environment() -> dict[str, str | int | float]:
    """Cores, Python, commit, and what one fdatasync of 4 KiB costs here (median, ms)."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    return {
        "cores": os.cpu_count() or 0,
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "fdatasync_p50_ms": round(_sync_cost_s() * 1e3, 3),
    }


def table(results: Sequence[Result]) -> str:
    """The results as aligned text."""
    rows = [tuple(map(str, asdict(r).values())) for r in results]
    head = tuple(asdict(results[0])) if results else ()
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join(lines)


def _sync_cost_s() -> float:
    costs = []
    with tempfile.NamedTemporaryFile(dir=".") as file:
        for i in range(200):
            os.pwrite(file.fileno(), b"x" * 4096, i * 4096)
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            costs.append(time.perf_counter() - started)
    return quantile(costs, 0.5)
