"""Repairs damaged segments on a simulated node: carries out `node.rules.repairing`, as a node does.

Damage is found by a read, by an entry that needs the file, by a merge, by a start, or by scrubbing.
A peer is asked for the file by message, and its bytes come at once with the answer.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...client.protocol.errors import CorruptData
from ...node.directory import meta_keys
from ...node.rules import repairing
from ...node.rules.durable_steps import CheckFile, Distrust, FetchFile, Resume, Step, Suspend
from ...node.rules.repairing import Source
from ...raft.types import GroupId
from .clock import Timer
from .member import FILE, FILE_WANTED

if TYPE_CHECKING:
    from .host import Host
    from .replica import RangeReplica
    from .replicas import Replicas

_HASH_S: Final = 0.01
_ASK_S: Final = 0.5
"""The time that a peer has to answer before the next peer is asked."""
_SCRUB_S: Final = 3.0

HERE, NONE, LATER = range(3)
"""Answers to a request for a file. LATER: the peer has the file in doubt."""


@dataclass(slots=True)
class _Doubt:
    """A file in doubt, and how far it was asked for."""

    gid: GroupId
    reason: str
    since: float
    left: list[Source] = field(default_factory=list)
    asked: Source | None = None
    timer: Timer | None = None
    all_asked: bool = True


class Repairs:
    """The repairs in one life of a process."""

    def __init__(self, host: "Host", replicas: "Replicas") -> None:
        self._host = host
        self._replicas = replicas
        self._files = host.durable.files
        self._files.suspended.clear()
        self._doubts: dict[str, _Doubt] = {}
        self._mended: set[str] = set()

    @property
    def busy(self) -> bool:
        """Whether any file is in doubt."""
        return bool(self._doubts)

    def start(self) -> None:
        """Repair the files that the start found damaged, and scrub where files may rot."""
        for gid, aside in list(self._replicas.aside.items()):
            for content_id, reason in aside.bad.items():
                self.doubt(gid, CorruptData(reason, segment=content_id))
        if "rot" in self._host.options.faults:
            self._host.later(_SCRUB_S, self._scrub)

    def _scrub(self) -> None:
        """Check all files of the bases here, and note those that are sound."""
        self._host.later(_SCRUB_S, self._scrub)
        sound: dict[str, Any] = {}
        for replica in self._replicas.ranges():
            for info in replica.store.state.durable_base.manifest:
                if info.content_id in self._files.suspended:
                    continue
                try:
                    self._files.sound(info.content_id)
                except CorruptData as error:
                    self.doubt(replica.gid, error)
                else:
                    sound[meta_keys.sound_key(info.content_id)] = True
        news = {key: True for key in sound if self._host.durable.meta.get(key) is None}
        if news:
            self._host.durable.commit(news)
        self._host.pump()

    # What finds damage.

    def step_found(self, replica: "RangeReplica", error: CorruptData) -> None:
        """React to an entry that cannot be applied without a damaged file."""
        state = replica.store.state
        files = (*state.durable_base.manifest, *state.manifest)
        bad: str = error.fields["segment"]
        steps = repairing.step_failed(replica.descriptor, files, bad, error.message)
        self._replicas.carry_out(steps)
        self.doubt(replica.gid, error)

    def doubt(self, gid: GroupId, error: CorruptData) -> None:
        """Check and repair the file that the error names, for a replica here."""
        content_id: str = error.fields["segment"]
        if content_id not in self._doubts:
            self._host.world.trace(self._host.name, "doubt", content_id[:8])
            self._doubts[content_id] = _Doubt(gid, error.message, self._host.world.clock.now)
            self._carry_out(content_id, repairing.doubt(content_id))

    # Steps.

    def _carry_out(self, content_id: str, steps: Iterable[Step]) -> None:
        """Carry out the steps. The last of them ends the doubt, unless others follow it later."""
        for step in steps:
            match step:
                case Suspend():
                    self._files.suspended.add(content_id)
                case Resume():
                    self._files.suspended.discard(content_id)
                case Distrust():
                    self._host.durable.commit({}, [meta_keys.sound_key(content_id)])
                case CheckFile():
                    self._host.later(_HASH_S, partial(self._check, content_id))
                    return
                case FetchFile():
                    self._ask_all(content_id)
                    return
                case _:
                    self._replicas.carry_out((step,))
        del self._doubts[content_id]
        waiting = {gid: aside.bad for gid, aside in self._replicas.aside.items()}
        for gid in repairing.returning(waiting, self._files.suspended.__contains__):
            self._replicas.bring_back(gid)
        self._host.look_soon()
        self._host.pump()

    def _check(self, content_id: str) -> None:
        doubt = self._doubts[content_id]
        damaged = not self._files.is_sound(content_id)
        mended = not damaged and content_id in self._mended
        self._mended.discard(content_id)
        rows = self._replicas.rows_of([doubt.gid])
        self._carry_out(content_id, repairing.checked(
            content_id, doubt.reason, damaged=damaged, mended=mended, rows=rows
        ))  # fmt: skip

    # Asking.

    def _ask_all(self, content_id: str) -> None:
        doubt, holders = self._doubts[content_id], self._replicas.holders(content_id)
        if not holders:
            self._carry_out(content_id, repairing.unneeded(content_id))
            return
        doubt.left = repairing.sources(self._host.node_id, holders)
        doubt.all_asked = True
        self._ask_next(content_id)

    def _ask_next(self, content_id: str) -> None:
        host, doubt = self._host, self._doubts[content_id]
        if doubt.left:
            doubt.asked = source = doubt.left.pop(0)
            host.send(source.peer, FILE_WANTED, source.gid, [content_id, False])
            doubt.timer = host.later(_ASK_S, partial(self._unanswered, content_id))
            return
        waited_s = host.world.clock.now - doubt.since
        if repairing.after_asking(waited_s, all_asked=doubt.all_asked) == "again":
            host.later(repairing.RETRY_S, partial(self._ask_all, content_id))
            return
        host.world.trace(host.name, "unrepaired", content_id[:8])
        held = [GroupId(d.range_id, d.generation) for d in self._replicas.holders(content_id)]
        rows = self._replicas.rows_of(held)
        self._carry_out(content_id, repairing.lost(content_id, doubt.reason, rows))

    def _unanswered(self, content_id: str) -> None:
        doubt = self._doubts[content_id]
        doubt.asked, doubt.all_asked = None, False
        self._ask_next(content_id)
        self._host.pump()

    def serve(self, peer: int, gid: GroupId, body: list[Any]) -> None:
        """Answer a peer that asks for a file, or that has got another content from here."""
        content_id, blamed = body
        if blamed:
            if not self._files.is_sound(content_id) and self._replicas.holders(content_id):
                damage = f"a peer got segment {content_id} with another content"
                self.doubt(gid, CorruptData(damage, segment=content_id))
            return
        here = HERE if content_id in self._files else NONE
        answer = LATER if content_id in self._files.suspended else here
        self._host.send(peer, FILE, gid, [content_id, answer])

    def take(self, peer: int, gid: GroupId, body: list[Any]) -> None:
        """Take a peer's answer, and the file with it."""
        content_id, answer = body
        doubt = self._doubts.get(content_id)
        if doubt is None or doubt.asked != (gid, peer):
            return
        doubt.asked = None
        if doubt.timer is not None:
            doubt.timer.cancel()
        theirs = self._host.world.hosts[peer].durable.files
        if answer == LATER:
            doubt.all_asked = False
        elif answer == HERE and theirs.is_sound(content_id):
            self._host.durable.add_file(content_id, theirs[content_id])
            self._mended.add(content_id)
            self._host.world.repairs += 1
            self._host.world.trace(self._host.name, "repaired", content_id[:8])
            self._carry_out(content_id, repairing.fetched(content_id))
            return
        elif answer == HERE:
            self._host.send(peer, FILE_WANTED, gid, [content_id, True])
        self._ask_next(content_id)
