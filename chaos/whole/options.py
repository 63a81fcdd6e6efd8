"""The options of a seed: workload, faults and sizes, drawn from the seed unless they are given."""

import random
from dataclasses import dataclass, replace
from typing import Any, Final

from ..plan import SIMULATED, Plan
from .additions import Additions

FAULTS: Final = {
    "client": "a client crashes in the middle of a call",
    "clock": "wall clocks jump, by up to two days",
    "full": "disks of some nodes have little space, or none for appends",
    "kill": "nodes are killed; written bytes stay",
    "partition": "links between nodes are cut or refused, in one or both directions",
    "pause": "nodes are paused",
    "power": "machines lose power, and unsynced bytes of the WAL",
    "range": "ranges are split, merged, moved; leaders transferred; nodes drained",
    "reset": "connections are reset",
    "slow": "links take up to a second",
    "stop": "a node is stopped in order",
}
"""The faults by name."""
_SHARE: Final = 0.45
"""The probability of each fault."""
_RANGE_SHARE: Final = 0.6
"""The probability of operations on ranges, at which most of the daemon's code meets."""


GROUP: Final = "group"
VIEW: Final = "view"
_FIRST_WORKLOADS: Final = tuple(name for name in SIMULATED if name not in (GROUP, VIEW))
"""Drawn first, as they were before there were groups: the other draws of a seed stay the same."""
_GROUP_SHARE: Final = 1 / 8
"""The probability of groups in place of the drawn workload."""
_VIEW_SHARE: Final = 1 / 10
"""The probability of waits for views in place of a workload other than groups."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the command line gives; None is drawn from each seed."""

    workload: str | None = None
    faults: tuple[str, ...] | None = None
    with_: tuple[str, ...] = ()
    """Names of additions that each seed has, besides those that it draws."""

    def plan(self, seed: int) -> Plan:
        """Return the plan of a seed: a function of the seed and of the choice."""
        rng = random.Random(f"{seed}/plan")
        workload = rng.choice(_FIRST_WORKLOADS)
        faults = tuple(name for name in FAULTS if rng.random() < _share(name))
        plan = Plan(
            workload=workload if self.workload is None else self.workload,
            nemesis=faults if self.faults is None else self.faults,
            nodes=rng.choice((3, 3, 3, 3, 3, 4, 4, 5)), rate=rng.choice((20.0, 40.0, 60.0)),
            time_limit_s=rng.choice((4.0, 6.0, 9.0)),
            nemesis_interval_s=rng.choice((1.0, 2.0, 3.5)), seed=seed, clients=rng.choice((6, 9)),
            timeout_s=rng.choice((2.0, 5.0)),
        )  # fmt: skip
        if self.workload is None and rng.random() < _GROUP_SHARE:
            return replace(plan, workload=GROUP)
        if self.workload is None and random.Random(f"{seed}/views").random() < _VIEW_SHARE:
            return replace(plan, workload=VIEW)
        return plan

    def additions(self, plan: Plan) -> Additions:
        """Return the additions of a plan."""
        return Additions.of(plan.seed, plan.nodes).also(self.with_)

    def to_args(self) -> list[str]:
        """Return the part of the command line that makes this choice again."""
        args = [] if self.workload is None else ["--workload", self.workload]
        if self.faults is not None:
            args += ["--faults", ",".join(self.faults) or "none"]
        if self.with_:
            args += ["--with", ",".join(self.with_)]
        return args


def _share(fault: str) -> float:
    return _RANGE_SHARE if fault == "range" else _SHARE


def described(plan: Plan) -> dict[str, Any]:
    """Return what checkers need of a test."""
    return {
        "workload": plan.workload, "nodes": plan.nodes, "rate": plan.rate,
        "time_limit_s": plan.time_limit_s, "nemesis": list(plan.nemesis),
    }  # fmt: skip
