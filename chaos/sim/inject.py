"""The effect of each fault on the cluster, and its end. Nothing is drawn here.

Faults of one kind may overlap: a direction is open when all its cuts have ended, and of several
values the largest holds. A fault therefore does the same whatever other faults there are, and a
schedule without some of its faults is still meaningful.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from .clock import Scheduler
from .faults import Fault
from .network import Conditions, Network
from .options import Options

SYNC_MEAN_S: Final = 0.0015
CLIENT_DELAY_S: Final = 0.001
_BACK_S: Final = 0.2


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
    def fill_disk(self, *, full: bool) -> None: ...
    def rot(self, how: str, where: float) -> None: ...
    def rot_segment(self, where: float) -> None: ...
    def checkpoint(self) -> None: ...


class ClientPath(Protocol):
    """The path between clients and nodes."""

    loss: float
    duplicate: float
    delay_mean: float


class Dial:
    """A value that faults raise: the largest of those in force, or else `calm`.

    `normal` is the value once all faults have ended for good.
    """

    def __init__(self, calm: float, normal: float, turn: Callable[[float], None]) -> None:
        self._calm = calm
        self._normal = normal
        self._turn = turn
        self._values: list[float] = []
        turn(calm)

    def raise_to(self, value: float) -> None:
        """Put one more fault in force."""
        self._values.append(value)
        self._turn(max(self._values))

    def release(self, value: float) -> None:
        """End one of the faults."""
        self._values.remove(value)
        self._turn(max(self._values, default=self._calm))

    def end(self) -> None:
        """End all of the faults for good."""
        self._values.clear()
        self._turn(self._normal)


class Injector:
    """Begins faults and ends them, each after its time or all at once."""

    def __init__(
        self,
        *,
        options: Options,
        scheduler: Scheduler,
        network: Network,
        machines: Mapping[int, Machine],
        clients: ClientPath,
        change: Callable[[Fault], None],
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._machines = machines
        self._change = change
        self._ends = 0
        """Faults that began before the last increase of this count no longer end by themselves."""
        self._back_s: dict[int, float] = {}
        """The time after which a machine restarts that dies of a fault still to come."""
        self.kept_down: set[int] = set()
        self.gone: set[int] = set()
        """Machines that are lost for good."""
        self.crashes = 0
        conditions = network.conditions

        def dial(owner: object, name: str, calm: float, normal: float | None = None) -> Dial:
            return Dial(calm, calm if normal is None else normal, partial(setattr, owner, name))

        normal = Conditions()
        self._dials = {
            "drop": dial(conditions, "drop", options.drop, 0.0),
            "duplicate": dial(conditions, "duplicate", options.duplicate, 0.0),
            "late": dial(conditions, "late", options.late, 0.0),
            "slow": dial(conditions, "delay_mean", normal.delay_mean),
            "client loss": dial(clients, "loss", options.client_loss, 0.0),
            "client duplicate": dial(clients, "duplicate", 0.0),
            "client slow": dial(clients, "delay_mean", CLIENT_DELAY_S),
        }
        for node, machine in machines.items():
            self._dials[f"disk {node}"] = dial(machine, "sync_mean_s", SYNC_MEAN_S)

    def inject(self, fault: Fault) -> None:
        """Begin a fault. Raises KeyError for an unknown kind."""
        kind = fault.kind
        if kind in ("partition", "oneway", "stall", "reset"):
            self._on_links(fault)
        elif kind in ("drop", "duplicate", "late", "slow", "client"):
            self._turn(f"client {fault.how}" if kind == "client" else kind, fault)
        elif kind == "change":
            self._change(fault)
        else:
            for node in fault.nodes:
                self._on_machine(node, self._machines[node], fault)

    def end_all(self) -> None:
        """End all faults now; machines that are down stay down."""
        self._ends += 1
        self._back_s.clear()
        self.kept_down.clear()
        for dial in self._dials.values():
            dial.end()
        self._network.heal()
        for machine in self._machines.values():
            machine.fail_disk_in(0)
            machine.fill_disk(full=False)
            machine.die_in(0, power=False)
            machine.resume()

    def restart(self, node: int, delay_s: float) -> None:
        """Start a machine after a while, if it is down then."""
        machine = self._machines[node]

        def again() -> None:
            if not machine.alive and node not in self.kept_down | self.gone:
                machine.start()

        self._scheduler.after(delay_s, again)

    def machine_died(self, node: int) -> None:
        """Note that a machine died at a boundary or of a disk error: it restarts after a while."""
        self.crashes += 1
        self.restart(node, self._back_s.get(node, _BACK_S))

    def _after(self, seconds: float, end: Callable[[], None]) -> None:
        ends = self._ends

        def act() -> None:
            if ends == self._ends:
                end()

        self._scheduler.after(seconds, act)

    def _turn(self, name: str, fault: Fault) -> None:
        dial = self._dials[name]
        dial.raise_to(fault.value)
        self._after(fault.seconds, partial(dial.release, fault.value))

    def _on_links(self, fault: Fault) -> None:
        network = self._network
        for pair in fault.pairs:
            if fault.kind == "reset":
                network.reset(*pair)
            elif fault.kind == "stall":
                network.stall(*pair)
                self._after(fault.seconds, partial(network.unstall, *pair))
            else:
                network.cut(*pair, notice=fault.notice)
                self._after(fault.seconds, partial(network.uncut, *pair))

    def _on_machine(self, node: int, machine: Machine, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                self._down(node, machine.kill, fault)
            case "power" | "power-all":
                self._down(node, machine.power_loss, fault)
            case "lose":
                self.gone.add(node)
                self._down(node, machine.power_loss, fault)
            case "rot" if fault.how == "segment":
                if fault.seconds:
                    self._down(node, machine.kill, fault)
                machine.rot_segment(fault.value)
            case "rot":
                self._down(node, machine.kill, fault)
                machine.rot(fault.how, fault.value)
            case "boundary":
                self._back_s[node] = fault.seconds
                machine.die_in(int(fault.value), power=fault.how == "power")
            case "pause":
                machine.pause()
                self._after(fault.seconds, machine.resume)
            case "full":
                self._back_s[node] = fault.seconds / 2
                machine.fill_disk(full=True)
                self._after(fault.seconds, partial(machine.fill_disk, full=False))
            case "disk" if fault.how == "error":
                self._back_s[node] = fault.seconds
                machine.fail_disk_in(int(fault.value))
            case "disk":
                self._turn(f"disk {node}", fault)
            case "checkpoint":
                machine.checkpoint()
            case "clock":
                machine.wall_offset_ms += int(fault.value)
            case _:
                raise KeyError(fault.kind)

    def _down(self, node: int, die: Callable[[], None], fault: Fault) -> None:
        if self._machines[node].alive:
            self.crashes += 1
        die()
        self.restart(node, fault.seconds)
