"""lognode itself, with its defaults."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import lognode
from lognode.client.bench.shape import Shape
from lognode.node.local.dev import LocalCluster

from .. import nodes
from .system import Client, Members, Record, System

_LOG = "bench"
RANGES = 4


class Lognode(System):
    """Three nodes, and a log of four ranges."""

    name: ClassVar[str] = "lognode"
    durability = "fsync on a majority"
    batch = 1_000
    window = 64

    def missing(self, cache: Path) -> str | None:
        return None

    def version(self, cache: Path) -> str:
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            capture_output=True, text=True, cwd=Path(__file__).parent, check=False,
        )  # fmt: skip
        return f"lognode {commit.stdout.strip()}"

    def settings(self) -> str:
        return f"defaults; {RANGES} ranges, 3 replicas\n"

    @contextlib.contextmanager
    def start(self, directory: Path, cache: Path) -> Iterator[Members]:
        with LocalCluster(directory, 3) as cluster:
            yield Members([cluster.servers], [node.pid for node in cluster.nodes])

    def client(self) -> Client:
        return _LognodeClient()


class _LognodeClient(Client):
    async def open(self, addresses: Sequence[str], shape: Shape) -> None:
        self._client = lognode.AsyncClient(",".join(addresses), timeout=60)
        await nodes.healthy(self._client)
        # As many ranges to the end as the others have partitions.
        await self._client.create_log(
            _LOG, split_at=shape.splits(RANGES), split_rate=None, split_bytes=None
        )
        await nodes.healthy(self._client)
        self._log = self._client.log(_LOG)

    async def append(self, records: Sequence[Record]) -> Any:
        if len(records) == 1:
            return (await self._log.append(*records[0])).seq
        return (await self._log.append_many(records))[0].seq

    async def read(self, record: Record, found_by: Any) -> bytes | None:
        found = [e async for e in self._log.scan(record[0], start=found_by, end=found_by + 1)]
        return found[0].value if found else None

    async def close(self) -> None:
        await self._client.close()
