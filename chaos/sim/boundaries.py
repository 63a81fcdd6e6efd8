"""One node killed before each of its disk operations in turn: enumerated, not sampled.

A fixed scenario of a few seconds has appends, checkpoints and a cut log, a base install, a repair,
a split and a merge, all on one node. It runs once for each disk operation n of that node: WAL
writes, syncs, file creations and deletions, and the transactions of meta, also those that name a
segment. The node dies just before its n-th operation, by kill or by loss of power, and soon starts
again. In a third pass the power also fails a few operations into that recovery. After each run
every promise must hold and all replicas must have converged.

tests/unit/test_storage_failpoints.py has the same list against a real directory and real LMDB.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .faults import Fault
from .options import Options
from .world import Outcome, World, judge

NODE: Final = 3
SEED: Final = 32
PASSES: Final = ("kill", "power", "power twice")

OPTIONS: Final = Options(
    nodes=3,
    faults=("change", "checkpoint"),
    seconds=4.8,
    fault_seconds=3.6,
    drain_seconds=3.9,
    clients=2,
    window=1,
    keys=2,
    think_seconds=0.2,
    wal_file_bytes=2 << 10,
    checkpoint_entries=8,
    phases=False,
)

SCENARIO: Final = (
    Fault(1.2, "checkpoint", (NODE,)),
    # The node is cut off while the others cut their logs: it needs a base when it is back.
    Fault(1.3, "partition", (), ((1, 3), (3, 1), (2, 3), (3, 2)), 0.4, notice=True),
    Fault(1.5, "checkpoint", (1,)),
    Fault(1.5, "checkpoint", (2,)),
    Fault(2.3, "change", how="repair"),
    Fault(2.7, "change", how="split", value=0.5),
    Fault(3.3, "change", how="merge"),
)


@dataclass(frozen=True, slots=True)
class Point:
    """Where a run was broken off, and its outcome."""

    operation: int
    how: str
    outcome: Outcome

    def __str__(self) -> str:
        found = self.outcome.violation or "ok"
        return f"{self.how} of n{NODE} before its disk operation {self.operation}: {found}"


def whole() -> Outcome:
    """Run the scenario without a death."""
    return judge(World(SEED, OPTIONS, None, SCENARIO))


def points(*, sampled: bool = False) -> Iterator[Point]:
    """Run each operation and each way to die, until the scenario ends before the n-th operation.

    `sampled`: run each operation with one of the three ways, which take turns.
    """
    for operation in itertools.count(1):
        for how in (PASSES[operation % len(PASSES)],) if sampled else PASSES:
            point = Point(operation, how, _dies_at(operation, how))
            if not point.outcome.crashes:
                return
            yield point


def _dies_at(operation: int, how: str) -> Outcome:
    world = World(SEED, OPTIONS, None, SCENARIO)
    again = 1 + operation % 7 if how == "power twice" else 0
    world.hosts[NODE].die_in(operation, power=how != "kill", again=again)
    return judge(world)
