"""One test, from start to end: start, load under faults, heal, read everything back, judge.

The verdict rests on the order at the end. First all faults end and every node runs again. Then the
cluster must become healthy by itself (L2). Then clients end and followers take their last
deliveries. Only then everything is read, from each node.
"""

import asyncio
import contextlib
import importlib.util
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..client.client import AsyncClient
from ..client.protocol.errors import LognodeError, Unavailable
from . import store
from .clients import Clients
from .finals import read_all, read_letters
from .history import Recorder
from .judge import judge
from .links import Links
from .nemeses import MOUNTED, PACKAGES, Package, Target
from .nemesis import Nemesis
from .nodes import Nodes
from .plan import KAFKA, NEED_LEVEL, Plan
from .process import Pace, Process
from .strangers import Strangers
from .tier_under_test import TierUnderTest
from .upgrades import change_build, finalize, finalized
from .watch import healthy, watch_leaders
from .workloads.kafka import PARTITIONS, read_topic
from .workloads.named import workload_of
from .workloads.parts import DEAD, LOG, logs_of

Say = Callable[[str], None]
_START_S: Final = 60.0
_CONVERGE_S: Final = 120.0
_SPLIT_AT: Final = ("k333", "k666")
_REPLICAS: Final = 3
_KAFKA_RANGES: Final = 3
_KAFKA_GROUPS: Final = "_kafka_groups"
"""The log in which nodes keep the committed offsets of Kafka clients."""
_FINALS_FROM: Final = 1_000_000
"""The numbers of the processes that read at the end begin here, above those of all clients."""


async def run_test(plan: Plan, folder: Path, links: Links, say: Say) -> dict[str, Any]:
    """Run and judge a test; `folder` then has all files. Returns the content of `results.json`.

    Raises Unavailable when the cluster does not even start.
    """
    test = Test(plan, folder, links, say)
    await test.run()
    results = await asyncio.to_thread(judge, folder)
    if results["verdict"] == "valid":
        store.drop_data(folder)
    return results


def missing(plan: Plan) -> list[str]:
    """Return why parts of a test cannot run on this machine, one reason each; empty if they can."""
    parts = dict.fromkeys((*plan.nemesis, *(("tier",) if plan.tier else ())))
    reasons = ((name, PACKAGES[name]().missing()) for name in parts)
    found = [f"{name}: {reason}" for name, reason in reasons if reason is not None]
    if plan.workload == KAFKA and importlib.util.find_spec("confluent_kafka") is None:
        found.append("kafka: confluent-kafka is missing; install the extra lognode[chaos]")
    return found


class Test:
    """The parts of one test while it runs."""

    def __init__(self, plan: Plan, folder: Path, links: Links, say: Say) -> None:
        self._plan = plan
        self._folder = folder
        self._say = say
        self._nodes = Nodes(
            folder / store.CLUSTER_FOLDER, plan.nodes, links, source=plan.source,
            mounted=not MOUNTED.isdisjoint(plan.nemesis), secure=plan.secure, earlier=plan.earlier,
            kafka=plan.workload == KAFKA,
        )  # fmt: skip
        self._links = links
        self._described = plan.described() | {
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        }
        began = time.monotonic_ns()
        self._recorder = Recorder(folder / store.HISTORY, lambda: time.monotonic_ns() - began)
        self._tier = TierUnderTest(plan, self._nodes, folder, self._recorder) if plan.tier else None

    async def run(self) -> None:
        """Run the whole test; nodes and proxies are gone afterwards in any case."""
        self._describe()
        try:
            flags = self._plan.flags
            if self._tier is not None:
                flags = (*flags, *await self._tier.start())
            await self._nodes.start(flags)
            self._describe(proxy=self._links.description)
            async with AsyncClient(self._nodes.servers, timeout=_START_S) as client:
                await self._prepare(client)
                await self._load(client)
            await self._read_everything()
        finally:
            self._recorder.close()
            await self._nodes.stop()
            await self._links.close()
            if self._tier is not None:
                await self._tier.stop()

    def _describe(self, **more: Any) -> None:
        self._described |= more
        store.write(self._folder, store.TEST, self._described)

    async def _prepare(self, client: AsyncClient) -> None:
        local_bytes = self._plan.local_retention_bytes
        needs_level = self._plan.workload in NEED_LEVEL or local_bytes is not None
        needs_level = needs_level and self._plan.earlier is None
        if self._plan.workload == KAFKA:  # logs with partitions need the level
            await self._be_healthy(client)
            await finalize(client)
            await client.create_log(
                LOG, replicas=_REPLICAS, kafka_partitions=PARTITIONS, ranges=_KAFKA_RANGES
            )
        else:
            for log in logs_of(self._plan.workload):
                await client.create_log(log, replicas=_REPLICAS, split_at=_SPLIT_AT)
        await self._be_healthy(client)
        if needs_level and self._plan.workload != KAFKA:
            await finalize(client)
        for log in logs_of(self._plan.workload) if local_bytes is not None else ():
            await client.alter_log(log, local_retention_bytes=local_bytes)
        if (credentials := self._nodes.credentials) is not None:
            await credentials.allow_workload(client, logs_of(self._plan.workload))

    async def _be_healthy(self, client: AsyncClient) -> None:
        if (why := await healthy(client, self._plan.nodes, _START_S)) is not None:
            raise Unavailable(f"the cluster was not healthy before the test: {why}")

    async def _load(self, client: AsyncClient) -> None:
        plan, recorder = self._plan, self._recorder
        workload = workload_of(plan.workload, random.Random(f"{plan.seed}/workload"))
        servers, kafka = self._nodes.workload_servers, self._nodes.kafka_servers
        clients = Clients(plan, servers, workload, recorder, kafka)
        packages: dict[str, Package] = {name: PACKAGES[name]() for name in plan.nemesis}
        rng = random.Random(f"{plan.seed}/nemesis")
        target = Target(self._nodes, self._links, client, LOG, rng, clients)
        if plan.workload == KAFKA:
            target.more_logs = (_KAFKA_GROUPS,)
        if self._tier is not None:
            target.tier = self._tier.proxy
        nemesis = Nemesis(packages, target, recorder, interval_s=plan.nemesis_interval_s, rng=rng)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch_leaders(client, recorder))
            running = group.create_task(clients.run())
            trying = group.create_task(self._let_strangers_try())
            restoring = group.create_task(self._restore())
            await self._break_things(nemesis)
            self._say("all faults have ended; the test waits until the cluster is healthy")
            why = await healthy(client, plan.nodes, _CONVERGE_S)
            if why is not None:
                self._describe(
                    not_converged=f"the cluster is not healthy {_CONVERGE_S:.0f} s after the end "
                    "of all "
                    f"faults: {why}"
                )
            elif plan.earlier is not None:
                self._describe(upgrade=await finalized(self._nodes, client))
            with contextlib.suppress(LognodeError):
                self._describe(insecure=(await client.status())["cluster"]["insecure"])
            clients.stop()
            await asyncio.wait([running])
            watching.cancel()
            trying.cancel()
            restoring.cancel()
        if self._tier is not None:
            self._say("the test waits until the tier has everything, and restores the log")
            settled = await self._tier.settled()
            self._describe(
                settled=settled, spoiled=self._tier.proxy.spoiled,
                only_files=await self._tier.only_files(),
            )  # fmt: skip

    async def _restore(self) -> None:
        """Restore the log until cancelled; return at once where the cluster has no tier."""
        if self._tier is not None:
            await self._tier.watch()

    async def _let_strangers_try(self) -> None:
        """Let strangers try until cancelled; return at once where the cluster refuses no client."""
        if self._nodes.credentials is None:
            return
        rng = random.Random(f"{self._plan.seed}/strangers")
        strangers = Strangers(self._nodes, self._nodes.credentials, rng)
        try:
            await strangers.run()
        finally:
            self._describe(strangers=strangers.told())

    async def _break_things(self, nemesis: Nemesis) -> None:
        """Inject faults for the time of the test; every node runs afterwards."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._plan.time_limit_s):
                await nemesis.run()
        await nemesis.heal()
        await self._links.heal()
        for node in self._nodes:
            node.resume()
            await node.start()
        for number in self._nodes.earlier:
            await change_build(self._nodes, number)

    async def _read_everything(self) -> None:
        """Read everything once from the cluster, then from every node a state at least as new."""
        through: dict[str, int] = {}
        rng = random.Random(self._plan.seed)
        is_kafka = self._plan.workload == KAFKA
        readers = [None] if is_kafka else [None, *self._nodes.numbers]
        for place, node in enumerate(readers):
            process = Process(
                _FINALS_FROM + place, self._nodes.workload_servers, LOG, self._recorder, rng,
                pace=Pace(self._plan.rate, rng), nodes=self._plan.nodes, timeout_s=_START_S,
                kafka=self._nodes.kafka_servers,
            )  # fmt: skip
            if is_kafka:
                await read_topic(process)
                await process.close()
                continue
            with contextlib.suppress(LognodeError):
                last = await read_all(process, node, through)
                through = through or last
                if node is None and DEAD in logs_of(self._plan.workload):
                    await read_letters(process)
            await process.close()
