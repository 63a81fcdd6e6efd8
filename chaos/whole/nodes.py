"""The daemons of a run: each is the product's `Node`, in a simulated process on its own machine.

The interface is that of the live tests' nodes (`chaos/nodes.py`), so their packages of faults run
against these nodes as well.
"""

import argparse
import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ...client.objects.store import ObjectStore
from ...client.protocol.errors import LognodeError
from ...node.config import Config, add_flags, load
from ...node.daemon import Node
from ...node.replicas.clocks import Clocks
from ...node.replicas.range_replica import RangeReplica
from ...node.runtime.surroundings import Alarm, OnFailure, Surroundings
from ...node.runtime.sync_thread import SyncThread
from ...node.runtime.wal_writer import WalWriter
from ...node.runtime.workers import Workers
from ...raft.os_disk import OsDisk
from ...raft.wal import Wal
from ...statemachine.builder import Builder
from ...statemachine.merge_process import Merger
from .additions import NONE, Additions
from .credentials import Credentials
from .disk import PowerDisk
from .far_store import PLACE, FarStore
from .loop import SimLoop
from .process import Ended, Process
from .store_threads import SimObjects, StoreThreads
from .threads import SimBuilder, SimMerger, SimThread

_FIRST_PORT: Final = 4600
_WAL_FILE_BYTES: Final = 64 * 1024
_AGAIN_S: Final = 1.0
_GRACES_S: Final = (0.0, 0.0, 3.0)
_ALONE: Final = 0.5
"""The share of turns of a node's loop that end with the messages of another node."""


class _Around(Surroundings):
    """The surroundings of a simulated process."""

    def __init__(self, machine: "Machine", process: Process) -> None:
        self._machine = machine
        self._process = process

    def thread(self, name: str, on_failure: OnFailure) -> SimThread:
        return SimThread(name, on_failure=on_failure, rng=self._machine.loop.rng)

    def disk(self, directory: Path, open_max: int) -> OsDisk:
        self._machine.disk = PowerDisk(directory, open_max=open_max)
        return self._machine.disk

    def writer(
        self, wal: Wal, thread: SyncThread, disk: OsDisk, *,
        on_failure: OnFailure, on_sync: Callable[[float], None],
    ) -> WalWriter:  # fmt: skip
        return WalWriter(wal, thread)

    def is_alone(self) -> Callable[[], bool]:
        """Draw whether a turn had another event."""
        return lambda: self._machine.loop.rng.random() < _ALONE

    def builder(self) -> Builder:
        return SimBuilder()

    def merger(self) -> Merger:
        return SimMerger()

    def objects(
        self, place: str, *, endpoint: str | None, region: str | None, patience_s: float | None
    ) -> ObjectStore:
        assert self._machine.tier is not None, place
        return SimObjects(self._machine.tier)

    def workers(self, name: str, count: int) -> Workers:
        assert self._machine.tier is not None, name
        made = StoreThreads(count, self._machine.tier, self._machine.loop.rng)
        self._machine.store_threads.append(made)
        return made

    def alarm(self, seconds: float, call: Callable[[], None]) -> Alarm:
        return self._machine.loop.call_later(seconds, call)

    def end(self, code: int) -> None:
        self._machine.ended_itself(code)
        self._machine.loop.end(self._process)
        raise Ended


class Machine:
    """One machine, with a data directory and a node that may be killed and started again."""

    def __init__(
        self, number: int, config: Config, loop: SimLoop, rng: random.Random, bugs: list[str],
        tier: FarStore | None = None,
    ) -> None:  # fmt: skip
        self.number = number
        self.loop = loop
        self.disk: PowerDisk | None = None
        self.process: Process | None = None
        self.node: Node | None = None
        """The node of the last process."""
        self.tier = tier
        self.store_threads: list[StoreThreads] = []
        self.starts = 0
        self.lost_bytes = 0
        self.address = config.listen
        self.http = config.http
        self.data = config.data
        self.is_lost = False
        """Whether the machine is gone for good."""
        self._config = config
        for offset in range(3):
            loop.network.places[_port(number) + offset] = str(number)
        self._rng = rng
        self._bugs = bugs
        self._ended: asyncio.Event | None = None
        self._is_stopped = False
        """Whether the node was asked to stop, and not to start since."""
        self._is_stopping = False
        """Whether the process of the node was asked to stop."""

    @property
    def running(self) -> bool:
        """Whether the process lives; a paused process does."""
        return self.process is not None and self.process.alive

    async def restarted(self) -> None:
        """Wait for the end of a node that was asked to stop; then start the node again.

        A fault that ends while its node is still stopping would otherwise last longer than all
        faults (seed 426).
        """
        if self.running and self._is_stopping and self._ended is not None:
            await self._ended.wait()
        self.begin()

    async def start(self) -> None:
        """Start the node unless it runs. A node that is stopping starts again afterwards, and one
        that is to lose power keeps it."""
        self._is_stopped = False
        if self.disk is not None:
            self.disk.spare()
        self.begin()

    def begin(self) -> None:
        """Start the node unless it runs, or the machine is gone for good."""
        if self.running or self.is_lost:
            return
        self.starts += 1
        self._is_stopping = False
        self.loop.network.off.discard(str(self.number))
        process = self.process = Process(f"n{self.number}", str(self.number))
        self._ended = asyncio.Event()
        process.on_end.append(self._ended.set)
        if self.tier is not None:
            self.tier.begins(process.name)
        self.loop.trace(process.name, f"starts, for time {self.starts}")
        self.loop.spawn(process, self._live(process))

    async def kill(self) -> None:
        """End the process at once; files keep what was written."""
        if self.process is not None:
            self.loop.end(self.process)

    def doom(self, operations: int, *, speaks: bool) -> None:
        """Lose power before one of the next operations of the WAL's disk.

        A round writes and syncs at one moment of virtual time, so that only a loss of power inside
        of a round finds unsynced bytes.
        """
        left = operations

        def before() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                self.lose_power(speaks=speaks)
                raise Ended

        if self.disk is not None and self.running:
            self.disk.before = before

    def lose_power(self, *, speaks: bool) -> int:
        """End the process and lose unsynced bytes of the WAL; return their number, ever lost.

        The machine says nothing to the others: their connections stay half-open until it runs
        again. With `speaks`, its network card still resets them.
        """
        if self.process is None or not self.process.alive:
            return self.lost_bytes
        if not speaks:
            self.loop.network.off.add(str(self.number))
        self.loop.end(self.process)
        if self.disk is not None:
            self.lost_bytes += self.disk.lose_power(self._rng)
        return self.lost_bytes

    async def stop(self) -> None:
        """Ask the node to stop, and wait until it has ended."""
        process = self.process
        if process is None or not process.alive or self._ended is None:
            return
        self._is_stopped = self._is_stopping = True
        self.resume()
        if signal.SIGTERM in process.signals:
            self.tell(signal.SIGTERM)
            await self._ended.wait()
        else:
            self.loop.end(process)

    def ranges(self) -> tuple[RangeReplica, ...]:
        """Return the replicas of the node; none while the node starts or is down."""
        node = self._serving()
        return () if node is None else node.ranges()

    def waiting_files(self) -> int:
        """Return how many files the node says wait for the tier."""
        node = self._serving()
        return 0 if node is None else node.waiting_files()

    def _serving(self) -> Node | None:
        process = self.process
        is_up = process is not None and process.alive and signal.SIGTERM in process.signals
        return self.node if is_up else None

    def forget(self) -> None:
        """End the threads of all processes, and let go of the node, after the run."""
        for threads in self.store_threads:
            threads.end()
        self.store_threads.clear()
        self.node = None

    def tell(self, number: int) -> None:
        """Send a signal, if the process runs and handles it."""
        if self.process is not None and self.process.alive:
            self.loop.signal(self.process, number)

    def pause(self) -> None:
        """Stop the process for a while."""
        if self.process is not None and self.process.alive:
            self.loop.pause(self.process)

    def resume(self) -> None:
        """Let a paused process go on."""
        if self.process is not None and self.process.alive:
            self.loop.resume(self.process)

    def ended_itself(self, code: int) -> None:
        """Note that the node ended its process without an orderly stop: no fault here does that."""
        self._bugs.append(f"node {self.number} ended itself with exit code {code}")

    async def _live(self, process: Process) -> None:
        clocks = Clocks(
            wall_ms=lambda: time.time_ns() // 1_000_000, monotonic=lambda: self.loop.time()
        )
        node = self.node = Node(self._config, clocks, _Around(self, process))
        process.on_end.insert(0, node.abandon)
        try:
            code = await node.run()
        except LognodeError as error:
            self.loop.trace(process.name, f"could not start: {error.message}")
            code = 1
        except (Ended, GeneratorExit):
            raise
        except Exception as error:
            if not process.alive:
                raise  # the last words of a killed process, after the run
            self._bugs.append(f"node {self.number} failed: {error!r}")
            code = 1
        self.loop.trace(process.name, f"exits with {code}")
        if code or not self._is_stopped:
            # As a supervisor does. The timer belongs to the world: this process is over.
            self.loop.call_later(_AGAIN_S, self.begin, context=self.loop.world.context)
        self.loop.end(process)


class Machines:
    """The machines of a cluster, by number from 1."""

    def __init__(
        self, count: int, root: Path, loop: SimLoop, rng: random.Random,
        additions: Additions = NONE,
    ) -> None:  # fmt: skip
        self.root = root
        self.bugs: list[str] = []
        """What no fault explains."""
        self.credentials = Credentials(
            root, root / "node1", tokens=additions.tokens, tls=additions.tls
        )
        loop.network.is_sealed = additions.tls
        self.tier = FarStore(loop, random.Random(rng.getrandbits(64))) if additions.tier else None
        """The object store to which all nodes upload."""
        grace_s = rng.choice(_GRACES_S) if additions.tier else None
        everybody = range(1, count + 1)
        together = [_address(number) for number in everybody] if additions.together else []
        self._all = {
            number: Machine(
                number,
                _config(number, root, together, self.credentials, grace_s),
                loop,
                rng,
                self.bugs,
                self.tier,
            )
            for number in everybody
        }

    def __getitem__(self, number: int) -> Machine:
        return self._all[number]

    def __iter__(self) -> Iterator[Machine]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of all machines that are not gone for good, in order."""
        return [number for number, machine in self._all.items() if not machine.is_lost]

    @property
    def servers(self) -> str:
        """The address of the cluster, for clients that may do everything."""
        return self.credentials.of_admin(self.hosts)

    @property
    def workload_servers(self) -> str:
        """The address of the cluster, for clients that may do what the workload does."""
        return self.credentials.of_workload(self.hosts)

    @property
    def hosts(self) -> str:
        """The addresses of all nodes."""
        return ",".join(machine.address for machine in self)

    def end(self) -> None:
        """End all processes."""
        for machine in self:
            if machine.process is not None:
                machine.loop.end(machine.process)
            machine.forget()


def _port(number: int) -> int:
    return _FIRST_PORT + 10 * number


def _address(number: int) -> str:
    return f"127.0.0.1:{_port(number)}"


def _config(
    number: int, root: Path, together: list[str], credentials: Credentials, grace_s: float | None
) -> Config:
    """Return the settings of a node, read from flags as the daemon reads them.

    `together`: the addresses of all nodes that found the cluster together. `grace_s`: of the tier,
    None without a tier.
    """
    flags = [
        "--data", str(root / f"node{number}"), "--listen", _address(number),
        "--http", f"127.0.0.1:{_port(number) + 2}", "--wal-file-bytes", str(_WAL_FILE_BYTES),
        "--disk-reserve-bytes", str(2 * _WAL_FILE_BYTES), "--repair-after", "0",
        *credentials.flags(number),
    ]  # fmt: skip
    if grace_s is not None:
        flags += ["--tier", PLACE, "--tier-grace", str(grace_s)]
    if together:
        flags += ["--join", ",".join(together), "--bootstrap-expect", str(len(together))]
    elif number > 1:
        flags += ["--join", _address(1), *credentials.invited(number)]
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return load(vars(parser.parse_args(flags)), {})
