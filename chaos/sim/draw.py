"""Faults drawn at random, from those that a run allows."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from .faults import Fault
from .options import Options


class Target(Protocol):
    """A node, as the drawer sees it."""

    @property
    def leads(self) -> bool: ...


_DISK_FAILS: Final = 0.4
_NOT_FINALIZED: Final = 0.5
_EARLY: Final = 0.3
"""Part of the time of faults in which the level is raised in runs with cursors."""


def finalizings(options: Options, rng: random.Random) -> list[Fault]:
    """Return when an operator raises the feature level of the cluster, in half of the runs.

    Readers with cursors need the level, so in runs with cursors the operator is early. `rng` is a
    source of its own, so that the other faults of a seed stay as they were.
    """
    if options.cursors:
        early = sorted(_EARLY * options.fault_seconds * rng.random() for _ in range(4))
        return [Fault(at, "change", how="finalize") for at in early]
    if not options.changes or rng.random() < _NOT_FINALIZED:
        return []
    times = sorted(options.fault_seconds * rng.random() for _ in range(2))
    return [Fault(at, "change", how="finalize") for at in times]


class Drawer:
    """`draw(at)` returns the faults at a time: one fault, or several at once."""

    def __init__(self, options: Options, rng: random.Random, targets: Mapping[int, Target]) -> None:
        self._options = options
        self._rng = rng
        self._targets = targets
        draws: dict[str, Callable[[float], list[Fault]]] = {
            "partition": self._partition,
            "oneway": self._oneway,
            "stall": self._stall,
            "reset": self._reset,
            "drop": self._drop,
            "duplicate": self._duplicate,
            "late": self._late,
            "slow": self._slow,
            "kill": self._kill,
            "power": self._power,
            "power-all": self._power_all,
            "boundary": self._boundary,
            "pause": self._pause,
            "disk": self._disk,
            "full": self._full,
            "rot": self._rot,
            "checkpoint": self._checkpoint,
            "clock": self._clock,
            "client": self._client,
            "change": self._change,
        }
        self._kinds = [draws[name] for name in options.faults]
        # In runs that change generations, a group has three members, which may be any nodes.
        count = 1 if options.changes else (len(targets) - 1) // 2
        self._rotten = tuple(sorted(rng.sample(sorted(targets), count)))
        """The nodes whose disks may rot, and which may be lost for good: a minority for the whole
        run, since the loss of a majority may lose data."""
        unsound = options.loses or "rot" in options.faults
        self.weak = self._rotten if unsound else tuple(sorted(targets))
        """The nodes of which a minority may be left broken while the others have to go on."""
        self.weak_count = count

    @property
    def idle(self) -> bool:
        """Whether no fault is allowed."""
        return not self._kinds

    def first(self) -> list[Fault]:
        """Return the faults that happen in any case, at times of their own."""
        until = self._options.fault_seconds
        found = self._churn(until)
        if self._options.loses:
            found.append(Fault(until * 0.6 * self._rng.random(), "lose", self._rotten))
        if self._options.recovers:
            times = sorted(until * self._rng.random() for _ in range(self._rng.randint(1, 2)))
            found += [Fault(at, "change", how="wreck", value=self._rng.random()) for at in times]
        return found

    def rottings(self, rng: random.Random) -> list[Fault]:
        """Return when segments rot, where disks may rot. Half of the processes are killed with it.

        `rng` is a source of its own, so that the other faults of a seed stay as they were.
        """
        if "rot" not in self._options.faults:
            return []
        found = []
        for at in sorted(
            self._options.fault_seconds * rng.random() for _ in range(rng.randint(0, 6))
        ):
            node, seconds = rng.choice(self._rotten), rng.choice((0.0, 0.1 + rng.random()))
            found.append(Fault(at, "rot", (node,), (), seconds, "segment", rng.random()))
        return found

    def _churn(self, until: float) -> list[Fault]:
        """Return splits, merges and moves from the start to `until`, as often as the run wants."""
        every, at, found = self._options.churn_seconds, 0.0, []
        while every:
            at += self._rng.expovariate(1.0 / every)
            if at >= until:
                break
            how = self._rng.choice(("split", "merge", "merge", "merge", "move"))
            found.append(Fault(at, "change", how=how, value=self._rng.random()))
        return found

    def pause(self) -> float:
        """Return the seconds until the next fault."""
        return self._rng.expovariate(1.0 / self._options.fault_every_seconds)

    def draw(self, at: float) -> list[Fault]:
        """Return the faults at this time."""
        return self._rng.choice(self._kinds)(at)

    # Parts of faults.

    def _seconds(self) -> float:
        return self._rng.choice((0.1, 0.5, 1.5, 4.0)) * (0.5 + self._rng.random())

    def _some_node(self) -> int:
        """Return some node; often one that leads."""
        leaders = [node for node, target in self._targets.items() if target.leads]
        if leaders and self._rng.random() < 0.5:
            return self._rng.choice(leaders)
        return self._rng.choice(list(self._targets))

    def _pair(self) -> tuple[int, int]:
        one = self._some_node()
        other = self._rng.choice([node for node in self._targets if node != one])
        return (one, other) if self._rng.random() < 0.5 else (other, one)

    def _victims(self) -> list[int]:
        count = len(self._targets)
        how_many = self._rng.choice((1, 1, 1, count // 2, count))
        if how_many == 1:
            return [self._some_node()]
        return sorted(self._rng.sample(list(self._targets), how_many))

    def _each(self, at: float, kind: str, nodes: Sequence[int]) -> list[Fault]:
        return [Fault(at, kind, (node,), seconds=self._seconds()) for node in nodes]

    def _valued(self, at: float, kind: str, values: Sequence[float]) -> list[Fault]:
        return [Fault(at, kind, value=self._rng.choice(values), seconds=self._seconds())]

    # Network.

    def _partition(self, at: float) -> list[Fault]:
        nodes = list(self._targets)
        self._rng.shuffle(nodes)
        count = len(nodes)
        how = self._rng.choice(("isolate", "halves", "ring", "bridge"))
        if how == "isolate":
            alone = self._some_node()
            cut = [(alone, n) for n in nodes if n != alone]
        elif how == "halves":
            cut = [(a, b) for a in nodes[: count // 2] for b in nodes[count // 2 :]]
        elif how == "ring":  # each sees a different majority
            reach = count // 4 + 1
            cut = [
                (nodes[i], nodes[j])
                for i in range(count)
                for j in range(i)
                if min(i - j, count - i + j) > reach or (count == 3 and (i, j) == (2, 0))
            ]
        else:  # two halves, both of which only one node sees
            cut = [(a, b) for a in nodes[1 : count // 2 + 1] for b in nodes[count // 2 + 1 :]]
        pairs = tuple(pair for a, b in cut for pair in ((a, b), (b, a)))
        notice = self._rng.random() < 0.6
        return [Fault(at, "partition", (), pairs, self._seconds(), how, notice=notice)]

    def _oneway(self, at: float) -> list[Fault]:
        pairs = {self._pair() for _ in range(self._rng.randint(1, len(self._targets)))}
        notice = self._rng.random() < 0.3
        return [Fault(at, "oneway", (), tuple(sorted(pairs)), self._seconds(), notice=notice)]

    def _stall(self, at: float) -> list[Fault]:
        return [Fault(at, "stall", (), (self._pair(),), self._seconds())]

    def _reset(self, at: float) -> list[Fault]:
        return [Fault(at, "reset", (), (self._pair(),)) for _ in range(self._rng.randint(1, 4))]

    def _drop(self, at: float) -> list[Fault]:
        return self._valued(at, "drop", (0.02, 0.1, 0.3))

    def _duplicate(self, at: float) -> list[Fault]:
        return self._valued(at, "duplicate", (0.05, 0.3))

    def _late(self, at: float) -> list[Fault]:
        return self._valued(at, "late", (0.01, 0.1))

    def _slow(self, at: float) -> list[Fault]:
        return self._valued(at, "slow", (0.02, 0.1, 0.4))

    def _client(self, at: float) -> list[Fault]:
        how = self._rng.choice(("loss", "duplicate", "slow"))
        value = self._rng.choice({"slow": (0.1, 0.6)}.get(how, (0.05, 0.3)))
        return [Fault(at, "client", how=how, value=value, seconds=self._seconds())]

    # Processes, machines, disks.

    def _kill(self, at: float) -> list[Fault]:
        return self._each(at, "kill", self._victims())

    def _power(self, at: float) -> list[Fault]:
        return self._each(at, "power", self._victims())

    def _power_all(self, at: float) -> list[Fault]:
        return self._each(at, "power-all", list(self._targets))

    def _boundary(self, at: float) -> list[Fault]:
        how = self._rng.choice(("kill", "power"))
        return [
            Fault(at, "boundary", (node,), (), self._seconds(), how, self._rng.randint(1, 12))
            for node in self._victims()
        ]

    def _pause(self, at: float) -> list[Fault]:
        return self._each(at, "pause", [self._some_node()])

    def _disk(self, at: float) -> list[Fault]:
        node, seconds = self._some_node(), self._seconds()
        if self._rng.random() < _DISK_FAILS:
            how, value = "error", float(self._rng.randint(1, 10))
        else:
            how, value = "slow", self._rng.choice((0.02, 0.1, 0.5))
        return [Fault(at, "disk", (node,), (), seconds, how, value)]

    def _full(self, at: float) -> list[Fault]:
        return self._each(at, "full", [self._some_node()])

    def _rot(self, at: float) -> list[Fault]:
        node, how = self._rng.choice(self._rotten), self._rng.choice(("flip", "truncate", "lost"))
        return [Fault(at, "rot", (node,), (), self._seconds(), how, self._rng.random())]

    def _change(self, at: float) -> list[Fault]:
        how = self._rng.choice(("repair", "move", "move", "split", "merge", "merge", "drain"))
        return [Fault(at, "change", how=how, value=self._rng.random())]

    def _checkpoint(self, at: float) -> list[Fault]:
        return [Fault(at, "checkpoint", (self._some_node(),))]

    def _clock(self, at: float) -> list[Fault]:
        jump_ms = self._rng.choice((-3_600_000, -1_000, 1_000, 172_800_000))
        return [Fault(at, "clock", (self._some_node(),), value=jump_ms)]
