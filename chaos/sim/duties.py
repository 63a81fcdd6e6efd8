"""Runs on a simulated node the duties that `partitions.duties` derives from the metadata.

A duty begins when it is returned and none of its name is under way. A request to a peer without an
answer is given up after a while, and sent to another peer.
"""

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...node.directory import meta_keys
from ...node.rules import base_fetches
from ...node.rules.base_fetches import (
    BeginLate,
    Copied,
    Fetch,
    KeepEnd,
    Own,
    Parent,
    Reinstall,
    Store,
    Stored,
    fits,
    pin_of,
)
from ...node.rules.first_base import first_base
from ...node.rules.generation_ends import (
    HeldReplica,
    PreparedEnd,
    prepared,
    prepared_end,
)
from ...partitions import duties
from ...partitions.duties import Duty, Local
from ...partitions.lineage import Gid
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from .member import BASE, BASE_INSTALLED, BASE_WANTED, REPORT
from .violation import Violation

if TYPE_CHECKING:
    from .host import Host
    from .replicas import Replicas

_ASK_S: Final = 0.5
"""The time that a peer has to answer before another peer is asked."""


class Duties:
    """The duties in one life of a process."""

    def __init__(self, host: "Host", replicas: "Replicas") -> None:
        self._host = host
        self._replicas = replicas
        self._asked: dict[object, tuple[float, Duty]] = {}
        """Duties that wait for a peer's base, each with its deadline."""
        self._copied: set[tuple[int, Gid]] = set()
        self._fetched: dict[tuple[object, Gid], Base] = {}
        """Per duty and parent, the parent's end whose files are here."""
        self._turns: Counter[object] = Counter()
        """The number of peers that a duty has asked."""

    def look(self) -> None:
        """Begin all duties that are due and not under way."""
        metadata = self._host.view.metadata
        self._copied = {done for done in self._copied if done[0] in metadata.operations}
        found = duties.duties(metadata, self._local())
        wanted = set(map(duties.name_of, found))
        self._fetched = {of: base for of, base in self._fetched.items() if of[0] in wanted}
        pins = self._replicas.pinned
        for pin in base_fetches.unpinned(pins, metadata.operations, wanted):
            del pins[pin]
        rows = [key for key, _ in self._host.durable.meta.items(meta_keys.PREPARED)]
        over = base_fetches.prepared_over(rows, metadata.operations, found)
        if over:
            self._host.durable.commit({}, over)
        for duty in found:
            asked = self._asked.get(duties.name_of(duty))
            if asked is None or asked[0] <= self._host.world.clock.now:
                self._do(duty)

    def _local(self) -> Local:
        host = self._host

        def read(key: str) -> PreparedEnd | None:
            row = host.durable.meta.get(key)
            return None if row is None else prepared_end(row)

        own = prepared(host.view.metadata.operations, read)
        return Local(
            node_id=host.node_id,
            replicas={
                replica.gid: HeldReplica(replica, replica.store.state)
                for replica in self._replicas.ranges()
            },
            damaged=(*self._replicas.damaged, *self._replicas.aside),
            marks=self._replicas.marks,
            copied=self._copied,
            prepared=own.ends,
            prepared_effects=own.effects,
        )

    def _do(self, duty: Duty) -> None:
        host = self._host
        match duty:
            case duties.Begin():
                self._begin(duty)
            case duties.Tell():
                self._report(duty.report())
            case duties.Copy(gid, operation):
                replica = self._replicas.range_(GroupId(*gid))
                if replica is None:
                    self._ask(duty, gid)
                else:
                    replica.begin_checkpoint()
                    self._copied.add((operation, gid))
            case duties.Flush(gid):
                replica = self._replicas.range_(GroupId(*gid))
                if replica is not None:
                    replica.begin_checkpoint()
            case duties.Seal(gid, operation):
                replica = self._replicas.range_(GroupId(*gid))
                if replica is not None:
                    replica.propose_seal(operation)
            case duties.LearnEnd(gid, index, term):
                replica = self._replicas.range_(GroupId(*gid))
                if replica is not None and not replica.stopped:
                    replica.log.learn_commit(index, term)
                    host.touch(replica)
            case duties.Prepare(gid):
                self._ask(duty, gid)
            case duties.CatchUp(gid):
                replica = self._replicas.range_(GroupId(*gid))
                if replica is not None:
                    self._ask(duty, gid)
            case duties.Damage(gid, reason):
                raise Violation("x6", reason, node=host.node_id, gid=gid)
            case duties.GoAlone(gid):
                replica = self._replicas.range_(GroupId(*gid))
                if replica is not None:
                    self._replicas.go_on_alone(replica)
            case duties.StandDown(gid):
                replica = self._replicas.range_(GroupId(*gid))
                if replica is not None:
                    replica.stop()
            case duties.Retire(gids):
                self._replicas.retire([GroupId(*gid) for gid in gids])

    def _report(self, report: dict[str, Any]) -> None:
        host = self._host
        controller = self._replicas.controller
        if controller is not None and controller.leads:
            controller.take_report(host.node_id, report)
        elif host.view.leader is not None:
            host.send(host.view.leader, REPORT, (0, 0), report)

    # Bases.

    def _begin(self, duty: duties.Begin) -> None:
        range_ = duty.range_
        if duty.late:
            self._ask(duty, (range_.range_id, range_.generation))
            return
        parents = base_fetches.parents_of(duty)
        ends = [self._end_of(duty, parent) for parent in parents]
        missing = [parent.gid for parent, end in zip(parents, ends, strict=True) if end is None]
        if missing:
            self._ask(duty, missing[0])
            return
        lost = "recovered" in duty.parents
        base = first_base(range_, [end for end in ends if end is not None], lost=lost)
        self._replicas.begin_range(range_, base, campaign=duty.campaign)

    def _end_of(self, duty: duties.Begin, parent: Parent) -> Base | None:
        """Return the parent's state at its end, as far as it is here."""
        match parent:
            case Own(gid):
                replica = self._replicas.range_(GroupId(*gid))
                return None if replica is None else replica.store.state.durable_base
            case Stored(_, key):
                row = self._host.durable.meta.get(key)
                return None if row is None else Base.from_wire(row["base"])
            case Fetch(gid):
                return self._fetched.get((duties.name_of(duty), gid))

    def _ask(self, duty: Duty, gid: Gid) -> None:
        """Ask a peer, another one each time, for its durable base of a generation."""
        host = self._host
        name = duties.name_of(duty)
        replica = self._replicas.range_(GroupId(*gid))
        leader = None if replica is None else replica.leader
        peers = base_fetches.sources_of(duty, gid, host.view.metadata, host.node_id, leader)
        if not peers:
            return
        peer = peers[self._turns[name] % len(peers)]
        self._turns[name] += 1
        self._asked[name] = (host.world.clock.now + _ASK_S, duty)
        host.send(peer, BASE_WANTED, gid, None)
        host.later(_ASK_S, host.look_soon)

    def serve(self, peer: int, gid: Gid) -> None:
        """Send a peer the durable base of a generation, if there is one here."""
        replica = self._replicas.range_(GroupId(*gid))
        if replica is not None:
            base = replica.store.state.durable_base
            self._host.send(peer, BASE, gid, base.to_wire())

    def take(self, peer: int, gid: Gid, wire: dict[str, Any]) -> None:
        """Take a peer's base, for all duties that wait for a base of this generation."""
        base = Base.from_wire(wire)
        for name, (_, duty) in list(self._asked.items()):
            if gid in _wanted(duty) and self._use(duty, peer, GroupId(*gid), base):
                del self._asked[name]
        self._host.look_soon()

    def _use(self, duty: Duty, peer: int, gid: GroupId, base: Base) -> bool:
        """Use the base if it is what the duty wanted; files first, then the row that names them."""
        host = self._host
        replica = self._replicas.range_(gid)
        if isinstance(duty, duties.CatchUp) and (
            replica is None or replica.stopped or not replica.group.base_wanted
        ):
            return True
        if not fits(duty, gid, base, 0 if replica is None else replica.applied_index):
            return False
        names = [info.content_id for info in base.manifest]
        self._replicas.pinned.setdefault(pin_of(duty, gid), []).extend(names)
        if not host.durable.copy_files(base, host.world.hosts[peer].durable):
            return False
        match base_fetches.use_of(duty, gid, base):
            case Reinstall() if replica is not None:
                installed = partial(host.send, peer, BASE_INSTALLED, gid, None)
                self._replicas.reinstall_range(replica, base, installed)
            case Copied(operation):
                self._copied.add((operation, gid))
            case Store(puts):
                host.durable.commit(puts)
            case BeginLate(range_):
                self._replicas.begin_range(range_, base, campaign=False)
            case KeepEnd():
                self._fetched[duties.name_of(duty), gid] = base
        return True


def _wanted(duty: Duty) -> list[Gid]:
    """Return the generations for which a duty asks its peers."""
    match duty:
        case duties.CatchUp(gid) | duties.Copy(gid) | duties.Prepare(gid):
            return [gid]
        case duties.Begin(range_, late=True):
            return [(range_.range_id, range_.generation)]
        case duties.Begin(range_):
            return [(parent.range_id, parent.generation) for parent in range_.lineage]
    return []
