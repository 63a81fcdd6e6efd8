"""One machine: its disk, its meta store, and the process that comes and goes on it.

What survives the process is here (disk, meta, segment files); everything else belongs to one
`life` and is gone with it. All work of the process enters through `enter`, which drops what belongs
to an earlier life, defers it while the process is paused, and turns death at a disk boundary into
the end of the life. The WAL has one round under way at a time, as with the node's sync thread.
"""

import contextlib
import math
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...raft.read_rounds import ReadRounds
from ...raft.types import DiskFailure, GroupId, RaftOptions
from ...raft.wal import Round, Wal
from .clients import Reply
from .clock import Timer
from .disk import Died, SimDisk
from .inject import SYNC_MEAN_S
from .replica import ANSWERS, BASE, BASE_INSTALLED, BASE_WANTED, RAFT, READS, Replica
from .rot import damage_wal
from .store import Durable
from .violation import Violation

if TYPE_CHECKING:
    from .world import World

_MARK_AFTER_S: Final = 0.7


class Host:
    """A node of the cluster."""

    def __init__(
        self, world: "World", node_id: int, members: tuple[int, ...], rng: random.Random
    ) -> None:
        self.world = world
        self.node_id = node_id
        self.members = members
        self.rng = rng
        self.options = world.options
        self.sync_mean_s = SYNC_MEAN_S
        self.wall_offset_ms = 0
        self.durable = Durable()
        self.disk = SimDisk(rng)
        self.alive = False
        self.paused = False
        self.rotten = False
        """Its disk was damaged, beyond what a crash does."""
        self.replicas: dict[int, Replica] = {}
        self.links: dict[int, int] = {}
        self.reads = self._new_reads()
        self._life = 0
        self._dies_by_power = False
        self._deferred: list[tuple[int, Callable[[], None]]] = []
        self._armed: Timer | None = None
        self._armed_at = math.inf
        self._wal: Wal | None = None
        self._writing: Round | None = None
        self._mark: Timer | None = None

    @property
    def name(self) -> str:
        return f"n{self.node_id}"

    @property
    def leads(self) -> bool:
        """Some replica here leads."""
        return any(replica.group.role == "leader" for replica in self.replicas.values())

    def wall_ms(self) -> int:
        """This machine's wall clock."""
        return 1_700_000_000_000 + int(self.world.clock.elapsed * 1000) + self.wall_offset_ms

    def describe(self) -> str:
        """One line about where this node stands, for a report."""
        if not self.alive:
            return f"{self.name} down"
        states = ", ".join(replica.describe() for replica in self.replicas.values())
        return f"{self.name} {states}"

    # Entering the process.

    def enter(self, life: int, action: Callable[[], None]) -> None:
        """Run an action of this life now, or when the pause ends, or not at all."""
        if life != self._life or not self.alive:
            return
        if self.paused:
            self._deferred.append((life, action))
            return
        try:
            action()
        except Died:
            self._end(silent=self._dies_by_power, power=self._dies_by_power)
            self.world.nemesis.machine_died(self.node_id)
        except (DiskFailure, OSError) as error:
            # A failed write or sync ends the process; fsync is never retried (hole 12).
            self.world.trace(self.name, "disk-failure", str(error))
            self._end(silent=False, power=False)
            self.world.nemesis.machine_died(self.node_id)

    def now(self, action: Callable[[], None]) -> None:
        """Enter the present life."""
        self.enter(self._life, action)

    def later(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Enter the present life after a while, if it lasts."""
        return self.world.scheduler.after(delay_s, partial(self.enter, self._life, action))

    # Life and death.

    def start(self) -> None:
        """Start the process: recover, then take part."""
        self._life += 1
        self.alive = True
        self.world.trace(self.name, "start")
        self.now(self._recover)

    def kill(self) -> None:
        """kill -9: what was written stays in the page cache."""
        self._end(silent=False, power=False)

    def power_loss(self) -> None:
        """What was not synced is lost or torn."""
        self._end(silent=True, power=True)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.alive:
            self.world.trace(self.name, "pause")
            self.paused = True

    def resume(self) -> None:
        """SIGCONT: everything that came meanwhile is handled now."""
        if not self.paused:
            return
        self.world.trace(self.name, "resume")
        self.paused = False
        deferred, self._deferred = self._deferred, []
        for life, action in deferred:
            self.enter(life, action)

    def die_in(self, operations: int, *, power: bool) -> None:
        """Die before the k-th disk operation from now; 0: never."""
        self._dies_by_power = power
        self.disk.die_at = self.disk.operations + operations if operations else None

    def fail_disk_in(self, operations: int) -> None:
        """The k-th disk operation from now fails; 0: none."""
        self.disk.fail_at = self.disk.operations + operations if operations else None

    def fill_disk(self, *, full: bool) -> None:
        """Nothing can be added to the disk, or there is room again."""
        self.disk.full = full

    def rot(self, how: str, where: float) -> None:
        """Damage the WAL of a process that is down."""
        if damage_wal(self.disk, how, where):
            self.rotten = True

    def _end(self, *, silent: bool, power: bool) -> None:
        if not self.alive:
            if power:
                self.disk.lose_power()
            return
        self.world.trace(self.name, "power" if power else "kill")
        self._life += 1
        self.alive = self.paused = False
        self._deferred.clear()
        self._leave_round_half_done()
        self.die_in(0, power=False)
        self.fail_disk_in(0)
        self._wal = None
        self._armed_at = math.inf
        self.replicas = {}
        self.links.clear()
        self.reads = self._new_reads()
        if power:
            self.disk.lose_power()
        self.world.network.process_ended(self.node_id, silent=silent)

    def _leave_round_half_done(self) -> None:
        """The sync thread may be anywhere in its round when the process dies."""
        wal, round_, self._writing = self._wal, self._writing, None
        if wal is None or round_ is None:
            return
        self.fail_disk_in(0)
        self.die_in(self.rng.randint(1, 4), power=False)
        with contextlib.suppress(Died):
            wal.write(round_)

    def _recover(self) -> None:
        wal = self._wal = Wal.open(
            self.disk, entropy=self.rng.randbytes, file_bytes=self.options.wal_file_bytes
        )
        self.durable.remove_orphans()
        logs = []
        for number in range(self.options.groups):
            gid = GroupId(number + 1, 1)
            log = wal.groups.get(gid)
            started = f"started/{number}"
            damage = self._damage_of(number, gid, wal)
            if damage is not None:
                self.world.safety[number].damaged(self.node_id)
                self.durable.meta.commit({f"damaged/{number}": damage})
                continue
            if log is None:
                log = wal.create_group(gid)
            logs.append((number, gid, log, started))
        self._sync_now(wal)
        self.disk.boundary()
        for _, _, _, started in logs:
            self.durable.meta.commit({started: True})
        self.replicas = {number: Replica(self, number, gid, log) for number, gid, log, _ in logs}
        for replica in self.replicas.values():
            replica.start()
        self._sync_now(wal)
        self.world.network.process_started(self.node_id)
        self.pump()

    def _damage_of(self, number: int, gid: GroupId, wal: Wal) -> str | None:
        """Why this node takes no part in a group; None if it does (executions 1.2)."""
        meta = self.durable.meta
        reason = meta.get(f"damaged/{number}") or wal.recovery.damaged.get(gid)
        if reason is None and gid not in wal.groups and meta.get(f"started/{number}"):
            reason = "its log is not in the WAL"
        if reason is not None and not self.rotten:
            raise Violation("L2", "recovery takes what a crash left for damage", node=self.node_id,
                            group=number, reason=reason)  # fmt: skip
        return reason

    def _sync_now(self, wal: Wal) -> None:
        """Rounds of the recovery, before anything is said to anybody."""
        while wal.dirty:
            round_ = wal.collect()
            if round_ is None:
                return
            wal.write(round_)
            wal.complete(round_)

    # The loop.

    def pump(self) -> None:
        """After every call into a group: take out what it has to give, and go on."""
        for replica in self.replicas.values():
            replica.drain()
        for peer, message in self.reads.take():
            self.send(peer, [READS, 0, message])
        self._begin_round()
        self._arm()

    def _arm(self) -> None:
        due = min((r.group.next_deadline() for r in self.replicas.values()), default=math.inf)
        due = min(due, self.reads.next_deadline())
        if due < self._armed_at:
            if self._armed is not None:
                self._armed.cancel()
            self._armed_at = due
            action = partial(self.enter, self._life, self._tick)
            self._armed = self.world.scheduler.at(due, action)

    def _tick(self) -> None:
        self._armed_at = math.inf
        for replica in self.replicas.values():
            replica.group.tick()
        for peer, message in self.reads.tick():
            self.send(peer, [READS, 0, message])
        self.pump()

    # Reads.

    def _new_reads(self) -> ReadRounds:
        return ReadRounds(
            clock=self.world.clock, retry_s=RaftOptions().heartbeat_s, answerer=self._answer_read
        )

    def _answer_read(self, gid: GroupId, fingerprint: bytes, sender: int, term: int) -> int | None:
        replica = next((each for each in self.replicas.values() if each.gid == gid), None)
        if replica is None or replica.fingerprint != fingerprint:
            return None
        return replica.group.answer_read(sender, term)

    # The WAL.

    def _begin_round(self) -> None:
        wal = self._wal
        if wal is None or self._writing is not None or not wal.dirty:
            return
        round_ = wal.collect()
        if round_ is None:
            return
        self._writing = round_
        for replica in self.replicas.values():
            replica.collected(round_.number)
        delay = 0.0001
        if round_.must_sync:
            delay += self.rng.expovariate(1.0) * self.sync_mean_s
        self.later(delay, self._finish_round)

    def _finish_round(self) -> None:
        wal, round_ = self._wal, self._writing
        if wal is None or round_ is None:
            return
        self._writing = None
        wal.write(round_)
        self.world.trace(self.name, "sync", str(round_.number))
        for replica in self.replicas.values():
            replica.synced(round_.number)
        touched = wal.complete(round_)
        for replica in self.replicas.values():
            if replica.gid in touched:
                replica.group.synced()
        if round_.must_sync:
            if self._mark is not None:
                self._mark.cancel()
            self._mark = self.later(_MARK_AFTER_S, self._mark_idle)
        self.pump()

    def _mark_idle(self) -> None:
        if self._wal is not None and not self._wal.dirty and self._writing is None:
            self._wal.mark()
            self.pump()

    def reclaim(self) -> None:
        """After a checkpoint: give back WAL files that nothing needs."""
        if self._wal is not None and self._writing is None:
            self._wal.let_go(self._wal.reclaim())

    def checkpoint(self) -> None:
        """Checkpoint all replicas here soon."""
        self.now(self._checkpoint)

    def _checkpoint(self) -> None:
        for replica in self.replicas.values():
            replica.begin_checkpoint()
        self.pump()

    # The network.

    def link_up(self, peer: int, epoch: int) -> None:
        self.now(partial(self._link_up, peer, epoch))

    def _link_up(self, peer: int, epoch: int) -> None:
        self.links[peer] = epoch
        for replica in self.replicas.values():
            replica.group.connected(peer, epoch)
        self.reads.connected(peer, epoch)
        self.pump()

    def link_down(self, peer: int) -> None:
        self.now(partial(self._link_down, peer))

    def _link_down(self, peer: int) -> None:
        self.links.pop(peer, None)
        for replica in self.replicas.values():
            replica.group.disconnected(peer)
        self.reads.disconnected(peer)
        self.pump()

    def send(self, peer: int, payload: Any) -> None:
        """Queue something for a peer."""
        self.world.network.send(self.node_id, peer, payload)

    def receive(self, sender: int, payload: Any) -> None:
        self.now(partial(self._receive, sender, payload))

    def _receive(self, sender: int, payload: Any) -> None:
        kind, number, body = payload
        if kind == READS:
            self.send(sender, [ANSWERS, 0, self.reads.answer(sender, body)])
            return
        if kind == ANSWERS:
            self.reads.answered(sender, body)
            self.pump()
            return
        replica = self.replicas.get(number)
        if replica is None:
            return
        if kind == RAFT:
            self.world.trace.note(self.name, "recv", "n%d %s", sender, body)
            replica.group.receive(sender, body)
        elif kind == BASE_WANTED:
            replica.send_base(sender)
        elif kind == BASE:
            replica.install_base(sender, body)
        elif kind == BASE_INSTALLED:
            replica.group.base_installed(sender)
        self.pump()

    def request(self, body: dict[str, Any], answer: Callable[[Reply], None]) -> None:
        """A client's request; a process that is not there refuses the connection."""
        if not self.alive:
            answer({"status": "error", "hint": None})
            return
        self.now(partial(self._request, body, answer))

    def _request(self, body: dict[str, Any], answer: Callable[[Reply], None]) -> None:
        replica = self.replicas.get(body["group"])
        if replica is None:
            answer({"status": "error", "hint": None})
            return
        replica.request(body, answer)
        self.pump()
