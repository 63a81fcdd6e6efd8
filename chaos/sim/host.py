"""One machine: its disk, its meta store, and the process that starts and ends on it.

State that survives the process is here (disk, meta, segment files). All other state belongs to one
`life` and is gone with it. All work of the process enters through `enter`, which drops work of an
earlier life, defers work while the process is paused, and turns death at a disk boundary into the
end of the life. `rounds` has the WAL, and `inbox` handles messages of peers.
"""

import math
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...client.protocol.errors import CorruptData
from ...node.directory import meta_keys
from ...partitions.metadata import Metadata
from ...partitions.planner import Damage
from ...raft.read_rounds import ReadRounds
from ...raft.types import DiskFailure, GroupId, RaftOptions
from ...raft.wal import Wal
from . import inbox
from .clients import Reply
from .clock import Timer
from .disk import Died, SimDisk
from .duties import Duties
from .inject import SYNC_MEAN_S
from .member import PING, READS, Member
from .membership import Membership
from .pings import Pings
from .repairs import Repairs
from .replica import RangeReplica
from .replicas import Replicas
from .rot import damage_wal, rot_segment
from .rounds import Rounds
from .store import Durable
from .view import View

if TYPE_CHECKING:
    from .world import World

_LOOK_S: Final = 0.0005


class Host:
    """A node of the cluster."""

    def __init__(
        self, world: "World", node_id: int, metadata: Metadata, rng: random.Random
    ) -> None:
        """`metadata` is the image that the machine has stored when the run begins."""
        self.world = world
        self.node_id = node_id
        self.name = f"n{node_id}"
        self.rng = rng
        self.options = world.options
        self.sync_mean_s = SYNC_MEAN_S
        self.wall_offset_ms = 0
        self.disk = SimDisk(rng)
        self.durable = Durable(self.disk)
        self.durable.meta.commit({meta_keys.IMAGE: metadata.image()})
        self.alive = False
        self.paused = False
        self.rotten = False
        """Whether the disk was damaged beyond what a crash does."""
        self.links: dict[int, int] = {}
        self.reads = self._new_reads()
        self._life = 0
        self._dies_by_power = False
        self._dies_again = 0
        self._dies_at_start = 0
        self._deferred: list[tuple[int, Callable[[], None]]] = []
        self._armed: Timer | None = None
        self._armed_at = math.inf
        self._rounds: Rounds | None = None
        self._looking = False
        self._touched: dict[Member, None] = {}
        self.view = View(node_id, self.durable, self.look_soon)
        self.pings: Pings | None = None
        self.replicas: Replicas | None = None
        """None while the process is down."""
        self.repairs: Repairs | None = None
        self._duties: Duties | None = None
        self._membership: Membership | None = None

    @property
    def leads(self) -> bool:
        """Whether any replica here leads."""
        return any(replica.leads for replica in self.members())

    def members(self) -> list[Member]:
        """The members of groups that run here."""
        return [] if self.replicas is None else list(self.replicas.groups.values())

    def member(self, gid: GroupId) -> Member | None:
        """Return the member of a group that runs here."""
        return None if self.replicas is None else self.replicas.groups.get(gid)

    def damages(self) -> list[Damage]:
        """Return the damaged replicas here, as heartbeats report them."""
        damaged = {} if self.replicas is None else self.replicas.damaged
        return [(gid.range_id, gid.generation, reason) for gid, reason in damaged.items()]

    def wall_ms(self) -> int:
        """Return this machine's wall clock."""
        return 1_700_000_000_000 + int(self.world.clock.elapsed * 1000) + self.wall_offset_ms

    def describe(self) -> str:
        """Return one line about the state of this node, for a report."""
        if not self.alive:
            return f"{self.name} down"
        states = ", ".join(replica.describe() for replica in self.members())
        damaged = f" damaged={self.replicas.damaged}" if self.replicas is not None else ""
        return f"{self.name} {states}{damaged}"

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
            again = self._dies_again
            self._end(silent=self._dies_by_power, power=self._dies_by_power)
            self._dies_at_start = again
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

    def entrance(self) -> Callable[[Callable[[], None]], None]:
        """Return what enters the present life with an action later, if the life lasts."""
        return partial(self.enter, self._life)

    # Life and death.

    def start(self) -> None:
        """Start the process: recover, then take part."""
        self._life += 1
        self.alive = True
        self.world.trace(self.name, "start")
        if self._dies_at_start:
            self.die_in(self._dies_at_start, power=True)
            self._dies_at_start = 0
        self.now(self._recover)

    def kill(self) -> None:
        """Kill the process: written data stays in the page cache."""
        self._end(silent=False, power=False)

    def power_loss(self) -> None:
        """Cut the power: unsynced data is lost or torn."""
        self._end(silent=True, power=True)

    def pause(self) -> None:
        """Pause the process (SIGSTOP)."""
        if self.alive:
            self.world.trace(self.name, "pause")
            self.paused = True

    def resume(self) -> None:
        """Resume the process (SIGCONT), and handle everything that came meanwhile."""
        if not self.paused:
            return
        self.world.trace(self.name, "resume")
        self.paused = False
        deferred, self._deferred = self._deferred, []
        for life, action in deferred:
            self.enter(life, action)

    def die_in(self, operations: int, *, power: bool, again: int = 0) -> None:
        """Let the process die before the k-th disk operation from now; 0: never."""
        self._dies_by_power, self._dies_again = power, again
        self.disk.die_at = self.disk.operations + operations if operations else None

    def fail_disk_in(self, operations: int) -> None:
        """Let the k-th disk operation from now fail; 0: none."""
        self.disk.fail_at = self.disk.operations + operations if operations else None

    def fill_disk(self, *, full: bool) -> None:
        """Let nothing be added to the disk, or make room again."""
        self.disk.full = full

    def rot(self, how: str, where: float) -> None:
        """Damage the WAL of a process that is down."""
        if damage_wal(self.disk, how, where):
            self.rotten = True

    def rot_segment(self, where: float) -> None:
        """Damage a segment, or lose it, whether the process runs or not."""
        content_id = rot_segment(self.durable, where)
        if content_id is not None:
            self.rotten = True
            self.world.trace(self.name, "rot", content_id[:8])

    @property
    def has_sound_files(self) -> bool:
        """Whether no replica that runs here needs a damaged file, and no file is in doubt."""
        if self.replicas is None or self.repairs is None or self.repairs.busy:
            return False
        needed = (
            info.content_id
            for replica in self.replicas.ranges()
            for info in replica.store.state.manifest
        )
        return all(map(self.durable.files.is_sound, needed))

    def damage_found(self, replica: RangeReplica, error: CorruptData) -> None:
        """React to damage found by a read: the replica goes on, except for reads of that file."""
        if self.repairs is not None:
            self.repairs.doubt(replica.gid, error)

    def wreck(self, gid: GroupId) -> None:
        """Lose one replica here for good, and nothing else."""
        reason = "lost for good"
        if self.alive:
            self.now(lambda: self._wreck(gid, reason))
        else:
            key = meta_keys.replica_key(gid)
            self.durable.meta.commit({key: {**self.durable.row(key), "damaged": reason}})

    def _wreck(self, gid: GroupId, reason: str) -> None:
        if self.replicas is not None:
            self.replicas.damage(gid, reason)
            self.pump()

    def _end(self, *, silent: bool, power: bool) -> None:
        if not self.alive:
            if power:
                self.disk.lose_power()
            return
        self.world.trace(self.name, "power" if power else "kill")
        self._life += 1
        self.alive = self.paused = False
        self._deferred.clear()
        if self._rounds is not None:
            self._rounds.leave_half_done()
        self.die_in(0, power=False)
        self.fail_disk_in(0)
        self._rounds = None
        self._armed_at = math.inf
        self._touched.clear()
        self.replicas = self._duties = self._membership = self.pings = self.repairs = None
        self.links.clear()
        self.reads = self._new_reads()
        if power:
            self.disk.lose_power()
        self.world.network.process_ended(self.node_id, silent=silent)

    def _recover(self) -> None:
        wal = Wal.open(
            self.disk, entropy=self.rng.randbytes, file_bytes=self.options.wal_file_bytes
        )
        rounds = self._rounds = Rounds(self, wal, collected=self._collected, synced=self._synced)
        self.view = View(self.node_id, self.durable, self.look_soon)
        self.pings = Pings(self, self._life, lambda peer: self.send(peer, PING, (0, 0), None))
        replicas = self.replicas = Replicas(self, rounds)
        self._duties = Duties(self, replicas)
        repairs = self.repairs = Repairs(self, replicas)
        replicas.recover()
        rounds.run_now()
        replicas.start()
        rounds.run_now()
        if self.options.changes:
            self._membership = Membership(self, replicas)
            self._membership.start()
        self.world.network.process_started(self.node_id)
        repairs.start()
        self._looking = False
        self.look_soon()
        self.pump()

    # The loop.

    def pump(self) -> None:
        """Take the output of groups, after every call into one of them."""
        due = math.inf
        while self._touched:
            touched, self._touched = self._touched, {}
            for member in touched:
                member.drain()
                deadline = member.group.next_deadline()
                if deadline < due:
                    due = deadline
        reads = self.reads
        for peer, message in reads.take():
            self.send(peer, READS, (0, 0), message)
        if self._rounds is not None:
            self._rounds.begin()
        at = reads.next_deadline()
        self._arm(at if at < due else due)

    def touch(self, member: Member) -> None:
        """Note a call that may have left output to take."""
        self._touched[member] = None

    def _arm(self, due: float) -> None:
        if self.pings is not None:
            at = self.pings.liveness.next_deadline()
            if at < due:
                due = at
        if due < self._armed_at:
            if self._armed is not None:
                self._armed.cancel()
            self._armed_at = due
            action = partial(self.enter, self._life, self._tick)
            self._armed = self.world.scheduler.at(due, action)

    def _tick(self) -> None:
        self._armed_at = math.inf
        if self.pings is not None:
            self.pings.tick()
        for member in self.members():
            member.group.tick()
            self.touch(member)
        for peer, message in self.reads.tick():
            self.send(peer, READS, (0, 0), message)
        self.pump()

    def look_soon(self) -> None:
        """Look for new duties soon, after a change."""
        if not self._looking and self._duties is not None:
            self._looking = True
            self.later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = False
        if self._duties is not None:
            self._duties.look()
            self.pump()

    # Reads.

    def _new_reads(self) -> ReadRounds:
        return ReadRounds(
            clock=self.world.clock, retry_s=RaftOptions().heartbeat_s, answerer=self._answer_read
        )

    def _answer_read(self, gid: GroupId, fingerprint: bytes, sender: int, term: int) -> int | None:
        replica = self.member(gid)
        if replica is None or replica.fingerprint != fingerprint:
            return None
        self.touch(replica)
        return replica.group.answer_read(sender, term)

    # The WAL.

    def _collected(self, gid: GroupId, number: int) -> None:
        member = self.member(gid)
        if member is not None:
            member.collected(number)

    def _synced(self, number: int, gids: list[GroupId]) -> None:
        for member in self.members():
            member.synced(number)
        for gid in gids:
            touched = self.member(gid)
            if touched is not None:
                touched.group.synced()
                self.touch(touched)

    def reclaim(self) -> None:
        """Give back WAL files that nothing needs, after a checkpoint."""
        if self._rounds is not None:
            self._rounds.reclaim()

    def checkpoint(self) -> None:
        """Checkpoint all replicas here soon."""
        self.now(self._checkpoint)

    def _checkpoint(self) -> None:
        for replica in [] if self.replicas is None else self.replicas.ranges():
            replica.begin_checkpoint()
        self.pump()

    # The network.

    def link_up(self, peer: int, epoch: int) -> None:
        self.now(partial(self._link_up, peer, epoch))

    def _link_up(self, peer: int, epoch: int) -> None:
        self.links[peer] = epoch
        for replica in self.members():
            replica.connected(peer, epoch)
        self.reads.connected(peer, epoch)
        self.pump()

    def link_down(self, peer: int) -> None:
        self.now(partial(self._link_down, peer))

    def _link_down(self, peer: int) -> None:
        self.links.pop(peer, None)
        for replica in self.members():
            replica.disconnected(peer)
        self.reads.disconnected(peer)
        self.pump()

    def send(self, peer: int, kind: int, gid: tuple[int, int], body: Any) -> None:
        """Queue a message for a peer."""
        header = [] if self.pings is None else self.pings.header(peer)
        self.world.network.send(self.node_id, peer, [kind, gid, body, header])

    def receive(self, sender: int, payload: Any) -> None:
        self.now(partial(self._receive, sender, payload))

    def _receive(self, sender: int, payload: Any) -> None:
        if self._duties is None or self.pings is None:
            return
        self.pings.heard(sender, payload[-1])
        inbox.take(self, self._duties, self._membership, sender, payload)
        self.pump()

    def request(self, body: dict[str, Any], answer: Callable[[Reply], None]) -> None:
        """Take a client's request; a process that is down refuses the connection."""
        if not self.alive:
            answer({"status": "error", "hint": None})
            return
        self.now(partial(self._request, body, answer))

    def _request(self, body: dict[str, Any], answer: Callable[[Reply], None]) -> None:
        key = body["key"]
        replica = None if self.replicas is None else self.replicas.serving(key)
        if replica is None:
            ranges = self.view.metadata.ranges.values()
            members = next((range_.members for range_ in ranges if key in range_.span), ())
            hint = members[self.rng.randrange(len(members))] if members else None
            answer({"status": "error", "hint": hint})
            return
        replica.request(body, answer)
        self.pump()
