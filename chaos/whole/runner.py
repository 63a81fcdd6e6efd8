"""Many seeds over several processes, and the verdict over all of them.

Workers are fresh interpreters that write one JSON line per seed. Each has the seed of the hashes
that the environment gives: no run depends on it.
"""

import gc
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ..seed_workers import lines_of_workers
from ..verdict import EXIT_CODES, Verdict
from .options import Choice
from .run import Outcome, run_seed

Say = Callable[[str], None]
_OK_PER_SEED_MIN: Final = 40
_FAULTS_PER_SEED_MIN: Final = 1


@dataclass(frozen=True, slots=True)
class Seeds:
    """The seeds `first` to `end`, exclusive, with the same choice."""

    first: int
    end: int
    choice: Choice = field(default_factory=Choice)

    def part(self, number: int, count: int) -> Iterator[Outcome]:
        """Run the seeds of worker `number` of `count` in this process."""
        gc.collect()
        gc.freeze()  # each run ends with a collection, of what the run has made
        for seed in range(self.first + number, self.end, count):
            plan = self.choice.plan(seed)
            yield run_seed(plan, additions=self.choice.additions(plan))

    def to_args(self) -> list[str]:
        """Return the command line that names these seeds."""
        return ["--whole", "--seeds", f"{self.first}..{self.end}", *self.choice.to_args()]


@dataclass(slots=True)
class Sums:
    """Sums over the runs."""

    planned: int
    seeds: int = 0
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    ok: int = 0
    acked: int = 0
    faults: int = 0
    elections: int = 0
    starts: int = 0
    changes: int = 0
    thin: int = 0
    """Runs that are not invalid, in which too little happened for a verdict of their own."""
    invalid: int = 0
    began: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        self.seeds += 1
        for name in ("simulated_s", "cpu_s", "ok", "acked", "faults", "elections", "starts",
                     "changes"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(outcome, name))
        self.thin += outcome.verdict == "unknown"
        self.invalid += outcome.verdict == "invalid"

    def verdict(self) -> tuple[Verdict, str]:
        """Return the verdict and a sentence. Runs in which little happened prove nothing."""
        if self.invalid:
            return "invalid", f"invalid: {self.invalid} of {self.seeds} seeds broke a promise"
        if self.seeds < self.planned or not self.seeds:
            return "unknown", f"unknown: {self.seeds} of {self.planned} seeds were run"
        if self.ok < _OK_PER_SEED_MIN * self.seeds:
            return "unknown", f"unknown: only {self.ok} operations succeeded"
        if self.seeds > 1 and self.faults < _FAULTS_PER_SEED_MIN * self.seeds:
            return "unknown", f"unknown: only {self.faults} faults took place"
        return "valid", "valid"

    def __str__(self) -> str:
        return (
            f"seeds={self.seeds} simulated_s={self.simulated_s:.0f} ok={self.ok} "
            f"acked={self.acked} faults={self.faults} elections={self.elections} "
            f"starts={self.starts} changes={self.changes} thin={self.thin} "
            f"cpu_s={self.cpu_s:.0f} wall_s={time.monotonic() - self.began:.0f}"
        )


def run(seeds: Seeds, processes: int, say: Say) -> int:
    """Run all seeds, one line per seed, and sum up; return the exit code."""
    sums = Sums(seeds.end - seeds.first)
    processes = min(processes, sums.planned)
    outcomes = seeds.part(0, 1) if processes <= 1 else _parallel(seeds, processes)
    for outcome in outcomes:
        sums.add(outcome)
        tell(outcome, say)
    verdict, sentence = sums.verdict()
    say(f"{sentence} | {sums}")
    return EXIT_CODES[verdict]


def tell(outcome: Outcome, say: Say) -> None:
    """Print one line per run; after a violation also the last events."""
    head = {"valid": "ok", "unknown": "thin", "invalid": "VIOLATION"}[outcome.verdict]
    say(
        f"seed={outcome.seed} {head} ok={outcome.ok} acked={outcome.acked} "
        f"faults={outcome.faults} elections={outcome.elections} starts={outcome.starts} "
        f"simulated_s={outcome.simulated_s:.1f} cpu_s={outcome.cpu_s} trace={outcome.trace} "
        f"{outcome.options}"
    )
    if outcome.verdict == "unknown":
        say(f"    {outcome.why}")
    elif outcome.verdict == "invalid":
        for line in outcome.detail:
            say(f"    {line}")
        say(f"    {outcome.why}")
        say(f"    again: lognode-chaos sim --whole --seed {outcome.seed} --trace")


def _parallel(seeds: Seeds, processes: int) -> Iterator[Outcome]:
    """Run the seeds in worker processes."""
    for line in lines_of_workers(seeds.to_args(), processes):
        yield Outcome(**json.loads(line))
