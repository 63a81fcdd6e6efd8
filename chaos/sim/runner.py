"""Many seeds over several processes, and the verdict over all of them.

Workers are fresh interpreters that write one JSON line per seed. Nothing is pickled. Their hash
seed is fixed, though no run depends on it (a test runs one seed under two hash seeds).
"""

import gc
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..seed_workers import lines_of_workers
from .options import Options, swarm
from .world import Outcome, run_seed

VALID: Final = 0
INVALID: Final = 1
UNKNOWN: Final = 2

ACKS_PER_SEED_MIN: Final = 20
ELECTIONS_PER_SEED_MIN: Final = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """The seeds to run, and the rule that makes their options."""

    first: int
    end: int
    base: Options
    pick_faults: bool = True
    pick_nodes: bool = True
    having: str | None = None
    """Leave out the seeds that do not draw this: one of HAVING."""

    @property
    def seeds(self) -> Sequence[int]:
        """The seeds to run."""
        every = range(self.first, self.end)
        if self.having is None:
            return every
        return [seed for seed in every if getattr(self.options(seed), self.having)]

    def options(self, seed: int) -> Options:
        """Return the options of one seed: a function of the seed and of the plan."""
        return swarm(seed, self.base, pick_faults=self.pick_faults, pick_nodes=self.pick_nodes)

    def to_args(self) -> list[str]:
        """Return the command line that makes this plan again."""
        args = ["--seeds", f"{self.first}..{self.end}", "--seconds", str(self.base.seconds)]
        if not self.pick_nodes:
            args += ["--nodes", str(self.base.nodes)]
        if not self.pick_faults:
            args += ["--faults", ",".join(self.base.faults) or "none"]
        if self.having is not None:
            args += ["--having", self.having]
        if self.base.opened:
            args += ["--open-holes", ",".join(map(str, sorted(self.base.opened)))]
        return args


@dataclass(slots=True)
class Summary:
    """Sums over the runs of one plan."""

    planned: int
    seeds: int = 0
    simulated_s: float = 0.0
    acked: int = 0
    reads: int = 0
    elections: int = 0
    crashes: int = 0
    faults: int = 0
    checkpoints: int = 0
    bases: int = 0
    wakes: int = 0
    removals: int = 0
    leased: int = 0
    commits: int = 0
    fenced: int = 0
    merges: int = 0
    repairs: int = 0
    seals: int = 0
    splits: int = 0
    joins: int = 0
    replacements: int = 0
    recoveries: int = 0
    given: int = 0
    letters: int = 0
    outputs: int = 0
    seen: int = 0
    unseen: int = 0
    lost: int = 0
    failures: list[Outcome] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        self.seeds += 1
        self.simulated_s += outcome.simulated_s
        self.acked += outcome.acked
        self.reads += outcome.reads
        self.elections += outcome.elections
        self.crashes += outcome.crashes
        self.faults += outcome.faults
        self.checkpoints += outcome.checkpoints
        self.bases += outcome.bases
        self.wakes += outcome.wakes
        self.removals += outcome.removals
        self.leased += outcome.leased
        self.commits += outcome.commits
        self.fenced += outcome.fenced
        self.merges += outcome.merges
        self.repairs += outcome.repairs
        self.seals += outcome.seals
        self.splits += outcome.splits
        self.joins += outcome.joins
        self.replacements += outcome.replacements
        self.recoveries += outcome.recoveries
        self.given += outcome.given
        self.letters += outcome.letters
        self.outputs += outcome.outputs
        self.seen += outcome.seen
        self.unseen += outcome.unseen
        self.lost += outcome.lost
        if outcome.violation is not None:
            self.failures.append(outcome)

    def verdict(self) -> tuple[int, str]:
        """Return the exit code and a sentence.

        A simulation in which nothing happens proves nothing.
        """
        if self.failures:
            return INVALID, f"invalid: {len(self.failures)} of {self.seeds} seeds broke a promise"
        if self.seeds < self.planned or not self.seeds:
            return UNKNOWN, f"unknown: {self.seeds} of {self.planned} seeds were run"
        if self.acked < ACKS_PER_SEED_MIN * self.seeds:
            return INVALID, (
                f"invalid: {self.acked} acknowledgements; a verdict needs "
                f"{ACKS_PER_SEED_MIN} per seed"
            )
        if self.elections < ELECTIONS_PER_SEED_MIN * self.seeds:
            return INVALID, f"invalid: only {self.elections} elections"
        return VALID, "valid"

    def __str__(self) -> str:
        wall = max(time.monotonic() - self.started, 1e-9)
        return (
            f"seeds={self.seeds} simulated_s={self.simulated_s:.0f} acked={self.acked} "
            f"reads={self.reads} elections={self.elections} crashes={self.crashes} "
            f"faults={self.faults} checkpoints={self.checkpoints} bases={self.bases} "
            f"wakes={self.wakes} removals={self.removals} leased={self.leased} "
            f"commits={self.commits} fenced={self.fenced} "
            f"merges={self.merges} repairs={self.repairs} "
            f"seals={self.seals} splits={self.splits} joins={self.joins} "
            f"replacements={self.replacements} recoveries={self.recoveries} "
            f"given={self.given} letters={self.letters} outputs={self.outputs} "
            f"seen={self.seen} unseen={self.unseen} lost={self.lost} "
            f"wall_s={wall:.1f} speed={self.simulated_s / wall:.0f}x"
        )


def run_here(plan: Plan, seeds: Sequence[int]) -> Iterator[Outcome]:
    """Run these seeds of the plan in this process."""
    gc.collect()
    gc.freeze()  # the modules: no collection of what a run leaves visits them again
    for seed in seeds:
        yield run_seed(seed, plan.options(seed))


def run_parallel(plan: Plan, processes: int) -> Iterator[Outcome]:
    """Run all seeds of the plan in worker processes; outcomes come as they finish."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    for line in lines_of_workers(plan.to_args(), processes, environment):
        yield Outcome(**json.loads(line))


def line_of(outcome: Outcome) -> str:
    """Return one line per run: seed, events, options, and the violation if there is one."""
    head = "ok" if outcome.violation is None else f"VIOLATION {outcome.violation}"
    return (
        f"seed={outcome.seed} {head} acked={outcome.acked} reads={outcome.reads} "
        f"elections={outcome.elections} crashes={outcome.crashes} bases={outcome.bases} "
        f"seals={outcome.seals} "
        f"trace={outcome.trace} {outcome.options}"
    )


def run(plan: Plan, processes: int, say: Callable[[str], None]) -> Summary:
    """Run the plan, one line per seed, and sum up."""
    seeds = plan.seeds
    summary = Summary(len(seeds))
    processes = min(processes, len(seeds))
    outcomes = run_here(plan, seeds) if processes <= 1 else run_parallel(plan, processes)
    for outcome in outcomes:
        summary.add(outcome)
        tell(outcome, say)
    return summary


def tell(outcome: Outcome, say: Callable[[str], None]) -> None:
    """Print one line per run; after a violation also the last events."""
    say(line_of(outcome))
    for line in outcome.detail if outcome.violation is not None else ():
        say(f"    {line}")
