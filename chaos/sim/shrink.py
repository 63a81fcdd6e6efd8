"""Reduce a failing seed to a few faults that still make it fail.

The method is delta debugging (ddmin; Zeller and Hildebrandt, 2002) over the schedule of faults:
leave out a half, a quarter, an eighth of it, and keep what still breaks the same promise. Then the
rest of the run is made smaller: one group, fewer clients and keys, no time after the violation.
Each trial is a whole run, so their number is bounded.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from .faults import Fault
from .options import Options
from .world import Outcome, run_seed

TRIALS_MAX: Final = 600

Schedule = tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A run by schedule: the content of a replay file."""

    seed: int
    options: Options
    schedule: Schedule
    violation: str = ""

    def run(self, sink: Callable[[str], None] | None = None) -> Outcome:
        """Run the case."""
        return run_seed(self.seed, self.options, sink, self.schedule)

    def save(self, path: Path) -> None:
        """Write the case as JSON, one fault a line. Raises OSError."""
        head: dict[str, Any] = {
            "seed": self.seed,
            "violation": self.violation,
            "options": self.options.to_json(),
        }
        lines = [json.dumps(fault.to_json()) for fault in self.schedule]
        body = json.dumps(head, indent=1)[:-2]
        path.write_text(f'{body},\n "faults": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> "Case":
        """Undo `save`. Raises OSError, ValueError."""
        body = json.loads(path.read_text("utf-8"))
        try:
            return cls(
                seed=body["seed"],
                options=Options.from_json(body["options"]),
                schedule=tuple(Fault.from_json(fault) for fault in body["faults"]),
                violation=body.get("violation", ""),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not a schedule of the simulator: {error!r}") from None


class _Trials:
    """Runs cases, counts them, and says which still fail in the same way."""

    def __init__(self, promise: str, left: int) -> None:
        self._promise = promise
        self.left = left

    def fails(self, case: Case) -> Outcome | None:
        """Return the outcome if the same promise is broken; None also when no trials are left."""
        if not self.left:
            return None
        self.left -= 1
        outcome = case.run()
        same = outcome.violation is not None and _promise_of(outcome.violation) == self._promise
        return outcome if same else None


def shrink(case: Case, trials_max: int = TRIALS_MAX) -> Case | None:
    """Return the smallest failing case found; None when the case does not fail."""
    first = case.run()
    if first.violation is None:
        return None
    # Faults after the violation did not cause it.
    schedule = tuple(fault for fault in case.schedule if fault.at <= first.simulated_s)
    case = replace(case, schedule=schedule, violation=first.violation)
    trials = _Trials(_promise_of(first.violation), trials_max)
    while True:
        before = case
        case = _fewer_faults(case, trials)
        case = _smaller_options(case, trials)
        if case == before or not trials.left:
            return case


def _promise_of(violation: str) -> str:
    return violation.partition(":")[0]


def _fewer_faults(case: Case, trials: _Trials) -> Case:
    """Leave out ever smaller parts, by ddmin, until no single fault can be left out."""
    parts = 2
    while case.schedule:
        for schedule in _without_a_part(case.schedule, parts):
            outcome = trials.fails(replace(case, schedule=schedule))
            if outcome is not None:
                case = replace(case, schedule=schedule, violation=outcome.violation or "")
                parts = max(parts - 1, 2)
                break
        else:
            if parts >= len(case.schedule):
                break
            parts = min(2 * parts, len(case.schedule))
    return case


def _without_a_part(schedule: Schedule, parts: int) -> Iterator[Schedule]:
    edges = [len(schedule) * part // parts for part in range(parts + 1)]
    for start, end in itertools.pairwise(edges):
        if start < end:
            yield schedule[:start] + schedule[end:]


def _smaller_options(case: Case, trials: _Trials) -> Case:
    for name in ("groups", "clients", "window", "keys"):
        value: int = getattr(case.options, name)
        for tried in sorted({1, value // 2, value - 1} - {0, value}):
            smaller = _if_it_fails(case, trials, **{name: tried})
            if smaller is not None:
                case = smaller
                break
    last = max((fault.at + fault.seconds for fault in case.schedule), default=0.0)
    if last + 1.0 < case.options.fault_seconds:
        times = {"fault_seconds": last + 1.0, "drain_seconds": last + 3.0, "seconds": last + 5.0}
        case = _if_it_fails(case, trials, **times) or case
    return case


def _if_it_fails(case: Case, trials: _Trials, **changes: Any) -> Case | None:
    smaller = replace(case, options=replace(case.options, **changes))
    outcome = trials.fails(smaller)
    return None if outcome is None else replace(smaller, violation=outcome.violation or "")
