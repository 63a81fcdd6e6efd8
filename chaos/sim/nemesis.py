"""When faults happen: drawn one after another, or taken from a schedule; and when they all end.

All drawn faults are kept as a schedule, and the schedule alone, without the draws, gives the same
run again. `heal` ends all faults at once, restarts what is down, and leaves the cluster alone for
good: from then on it must converge (L2). `heal_majority` leaves a minority broken for a while,
under which the others must go on (L1). These two have a random source of their own, so that they
are the same for any schedule.
"""

import random
from collections.abc import Callable, Mapping, Sequence

from .clock import START_S, Scheduler
from .draw import Drawer, finalizings
from .faults import Fault
from .inject import ClientPath, Injector, Machine
from .network import Network
from .options import Options
from .trace import Trace


class Nemesis:
    """Injects faults from `start` until `heal`."""

    def __init__(
        self,
        *,
        options: Options,
        scheduler: Scheduler,
        seed: int,
        trace: Trace,
        network: Network,
        machines: Mapping[int, Machine],
        clients: ClientPath,
        change: Callable[[Fault], None],
        schedule: Sequence[Fault] | None = None,
    ) -> None:
        """Prepare the nemesis.

        `change` begins an operation on a range. With `schedule`, exactly these faults happen, and
        nothing is drawn.
        """
        self._scheduler = scheduler
        self._ends_rng = random.Random(f"{seed} ends")
        self._finalizings = finalizings(options, random.Random(f"{seed} finalizings"))
        self._drawer = Drawer(options, random.Random(f"{seed} nemesis"), machines)
        self._rottings = self._drawer.rottings(random.Random(f"{seed} rottings"))
        self._trace = trace
        self._network = network
        self._machines = machines
        self._given = schedule
        self._active = True
        self._next_at = 0.0
        self.schedule: list[Fault] = []
        """The faults that have begun so far."""
        self._injector = Injector(
            options=options,
            scheduler=scheduler,
            network=network,
            machines=machines,
            clients=clients,
            change=change,
        )

    @property
    def crashes(self) -> int:
        """How often a process or a machine died."""
        return self._injector.crashes

    @property
    def gone(self) -> set[int]:
        """The machines that are lost for good."""
        return self._injector.gone

    def machine_died(self, node: int) -> None:
        """Note that a machine died at a boundary or of a disk error."""
        self._injector.machine_died(node)

    def start(self) -> None:
        """Begin the first fault after a while, so that some runs begin in peace."""
        drawn = [*self._drawer.first(), *self._finalizings, *self._rottings]
        first = drawn if self._given is None else self._given
        for fault in first:
            self._at(fault.at, lambda fault=fault: self._begin(fault))  # type: ignore[misc]
        if self._given is None and not self._drawer.idle:
            self._plan_next()

    def heal_majority(self) -> None:
        """End all faults but one for each node of a minority, which lasts until `heal`."""
        self.heal()
        rng = self._ends_rng
        broken = rng.randint(1, self._drawer.weak_count)
        for node in sorted(rng.sample(self._drawer.weak, broken)):
            how = rng.choice(("down", "isolated", "deaf", "mute"))
            notice = rng.random() < 0.5
            self._trace("nemesis", "stays", f"n{node} {how} notice={notice}")
            if how == "down":
                self._injector.kept_down.add(node)
                self._machines[node].power_loss()
            for other in self._machines:
                if how in ("isolated", "mute") and other != node:
                    self._network.cut(node, other, notice=notice)
                if how in ("isolated", "deaf") and other != node:
                    self._network.cut(other, node, notice=notice)

    def heal(self) -> None:
        """End all faults for good."""
        self._active = False
        self._trace("nemesis", "heal")
        self._injector.end_all()
        for node, machine in self._machines.items():
            delay_s = self._ends_rng.random() * 0.3
            if not machine.alive:
                self._injector.restart(node, delay_s)

    # Internals.

    def _at(self, elapsed_s: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if self._active:
                action()

        self._scheduler.at(START_S + elapsed_s, act)

    def _plan_next(self) -> None:
        self._next_at = self._scheduler.clock.elapsed + self._drawer.pause()
        self._at(self._next_at, self._draw)

    def _draw(self) -> None:
        for fault in self._drawer.draw(self._next_at):
            self._begin(fault)
        self._plan_next()

    def _begin(self, fault: Fault) -> None:
        self.schedule.append(fault)
        self._trace("nemesis", "fault", str(fault))
        self._injector.inject(fault)
