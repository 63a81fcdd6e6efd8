"""Restores from the tier of a cluster under test, at moments of the test and at its end.

Each restore is the command of an operator: an empty cluster of one node begins, `lognode tier
restore` fills it, and everything is read from it. At the end nothing may wait for the store, and
the store may have nothing but what a restore or a node needs. With `local_retention_bytes`, the
nodes must be within the bound then. The restores ask the server without the faults
of the proxy.
"""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp

from ..client.client import AsyncClient
from ..client.objects import places
from ..client.protocol.errors import LognodeError, Unavailable
from .history import Recorder
from .nodes import Node, Nodes
from .tier_server import KEYS, PLACE
from .workloads.parts import LOG, seqs

RESTORED: Final = "restored"
"""The name of the operation."""
GRACE_S: Final = 8.0
"""The nodes' `--tier-grace`. A restore that takes longer may fail while the cluster runs."""
_RESTORE_S: Final = 60.0
_PAUSE_S: Final = 6.0
_SETTLE_S: Final = 180.0
"""The bound for what waits: a node rests for up to a minute after errors of the store."""
_LOOK_S: Final = 1.0
_ANSWER_S: Final = 20.0
_NUMBERS_FROM: Final = 2_000_000
_NOTHING_YET: Final = ("does not have log", "has no tier")
"""What the command says while the store has nothing of the log."""


class _Straight:
    """A wiring without proxies, for clusters of one node."""

    def __init__(self) -> None:
        self._nodes: Mapping[int, str] = {}

    async def start(
        self, nodes: Mapping[int, str], peers: Mapping[int, str] | None = None,
        side_doors: Mapping[int, str] | None = None,
    ) -> None:  # fmt: skip
        """Note the addresses."""
        self._nodes = nodes

    def address(self, pair: tuple[int, int]) -> str:
        """Return the address of the second node itself."""
        return self._nodes[pair[1]]

    def side_door(self, number: int) -> str:
        """Return nothing: the nodes serve no Kafka clients."""
        return ""


class TierWatch:
    """Restores the log of a test. `endpoint`: the address of the S3 server itself."""

    def __init__(
        self, nodes: Nodes, endpoint: str, folder: Path, recorder: Recorder, *,
        source: Path | None, local_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self._nodes = nodes
        self._endpoint = endpoint
        self._folder = folder
        self._recorder = recorder
        self._source = source
        self._local_bytes = local_bytes
        """How many bytes of a range of the log the disk of a node may have at the end."""
        self._numbers = itertools.count(_NUMBERS_FROM)
        self._objects = places.opened(PLACE, endpoint=endpoint, environment=KEYS)

    async def run(self) -> None:
        """Restore again and again until cancelled."""
        while True:
            await asyncio.sleep(_PAUSE_S)
            await self.restore()

    async def restore(self) -> None:
        """Restore the log into an empty cluster, and read it; an operation of the history."""
        number, record = next(self._numbers), self._recorder.record
        record(number, "invoke", RESTORED, {})
        try:
            async with asyncio.timeout(_RESTORE_S):
                keys = await self._restored(self._folder / f"restored{number - _NUMBERS_FROM}")
        except (LognodeError, OSError, TimeoutError) as error:
            record(number, "fail", RESTORED, error=repr(error))
        except asyncio.CancelledError:
            record(number, "fail", RESTORED, error="CRASHED")
            raise
        else:
            record(number, "ok", RESTORED, {"keys": keys})

    async def _restored(self, folder: Path) -> dict[str, Any]:
        nodes = Nodes(folder, 1, _Straight(), source=self._source)
        try:
            await nodes.start()
            code, said = await self._command("restore", "--server", nodes.servers, "--log", LOG)
            if code:
                if any(text in said for text in _NOTHING_YET):
                    return {}
                raise Unavailable(said)
            async with AsyncClient(nodes.servers, timeout=_ANSWER_S) as client:
                log = client.log(LOG)
                found: dict[str, Any] = {}
                async for key in log.keys():
                    found[key.decode()] = seqs([entry async for entry in log.scan(key)])
                return found
        finally:
            for node in nodes:
                await node.kill()
            shutil.rmtree(folder, ignore_errors=True)

    async def _command(self, verb: str, *arguments: str) -> tuple[int, str]:
        """Run a verb of `lognode tier`; return its exit code, and its output or error."""
        environment = {**os.environ, **KEYS}
        if self._source is not None:
            environment["PYTHONPATH"] = str(self._source)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lognode.node.main", "tier", verb, PLACE,
            "--endpoint", self._endpoint, *arguments, env=environment,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        code = process.returncode or 0
        return code, (err if code else out).decode("utf-8", "replace").strip()

    # The end of a test.

    async def settle(self) -> str:
        """Wait until the store has everything that is sealed and nothing else.

        Returns why this did not come about, "" if it did.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SETTLE_S
        while why := await self._unsettled():
            if loop.time() >= deadline:
                return why
            await asyncio.sleep(_LOOK_S)
        code, said = await self._command("verify")
        return f"`lognode tier verify` ends with {code}: {said}" if code else ""

    async def _unsettled(self) -> str:
        """Return what still waits or is left over; "" for nothing."""
        try:
            for node in self._nodes:
                if told := _waits(await _status(node.http)) or await self._crowded(node):
                    return f"node {node.number}: {told}"
            return await self._left()
        except (LognodeError, aiohttp.ClientError, OSError, TimeoutError) as error:
            return repr(error)

    async def _left(self) -> str:
        """Compare the files in the store with those that a restore of all logs needs."""
        code, said = await self._command("list", "--format", "json")
        if code:
            return said
        needed = sum(row["files"] for row in json.loads(said))
        listed = await asyncio.to_thread(lambda: [each.name for each in self._objects.objects()])
        files = {name.rpartition("/")[0] for name in listed if name.startswith("files/")}
        once = {path.rpartition(".")[0] for path in files}
        if len(once) < len(files):
            return f"{len(files) - len(once)} files are there twice"
        # Nodes may need files that their leaders have merged.
        most = needed + (0 if self._local_bytes is None else await self.only_files())
        if not needed <= len(files) <= most:
            return f"the store has {len(files)} files, and restores need {needed}"
        manifests = [name for name in listed if name.startswith("manifests/")]
        if len(manifests) > len({name.rpartition("/")[0] for name in manifests}):
            return "a range has two manifests"
        return ""

    async def _crowded(self, node: Node) -> str:
        """Return which range of the log has more on the disk of a node than the bound."""
        if self._local_bytes is None:
            return ""
        async with AsyncClient(self._nodes.servers, timeout=_ANSWER_S) as client:
            ids = {row["id"] for row in await client.admin.ranges(LOG)}
        for row in (await _status(node.http))["replicas"]:
            size = row["segment_bytes"] - row["tier_only_bytes"]
            if row["range"] in ids and size > self._local_bytes:
                return f"range {row['range']} has {size} bytes of segments on the disk"
        return ""

    async def only_files(self) -> int:
        """Return how many files the nodes have in the tier only, all nodes together."""
        found = [await _status(node.http) for node in self._nodes]
        return sum(status["tier"]["only_files"] for status in found)


async def _status(http: str) -> Any:
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"http://{http}/status.json") as answer,
    ):
        return await answer.json()


def _waits(status: Any) -> str:
    """Return what a node still has to upload, as its status tells."""
    row = status["tier"]
    if row["waiting_files"]:
        return f"{row['waiting_files']} files wait, after the error {row['last_error']!r}"
    return ""
