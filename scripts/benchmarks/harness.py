"""Common parts of the benchmarks of lognode alone: options, nodes, output."""

import argparse
import asyncio
import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lognode
from lognode.node.local.dev import LocalCluster

from . import nodes
from .figures import data_directory, environment

NODES = 3
Row = Mapping[str, Any]


def parser(name: str, about: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common options: --quick, --data, --json."""
    made = argparse.ArgumentParser(
        prog=f"scripts/bench {name}", description=(about or "").split("\n")[0], allow_abbrev=False
    )
    made.add_argument("--quick", action="store_true", help="small and short: does it work?")
    made.add_argument(
        "--data", type=data_directory, default=Path(), help="where the nodes' data goes"
    )
    made.add_argument("--json", type=Path, help="write the figures here, too")
    return made


@contextlib.contextmanager
def cluster(
    data: Path, flags: Sequence[str] = (), count: int = NODES, *, tls: bool = False
) -> Iterator[LocalCluster]:
    """Start `count` healthy nodes under `data`; their directories are removed afterwards."""
    with (
        tempfile.TemporaryDirectory(dir=data) as directory,
        LocalCluster(Path(directory), count, flags=flags, tls=tls) as started,
    ):
        wait_healthy(started)
        yield started


def wait_healthy(started: LocalCluster) -> None:
    """Return when the nodes report that they are healthy."""

    async def wait() -> None:
        async with lognode.AsyncClient(started.servers, timeout=60) as client:
            await nodes.healthy(client, len(started.nodes))

    asyncio.run(wait())


def show(options: argparse.Namespace, around: Row, results: Sequence[Row], **more: Any) -> None:
    """Print the environment and a table; write both, and `more`, as JSON if requested."""
    print("  ".join(f"{name}={value}" for name, value in around.items()))
    print(table(results))
    if options.json:
        body = {"environment": dict(around), "results": [dict(row) for row in results], **more}
        options.json.write_text(json.dumps(body, indent=2) + "\n")


def table(results: Sequence[Row]) -> str:
    """Return rows as aligned text; values that are not single figures go to the JSON only."""
    heads = list(dict.fromkeys(
        name for row in results for name, value in row.items() if not isinstance(value, dict | list)
    ))  # fmt: skip
    rows = [[_cell(row.get(head)) for head in heads] for row in results]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *rows)
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


__all__ = ["NODES", "Row", "cluster", "environment", "parser", "show", "table", "wait_healthy"]
