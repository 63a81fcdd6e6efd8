"""One seed: a cluster, a workload of the live tests, faults, and the judgement of the history."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from ...client.client import AsyncClient
from ...client.protocol.errors import LognodeError
from .. import checkers
from ..checkers.enough import enough
from ..clients import Clients
from ..finals import read_all, read_letters
from ..history import Event, History, Recorder
from ..judge import clients_kept_their_word, sentence
from ..nemeses import Target
from ..nemesis import Nemesis
from ..nodes import Nodes
from ..plan import NEED_LEVEL, Plan
from ..process import Pace
from ..process import Process as Reader
from ..upgrades import finalize
from ..verdict import Anomaly, Result, Verdict, merged
from ..watch import healthy, watch_leaders
from ..workloads.named import workload_of
from ..workloads.parts import DEAD, LOG, logs_of
from .additions import Additions
from .directories import kill_and_verify
from .faults import PACKAGES, Operator, SimLinks
from .founding import found, join, join_late
from .loop import START_S, Stuck
from .lost_nodes import lose_nodes
from .options import described
from .process import Process
from .recovered_token import recover_token
from .rot import rot
from .sides import Side, sides_of
from .stage import Stage, stage
from .trace import Sink, Trace

_START_S: Final = 60.0
_CONVERGE_S: Final = 60.0
_WHOLE_S: Final = 600.0
"""Virtual seconds after which a run counts as stuck."""
_IDLE_S: Final = 70.0
"""Longer than the periods of the scrub, of the retirement of producers and of changed files."""
_LOCAL_S: Final = 8.0
"""Files leave the local disks some seconds after they were made."""
_FINALS_FROM: Final = 1_000_000
_SPLIT_AT: Final = ("k333", "k666")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed came to."""

    seed: int
    verdict: Verdict
    why: str
    trace: str
    """The hash of the run."""
    options: str
    simulated_s: float
    turns: int
    ok: int
    """Operations that succeeded."""
    acked: int
    """Appends that succeeded."""
    faults: int
    elections: int
    starts: int
    """Starts of nodes, the first ones included."""
    changes: int
    """Operations on ranges that the nemesis asked for."""
    cpu_s: float
    """Processor time of the run, judgement included."""
    detail: list[str] = field(default_factory=list)
    """The last events, unless the run is valid."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def run_seed(plan: Plan, sink: Sink | None = None, additions: Additions | None = None) -> Outcome:
    """Run the plan and judge it. The result is a function of the plan alone, except `cpu_s`.

    `additions` replaces those that the plan's seed draws.
    """
    began = time.process_time()
    trace = Trace(sink)
    if additions is None:
        additions = Additions.of(plan.seed, plan.nodes)
    with stage(plan.seed, plan.nodes, trace, additions) as set_up:
        run = _Run(plan, set_up, additions)
        run.go()
    results = run.judge()
    verdict = merged(results)
    events = run.history.events
    acked = sum(one.f == "append" and one.outcome == "ok" for one in run.history.operations())
    return Outcome(
        seed=plan.seed, verdict=verdict, why=sentence(verdict, results), trace=trace.digest(),
        options=f"{plan.name} clients={plan.clients} rate={plan.rate:g} with={additions}",
        simulated_s=round(run.simulated_s, 3), turns=set_up.loop.turns,
        ok=sum(each.type == "ok" for each in events), acked=acked,
        faults=len(run.history.bands()),
        elections=int(enough(run.history, run.described).counts["elections"]),
        starts=sum(machine.starts for machine in set_up.machines),
        changes=sum(band.package == "range" for band in run.history.bands()),
        cpu_s=round(time.process_time() - began, 2),
        detail=[] if verdict == "valid" else list(trace.tail),
    )  # fmt: skip


class _Traced(Recorder):
    """Adds each event of the history to the trace."""

    def __init__(self, path: Path, now_ns: Callable[[], int], trace: Trace) -> None:
        super().__init__(path, now_ns)
        self._trace = trace

    def record(self, process: int | None, *args: Any, **named: Any) -> Event:
        event = super().record(process, *args, **named)
        where = "nemesis" if process is None else f"p{process}"
        told = "" if event.error is None else f" {event.error}"
        self._trace(where, f"{event.type} {event.f} {event.value}{told}")
        return event


class _Run:
    """The parts of one run."""

    def __init__(self, plan: Plan, set_up: Stage, additions: Additions) -> None:
        self.machines = set_up.machines
        self.history = History(())
        self.simulated_s = 0.0
        self._plan = plan
        self._loop = set_up.loop
        self._recorder = _Traced(set_up.root / "history.jsonl", self._now_ns, self._loop.trace)
        self._clients = Process("clients", "clients")
        self._additions = additions
        self._sides = sides_of(plan, additions, self.machines)
        self._found: list[Anomaly] = []
        """What the additions found."""
        self._stuck = ""
        self._not_converged = ""

    def _now_ns(self) -> int:
        return int((self._loop.time() - START_S) * 1e9)

    def go(self) -> None:
        """Run to the end of the test. Faults of the product are found by `judge`."""
        try:
            self._loop.run(self._whole())
        except (Stuck, TimeoutError) as error:
            self._stuck = f"the run does not end: {error!r}"
        except LognodeError as error:
            self._stuck = f"a request without faults failed: {error.message}"
        self.simulated_s = self._loop.time() - START_S
        self.history = self._recorder.close()

    @property
    def described(self) -> dict[str, Any]:
        """The test, for checkers."""
        return described(self._plan) | {"left": list(self.machines.numbers)}

    def judge(self) -> list[Result]:
        """Return the results of all checkers."""
        results = checkers.judge(self.history, self.described)
        results.append(clients_kept_their_word(self.history))
        own = Result("nodes", [Anomaly("node-bug", bug) for bug in self.machines.bugs])
        if self._stuck:
            own.anomalies.append(Anomaly("stuck", self._stuck, promise="L4"))
        done = {one.node for one in self.history.operations("final") if one.outcome == "ok"}
        for node in (None, *self.machines.numbers):
            if node not in done and not self._stuck:
                where = "the cluster" if node is None else f"node {node}"
                told = f"the read of everything at the end from {where} failed"
                own.anomalies.append(Anomaly("no-final-read", told, promise="L2"))
        if self._not_converged:
            own.anomalies.append(Anomaly("not-converged", self._not_converged, promise="L2"))
        return [*results, own, Result("additions", self._found)]

    async def _whole(self) -> None:
        machines = self.machines
        async with asyncio.timeout(_WHOLE_S):
            await found(machines, self._additions)
            async with AsyncClient(machines.servers, timeout=_START_S) as client:
                first = machines.numbers[:-1] if self._additions.late else machines.numbers
                await join(machines, first, client, self._additions)
                for log in logs_of(self._plan.workload):
                    await client.create_log(log, replicas=3, split_at=_SPLIT_AT)
                if self._plan.workload in NEED_LEVEL:
                    await finalize(client)
                await machines.credentials.allow_workload(client, logs_of(self._plan.workload))
                for side in self._sides:
                    await side.prepare(client)
                await healthy(client, len(first), _START_S)
                await self._load(client)
                if not self._not_converged:
                    await self._after(client)
            await self._read_everything()
        if self._additions.verified:
            self._found += await kill_and_verify(machines)

    async def _after(self, client: AsyncClient) -> None:
        """Do what needs a healthy cluster, and judge the additions."""
        if self._additions.idle:
            await asyncio.sleep(_IDLE_S)
        for side in self._sides:
            await self._loop.spawn(self._clients, self._finish(side))
            self._found += side.anomalies
        rng = random.Random(f"{self._plan.seed}/after")
        if self._additions.tokens:
            self._found += await recover_token(self.machines, rng)
        if self._additions.rot:
            self._found += await rot(self.machines, rng)
        if self._additions.tokens or self._additions.rot:
            why = await healthy(client, self._plan.nodes, _CONVERGE_S)
            self._not_converged = "" if why is None else f"after a restart: {why}"
        if self._additions.loss:
            self._found += await lose_nodes(client, self.machines)

    async def _finish(self, side: Side) -> None:
        async with AsyncClient(self.machines.servers, timeout=_START_S) as client:
            await side.finish(client)

    async def _load(self, client: AsyncClient) -> None:
        plan, recorder, seed = self._plan, self._recorder, self._plan.seed
        workload = workload_of(plan.workload, random.Random(f"{seed}/workload"))
        clients = Clients(plan, self.machines.workload_servers, workload, recorder)
        rng = random.Random(f"{seed}/nemesis")
        links = SimLinks(self._loop.network)
        target = Target(cast(Nodes, self.machines), links, client, LOG, rng, clients)
        packages = {name: PACKAGES[name]() for name in plan.nemesis if name != "range"}
        nemesis = Nemesis(packages, target, recorder, interval_s=plan.nemesis_interval_s, rng=rng)
        operator = Operator(target, recorder) if "range" in plan.nemesis else None
        watching = asyncio.create_task(watch_leaders(client, recorder))
        running = self._loop.spawn(self._clients, clients.run())
        beside = [self._loop.spawn(self._clients, side.run()) for side in self._sides]
        with contextlib.suppress(TimeoutError):
            more_s = _LOCAL_S if self._additions.local else 0.0
            async with asyncio.timeout(plan.time_limit_s + more_s), asyncio.TaskGroup() as group:
                group.create_task(nemesis.run())
                if operator is not None:
                    group.create_task(operator.run())
                if self._additions.late:
                    group.create_task(join_late(self.machines, rng))
        await nemesis.heal()
        if operator is not None:
            await operator.heal()
        await links.heal()
        for machine in self.machines:
            machine.resume()
            await machine.start()
        for machine in self.machines:
            await machine.restarted()
        self._loop.trace("world", "healed")
        why = await healthy(client, plan.nodes, _CONVERGE_S)
        if why is not None:
            self._not_converged = (
                f"the cluster was not healthy {_CONVERGE_S:.0f} s after the faults ended: {why}"
            )
        for each in beside:
            each.cancel()
        await asyncio.wait(beside) if beside else None
        clients.stop()
        await running
        watching.cancel()

    async def _read_everything(self) -> None:
        through: dict[str, int] = {}
        rng = random.Random(f"{self._plan.seed}/finals")
        for place, node in enumerate([None, *self.machines.numbers]):
            reader = Reader(
                _FINALS_FROM + place, self.machines.workload_servers, LOG, self._recorder, rng,
                pace=Pace(self._plan.rate, rng), nodes=self._plan.nodes, timeout_s=_START_S,
            )  # fmt: skip
            with contextlib.suppress(LognodeError):
                last = await read_all(reader, node, through)
                through = through or last
                if node is None and DEAD in logs_of(self._plan.workload):
                    await read_letters(reader)
            await reader.close()
