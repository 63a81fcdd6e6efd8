"""The tier of a cluster under test: an S3 server, the proxy that spoils requests, and restores."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..client.client import AsyncClient
from ..client.protocol.errors import LognodeError, LogNotFound, Unavailable
from .history import Recorder
from .nodes import Nodes
from .plan import Plan
from .tier_proxy import TierProxy
from .tier_server import KEYS, PLACE, TierServer
from .tier_watch import GRACE_S, TierWatch

_SMALL: Final = ("--wal-file-bytes", "65536")
"""Above a few such files memtables become segments, so that much is sealed in a short test."""
_FOLDER: Final = "tier"
_FILL: Final = "chaos-fill"
"""A log with large values: the write-ahead logs move on, so that nodes seal all memtables."""
_FILL_BYTES: Final = 16 << 10
_FILL_KEPT_BYTES: Final = 1 << 20
_FILL_S: Final = 0.15
_LAST_FILLS: Final = 80
"""More bytes than the write-ahead log of a node keeps."""
_ANSWER_S: Final = 5.0


class TierUnderTest:
    """The parts of a test that a tier needs."""

    def __init__(self, plan: Plan, nodes: Nodes, folder: Path, recorder: Recorder) -> None:
        self._plan = plan
        self._nodes = nodes
        self._folder = folder / _FOLDER
        self._recorder = recorder
        self._server = TierServer(self._folder / "server.log")
        self._proxy: TierProxy | None = None
        self._watch: TierWatch | None = None

    @property
    def proxy(self) -> TierProxy:
        """The proxy. Raises Unavailable before the start."""
        if self._proxy is None:
            raise Unavailable("the tier of the test was not started")
        return self._proxy

    async def start(self) -> Sequence[str]:
        """Start server and proxy; return the flags of the nodes. Raises Unavailable."""
        endpoint = await self._server.start()
        self._proxy = TierProxy(endpoint, random.Random(f"{self._plan.seed}/tier"))
        address = await self._proxy.start()
        for node in self._nodes:
            node.environment.update(KEYS)
        self._watch = TierWatch(
            self._nodes, endpoint, self._folder, self._recorder, source=self._plan.source,
            local_bytes=self._plan.local_retention_bytes,
        )  # fmt: skip
        return (
            "--tier", PLACE, "--tier-endpoint", address, "--tier-grace", f"{GRACE_S:g}", *_SMALL,
        )  # fmt: skip

    async def watch(self) -> None:
        """Restore the log again and again until cancelled; let the nodes seal meanwhile."""
        if self._watch is not None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch.run())
                group.create_task(self._fill())

    async def _fill(self) -> None:
        rng = random.Random(f"{self._plan.seed}/fill")
        async with AsyncClient(self._nodes.servers, timeout=_ANSWER_S) as client:
            while True:
                await asyncio.sleep(_FILL_S)
                await self._append(client, rng)

    async def _append(self, client: AsyncClient, rng: random.Random) -> None:
        """Append to the log with large values, unless a fault is in the way."""
        try:
            await client.log(_FILL).append(f"k{rng.randrange(8)}", rng.randbytes(_FILL_BYTES))
        except LogNotFound:
            with contextlib.suppress(LognodeError):
                await client.create_log(_FILL, retention_bytes=_FILL_KEPT_BYTES)
        except LognodeError:
            pass  # a fault: the next append may succeed

    async def settled(self) -> str:
        """Let the nodes seal what the test appended, wait until the store has everything, and
        restore once more. Returns what is wrong."""
        if self._watch is None:
            return "the tier was not started"
        async with AsyncClient(self._nodes.servers, timeout=_ANSWER_S) as client:
            rng = random.Random(f"{self._plan.seed}/last")
            for _ in range(_LAST_FILLS):
                await self._append(client, rng)
        why = await self._watch.settle()
        await self._watch.restore()
        return why

    async def only_files(self) -> int:
        """Return how many files the nodes have in the tier only, all nodes together."""
        return 0 if self._watch is None else await self._watch.only_files()

    async def stop(self) -> None:
        """End proxy and server."""
        if self._proxy is not None:
            await self._proxy.stop()
        await self._server.stop()
