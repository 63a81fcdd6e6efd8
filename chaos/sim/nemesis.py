"""The faults, drawn at random from those that a run allows, and their end.

Every fault ends by itself; `heal` ends all of them at once, restarts what is down, and leaves the
cluster alone for good: from then on it must converge (L2). `heal_majority` leaves a minority broken
for a while, under which the others must go on (L1).
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from .clock import Scheduler
from .network import Conditions, Network
from .options import Options
from .trace import Trace


class Machine(Protocol):
    """A node, as faults see it."""

    sync_mean_s: float
    wall_offset_ms: int

    @property
    def alive(self) -> bool: ...
    @property
    def leads(self) -> bool: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def power_loss(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def die_in(self, operations: int, *, power: bool) -> None: ...
    def fail_disk_in(self, operations: int) -> None: ...
    def checkpoint(self) -> None: ...


class ClientPath(Protocol):
    """What lies between clients and nodes."""

    loss: float
    duplicate: float
    delay_mean: float


SYNC_MEAN_S = 0.0015


class Nemesis:
    """Injects faults from `start` until `heal`."""

    def __init__(
        self,
        *,
        options: Options,
        scheduler: Scheduler,
        rng: random.Random,
        trace: Trace,
        network: Network,
        machines: Mapping[int, Machine],
        clients: ClientPath,
    ) -> None:
        self._options = options
        self._scheduler = scheduler
        self._rng = rng
        self._trace = trace
        self._network = network
        self._machines = machines
        self._clients = clients
        self._faults: list[Callable[[], None]] = [
            getattr(self, f"_fault_{name}") for name in options.faults
        ]
        self._calm = Conditions(drop=options.drop, duplicate=options.duplicate, late=options.late)
        network.conditions = replace(self._calm)
        self._kept_down: set[int] = set()
        self._active = True
        self.injected = 0
        self.crashes = 0

    def start(self) -> None:
        """The first fault comes after a while, so that some runs begin in peace."""
        if self._faults:
            self._after(self._pause_between(), self._next)

    def heal_majority(self) -> None:
        """End all faults but one for each node of a minority, which lasts until `heal`."""
        self.heal()
        count = len(self._machines)
        for node in sorted(
            self._rng.sample(list(self._machines), self._rng.randint(1, count // 2))
        ):
            how = self._rng.choice(("down", "isolated", "deaf", "mute"))
            notice = self._rng.random() < 0.5
            self._trace("nemesis", "fault", f"n{node} stays {how} notice={notice}")
            if how == "down":
                self._kept_down.add(node)
                self._machines[node].power_loss()
            for other in self._machines:
                if how in ("isolated", "mute") and other != node:
                    self._network.cut(node, other, notice=notice)
                if how in ("isolated", "deaf") and other != node:
                    self._network.cut(other, node, notice=notice)

    def heal(self) -> None:
        """End all faults for good."""
        self._active = False
        self._kept_down.clear()
        self._trace("nemesis", "heal")
        self._network.conditions = Conditions()
        self._network.heal()
        self._clients.loss = self._clients.duplicate = 0.0
        self._clients.delay_mean = 0.001
        for node, machine in self._machines.items():
            machine.sync_mean_s = SYNC_MEAN_S
            machine.fail_disk_in(0)
            machine.die_in(0, power=False)
            machine.resume()
            if not machine.alive:
                self._restart(node, self._rng.random() * 0.3)

    # Inside.

    def _pause_between(self) -> float:
        return self._rng.expovariate(1.0 / self._options.fault_every_seconds)

    def _after(self, delay_s: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if self._active:
                action()

        self._scheduler.after(delay_s, act)

    def _next(self) -> None:
        self.injected += 1
        self._rng.choice(self._faults)()
        self._after(self._pause_between(), self._next)

    def _say(self, what: str) -> None:
        self._trace("nemesis", "fault", what)

    def _duration(self) -> float:
        return self._rng.choice((0.1, 0.5, 1.5, 4.0)) * (0.5 + self._rng.random())

    def _node(self) -> int:
        """Some node; often the one that leads."""
        leaders = [node for node, machine in self._machines.items() if machine.leads]
        if leaders and self._rng.random() < 0.5:
            return self._rng.choice(leaders)
        return self._rng.choice(list(self._machines))

    def _pair(self) -> tuple[int, int]:
        one = self._node()
        other = self._rng.choice([node for node in self._machines if node != one])
        return (one, other) if self._rng.random() < 0.5 else (other, one)

    # Network.

    def _fault_partition(self) -> None:
        nodes = list(self._machines)
        self._rng.shuffle(nodes)
        count = len(nodes)
        kind = self._rng.choice(("isolate", "halves", "ring", "bridge"))
        if kind == "isolate":
            alone = self._node()
            cut = [(alone, n) for n in nodes if n != alone]
        elif kind == "halves":
            cut = [(a, b) for a in nodes[: count // 2] for b in nodes[count // 2 :]]
        elif kind == "ring":  # each sees a majority, no two the same one
            reach = count // 4 + 1
            cut = [
                (nodes[i], nodes[j])
                for i in range(count)
                for j in range(i)
                if min(i - j, count - i + j) > reach or (count == 3 and (i, j) == (2, 0))
            ]
        else:  # two halves that only one node sees both of
            cut = [(a, b) for a in nodes[1 : count // 2 + 1] for b in nodes[count // 2 + 1 :]]
        notice = self._rng.random() < 0.6
        self._say(f"partition {kind} {cut} notice={notice}")
        for a, b in cut:
            self._network.cut(a, b, notice=notice)
            self._network.cut(b, a, notice=notice)
        self._after(self._duration(), self._network.heal)

    def _fault_oneway(self) -> None:
        pairs = {self._pair() for _ in range(self._rng.randint(1, len(self._machines)))}
        notice = self._rng.random() < 0.3
        self._say(f"oneway {sorted(pairs)} notice={notice}")
        for pair in sorted(pairs):
            self._network.cut(*pair, notice=notice)
        self._after(self._duration(), self._network.heal)

    def _fault_stall(self) -> None:
        pair = self._pair()
        self._say(f"stall {pair}")
        self._network.stall(*pair)
        self._after(self._duration(), self._network.heal)

    def _fault_reset(self) -> None:
        for _ in range(self._rng.randint(1, 4)):
            pair = self._pair()
            self._say(f"reset {pair}")
            self._network.reset(*pair)

    def _fault_drop(self) -> None:
        self._condition("drop", self._rng.choice((0.02, 0.1, 0.3)))

    def _fault_duplicate(self) -> None:
        self._condition("duplicate", self._rng.choice((0.05, 0.3)))

    def _fault_late(self) -> None:
        self._condition("late", self._rng.choice((0.01, 0.1)))

    def _fault_slow(self) -> None:
        self._condition("delay_mean", self._rng.choice((0.02, 0.1, 0.4)))

    def _condition(self, name: str, value: float) -> None:
        conditions = self._network.conditions
        before = getattr(self._calm, name)
        self._say(f"{name}={value}")
        setattr(conditions, name, value)
        self._after(self._duration(), lambda: setattr(conditions, name, before))

    def _fault_client(self) -> None:
        self._clients.loss = self._rng.choice((0.05, 0.3))
        self._clients.duplicate = self._rng.choice((0.0, 0.3))
        self._clients.delay_mean = self._rng.choice((0.001, 0.1, 0.6))
        self._say(f"client loss={self._clients.loss} delay={self._clients.delay_mean}")

        def end() -> None:
            self._clients.loss = self._clients.duplicate = 0.0
            self._clients.delay_mean = 0.001

        self._after(self._duration(), end)

    # Processes and machines.

    def _victims(self) -> list[int]:
        count = len(self._machines)
        how_many = self._rng.choice((1, 1, 1, count // 2, count))
        if how_many == 1:
            return [self._node()]
        return sorted(self._rng.sample(list(self._machines), how_many))

    def _down(self, node: int, die: Callable[[], None]) -> None:
        machine = self._machines[node]
        if machine.alive:
            self.crashes += 1
            die()
        self._restart(node, self._duration())

    def _restart(self, node: int, delay_s: float) -> None:
        machine = self._machines[node]

        def again() -> None:
            if not machine.alive and node not in self._kept_down:
                machine.start()

        self._scheduler.after(delay_s, again)

    def _fault_kill(self) -> None:
        victims = self._victims()
        self._say(f"kill {victims}")
        for node in victims:
            self._down(node, self._machines[node].kill)

    def _fault_power(self) -> None:
        victims = self._victims()
        self._say(f"power {victims}")
        for node in victims:
            self._down(node, self._machines[node].power_loss)

    def _fault_boundary(self) -> None:
        power = self._rng.random() < 0.5
        for node in self._victims():
            operations = self._rng.randint(1, 12)
            self._say(f"boundary n{node} in {operations} power={power}")
            self._machines[node].die_in(operations, power=power)

    def machine_died(self, node: int) -> None:
        """A machine died at a boundary or of a disk error: it comes back after a while."""
        self.crashes += 1
        self._restart(node, self._duration() if self._active else 0.2)

    def _fault_pause(self) -> None:
        node = self._node()
        machine = self._machines[node]
        self._say(f"pause n{node}")
        machine.pause()
        self._after(self._duration(), machine.resume)

    def _fault_disk(self) -> None:
        node = self._node()
        machine = self._machines[node]
        if self._rng.random() < 0.3:
            self._say(f"disk n{node} fails")
            machine.fail_disk_in(self._rng.randint(1, 10))
            return
        machine.sync_mean_s = self._rng.choice((0.02, 0.1, 0.5))
        self._say(f"disk n{node} sync={machine.sync_mean_s}")

        def end() -> None:
            machine.sync_mean_s = SYNC_MEAN_S

        self._after(self._duration(), end)

    def _fault_checkpoint(self) -> None:
        node = self._node()
        self._say(f"checkpoint n{node}")
        self._machines[node].checkpoint()

    def _fault_clock(self) -> None:
        node = self._node()
        jump = self._rng.choice((-3_600_000, -1_000, 1_000, 172_800_000))
        self._say(f"clock n{node} {jump:+} ms")
        self._machines[node].wall_offset_ms += jump
