"""A replica of the controller group on a simulated host, and the work of its leader.

The state machine is the real Metadata, the decisions are those of `partitions.change`. The rest is
a node's work: reports arrive, steps are proposed one set at a time, the changed image goes to every
node, and an image replaces the log from time to time. The last record of a generation names the
members of the next. A member that has applied this record begins the next generation and pushes it
to the others (x29).
"""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgpack

from ...client.protocol.errors import LognodeError
from ...node.directory import meta_keys
from ...node.rules import heartbeats
from ...node.rules.flushing import cut_log
from ...node.rules.heartbeats import Told, has_news, is_heard
from ...partitions import commands
from ...partitions.change import next_steps
from ...partitions.facts import Facts
from ...partitions.levels import Program
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor
from ...raft.group_log import GroupLog
from ...raft.types import LogEntry
from .member import NEWS, Member
from .violation import Violation

if TYPE_CHECKING:
    from .host import Host

STEP_S: Final = 0.2
_CHECKPOINT_ENTRIES: Final = 24
_STEP_LASTS_S: Final = 3.0


class ControllerReplica(Member):
    """One member of the controller group; its leader does the controller's work."""

    def __init__(
        self,
        host: "Host",
        descriptor: Descriptor,
        log: GroupLog,
        metadata: Metadata,
        applied: tuple[int, int],
    ) -> None:
        self.metadata = metadata
        self.facts = Facts()
        self._applied = applied
        self._checkpointed = applied[0]
        self._leads_since: float | None = None
        self._open_until = 0.0
        self._told = (0, 0)
        super().__init__(host, descriptor, log, applied[0])

    @classmethod
    def stored(
        cls, host: "Host", descriptor: Descriptor, log: GroupLog, row: dict[str, Any]
    ) -> "ControllerReplica":
        """Return the replica whose row is stored."""
        index, term = row["applied"]
        return cls(host, descriptor, log, Metadata.from_image(row["image"]), (index, term))

    @property
    def applied_index(self) -> int:
        return self._applied[0]

    @property
    def is_sealed(self) -> bool:
        return self.metadata.sealed

    def state_hash(self) -> bytes:
        """The hash of the whole image: all members hold the same image at the same index."""
        return hashlib.blake2b(msgpack.packb(self.metadata.image()), digest_size=16).digest()

    def apply(self, entry: LogEntry) -> tuple[bytes, Sequence[Any]]:
        self._applied = (entry.index, entry.term)
        command = commands.decode(entry.command)
        if command is None:
            return self.state_hash(), ()
        was_sealed = self.metadata.sealed
        answer = self.metadata.apply(entry.index, entry.term, command)
        if was_sealed and "ok" in answer:
            raise Violation("x29", "a command behind the controller's last record is applied",
                            index=entry.index)  # fmt: skip
        if "ok" in answer and command["op"] == commands.DECIDE:
            self.host.world.decided(self.metadata, command["operation"])
        return self.state_hash(), (answer,)

    def drained(self) -> None:
        leads = self.leads and self.group.ready_to_lead
        if not leads:
            self._leads_since = None
        elif self._leads_since is None:
            self._leads_since = self.host.world.clock.now
            self._open_until = 0.0
            self.facts = Facts()
        self.host.view.follow(self.metadata)
        if leads:
            self._push_news()
        if self.applied_index - self._checkpointed >= _CHECKPOINT_ENTRIES:
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Make the image at the applied index durable, then cut the log behind it."""
        key = meta_keys.controller_key(self.gid.generation)
        self.host.durable.commit({key: self.row()}, level=self.metadata.feature_level)
        self._checkpointed = self.applied_index
        self.host.disk.boundary()
        for _, last in cut_log(self.gid, self.log, self.applied_index, self.applied_index):
            self.log.cut_front(last)
        self.host.reclaim()

    def row(self) -> dict[str, Any]:
        """Return the row that meta stores."""
        return controller_row(self.descriptor, self.metadata, self._applied)

    # As leader.

    def step(self) -> None:
        """Propose the next commands, unless some are still under way."""
        now = self.host.world.clock.now
        if self._leads_since is None or now < self._open_until or self.is_sealed:
            return
        self.facts.hear(self.host.node_id, now)
        heartbeats.keep(self.facts, self.host.node_id, Told(self.host.damages()))
        options = self.host.options
        steps = next_steps(
            self.metadata,
            self.facts,
            now,
            now - self._leads_since,
            options.repair_after_seconds,
            dead_after_s=options.dead_after_seconds,
        )
        waiting = len(steps)

        def settled(_: Sequence[Any] | None) -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                self._open_until = 0.0
                self.host.later(0.0, self.step)

        if steps:
            self._open_until = now + _STEP_LASTS_S
            for command in steps:
                dated = commands.dated(command, int(now * 1000))
                self.propose(commands.encode(dated), settled)
            self.host.pump()

    def ask(self, command: dict[str, Any]) -> None:
        """Take an operator's command; it may be refused, or lost with this leader."""
        self.host.now(lambda: self.propose(commands.encode(command), lambda _: None))
        self.host.now(self.host.pump)

    def take_report(self, node: int, report: dict[str, Any]) -> None:
        """Take a member's report on an operation."""
        if self._leads_since is None:
            return
        try:
            self.facts.take(node, report, self.host.world.clock.now)
        except LognodeError as error:
            raise Violation("protocol", "a malformed report", node=node, error=error) from None
        self.host.later(0.0, self.step)

    def take_heartbeat(self, node: int, has: tuple[int, int], told: Told, program: Program) -> None:
        """Note that a node is alive, and what it reports; send the image if the node's is older."""
        if self._leads_since is None:
            return
        if is_heard(node, self.metadata):
            self.facts.hear(node, self.host.world.clock.now)
            heartbeats.keep(self.facts, node, told)
            self.host.view.programs[node] = program
        self._send_news(node, news=has_news(self.metadata, has))

    def _send_news(self, node: int, *, news: bool) -> None:
        programs = [[number, list(told)] for number, told in self.host.view.programs.items()]
        image = self.metadata.image() if news else None
        self.host.send(node, NEWS, self.gid, [image, programs])

    def _push_news(self) -> None:
        """Answer waiting heartbeats with the image, as soon as it has changed."""
        version = self.host.view.version
        if version != self._told:
            self._told = version
            for peer in self.host.links:
                self._send_news(peer, news=True)
            self.host.later(0.0, self.step)


def controller_row(
    descriptor: Descriptor, metadata: Metadata, applied: tuple[int, int]
) -> dict[str, Any]:
    """Return a controller replica's row."""
    return {
        "descriptor": descriptor.to_wire(),
        "applied": list(applied),
        "image": metadata.image(),
        "damaged": None,
    }
