"""PySyncObj as a consensus core: no sockets, no thread, no files, no pickle, no clock of its own.

This is the only module that imports the library's core. The engine relies on the library's source
text, so the text is checked: `syncobj.py` of 0.3.17 and no other. The seams are the names in
`SEAMS`, the constructor's transport, and the `journalFile` of the configuration, which carries the
journal object itself. tests/unit/test_raft_engine_seams.py fails when a seam moves.

Threading: all calls come from one thread. The engine calls the callbacks `send` and `role_changed`
inside these calls. The callbacks may call `show` and `hide`, nothing else.
"""

import hashlib
import logging
import math
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pysyncobj import syncobj
from pysyncobj.config import SERIALIZER_STATE, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from ..client.protocol import limits
from ..client.protocol.invariants import invariant
from .journal import EngineJournal
from .types import RaftOptions

Role = Literal["follower", "candidate", "leader"]
Packet = dict[str, Any]
"""A message of the library."""

LIBRARY_SHA256: Final = "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4"

SEAMS: Final = {
    "_SyncObj__generateRaftTimeout": "overridden: the group's rng, not the global one",
    "_SyncObj__applyLogEntries": "overridden: the group slices committed entries itself (x2.6)",
    "_SyncObj__doApplyCommand": "overridden: nothing is unpickled (hole 19)",
    "_SyncObj__parseChangeClusterRequest": "overridden: nothing is unpickled (holes 17, 19)",
    "_SyncObj__raftLastApplied": "written: at start, and as the commit index moves",
    "_SyncObj__raftElectionDeadline": "written: campaign now",
    "_SyncObj__newAppendEntriesTime": "written: send now",
    "_SyncObj__serializer": "replaced: there are no dumps to write, send or load (holes 1, 13)",
}
MODULE_SEAMS: Final = {
    "monotonicTime": "set to the group's clock at each entry",
    "createJournal": "returns the journal that the configuration carries",
    "PIPE_NOTIFIER_ENABLED": "off: two descriptors an engine, leaked on destroy (x2.7)",
}

_ROLES: Final[tuple[Role, Role, Role]] = ("follower", "candidate", "leader")
_PROPOSE_TRIES = 100


def _check_library() -> None:
    path = Path(syncobj.__file__)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != LIBRARY_SHA256:
        raise ImportError(
            f"lognode needs the unmodified pysyncobj 0.3.17, but {path} differs (sha256 "
            f"{found}); reinstall the package with: pip install --force-reinstall "
            "pysyncobj==0.3.17"
        )


def _not_about_truncation(record: logging.LogRecord) -> bool:
    # The library warns that it truncates applied entries whenever an append lies before the end of
    # the log. The library then calls deleteEntriesFrom, which does nothing here: the warning would
    # always be false.
    return not str(record.msg).startswith("truncating already-applied log entries")


_create_library_journal = syncobj.createJournal


def _create_journal(journal: object) -> object:
    return journal if isinstance(journal, EngineJournal) else _create_library_journal(journal)


def _prepare_library() -> None:
    _check_library()
    syncobj.createJournal = _create_journal
    syncobj.PIPE_NOTIFIER_ENABLED = False
    logging.getLogger(syncobj.__name__).addFilter(_not_about_truncation)


_prepare_library()


class _NoPoller:
    """A poller without any socket to poll."""

    def poll(self, timeout: float) -> None:
        """Return at once."""


class _NoDumps:
    """The library's serializer, reduced to doing nothing."""

    def checkSerializing(self) -> tuple[int, None]:
        """Report that no dump is being written."""
        return SERIALIZER_STATE.NOT_SERIALIZING, None

    def cancelTransmisstion(self, node: Node) -> None:
        """Do nothing: no dump is being sent."""

    def getTransmissionData(self, node: Node) -> None:
        """Return None: there is no dump. The packet that says so never leaves (hole 1)."""


class _Wire(Transport):  # type: ignore[misc]  # the library has no types
    """The library's transport, which sends through `send` and receives from the group."""

    def __init__(self, send: Callable[[int, Packet], None]) -> None:
        super().__init__(None, None, ())
        self._send = send

    def send(self, node: Node, message: Packet) -> bool:
        self._send(node.id, message)
        return True

    def show(self, node: Node) -> None:
        self._onNodeConnected(node)

    def hide(self, node: Node) -> None:
        self._onNodeDisconnected(node)

    def deliver(self, node: Node, message: Packet) -> None:
        self._onMessageReceived(node, message)

    def end(self) -> None:
        """Forget the library's object and the group, which hold this transport."""
        super().__init__(None, None, ())
        self._send = _drop


def _drop(peer: int, message: Packet) -> None:
    """Send nothing."""


def _ignore(*_: object) -> None:
    """React to nothing."""


class _Peer(int, Node):  # type: ignore[misc]  # the library has no types
    """A node of the library that is its own id. The library's nodes hash and compare in Python."""

    id = property(int)


class _Core(syncobj.SyncObj):  # type: ignore[misc]  # the library has no types
    """The library's object with the overridden seams."""

    def __init__(
        self, node: Node, others: list[Node], conf: SyncObjConf, wire: _Wire, rng: random.Random
    ) -> None:
        self._rng = rng  # the base class draws a timeout in its constructor
        super().__init__(node, others, conf, transport=wire)
        self._poller = _NoPoller()
        self._SyncObj__serializer = _NoDumps()

    def __dir__(self) -> list[str]:
        """Return no names: a constructor searches all names, twice, for replicated methods."""
        return []

    def _SyncObj__generateRaftTimeout(self) -> float:
        return self._rng.uniform(self.conf.raftMinTimeout, self.conf.raftMaxTimeout)

    def _SyncObj__applyLogEntries(self) -> bool:
        """Return False, also when the commit index has moved: the group tells the peers."""
        self._SyncObj__raftLastApplied = self.raftCommitIndex
        return False

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        invariant(False, "the engine applies a command")

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> None:
        invariant(False, "the engine looks for a membership change")


class Engine:
    """Elections, replication and the commit rule of one member. Peers are hidden until shown."""

    def __init__(
        self,
        *,
        node_id: int,
        members: Sequence[int],
        journal: EngineJournal,
        clock: Callable[[], float],
        rng: random.Random,
        options: RaftOptions,
        fallback_s: float,
        send: Callable[[int, Packet], None],
        role_changed: Callable[[Role], None],
    ) -> None:
        """Create the engine of one member.

        A leader steps down after `fallback_s` seconds without hearing a majority (hole 20).
        """
        self._journal = journal
        self._clock = clock
        self._role_changed = role_changed
        self._nodes = {member: _Peer(member) for member in members}
        self._wire = _Wire(send)
        self._shown: set[int] = set()
        self.role: Role = "follower"
        """The role of this member in the current term."""
        conf = SyncObjConf(
            autoTick=False,
            dynamicMembershipChange=False,
            appendEntriesUseBatch=False,
            appendEntriesBatchSizeBytes=_append_bytes(options),
            appendEntriesPeriod=options.heartbeat_s,
            raftMinTimeout=options.election_timeout_min_s,
            raftMaxTimeout=options.election_timeout_max_s,
            connectionTimeout=math.inf,
            leaderFallbackTimeout=fallback_s,
            commandsWaitLeader=False,
            useFork=False,
            logCompactionMinEntries=sys.maxsize,
            logCompactionMinTime=math.inf,
            journalFile=journal,
            onStateChanged=self._on_state_changed,
        )
        syncobj.monotonicTime = clock
        others = [node for member, node in self._nodes.items() if member != node_id]
        self._core = _Core(self._nodes[node_id], others, conf, self._wire, rng)
        self._core._SyncObj__raftLastApplied = journal.getRaftCommitIndex()

    def _on_state_changed(self, _old: int, new: int) -> None:
        self.role = _ROLES[new]
        self._role_changed(self.role)

    @property
    def term(self) -> int:
        """The current term."""
        term: int = self._core.raftCurrentTerm
        return term

    @property
    def leader(self) -> int | None:
        """The last known leader of the current term."""
        node: _Peer | None = self._core._getLeader()
        return None if node is None else node.id

    def shown(self, peer: int) -> bool:
        """Return whether the engine sends to this peer."""
        return peer in self._shown

    def show(self, peer: int) -> None:
        """Let the engine send to this peer from now on."""
        self._shown.add(peer)
        self._wire.show(self._nodes[peer])

    def hide(self, peer: int) -> None:
        """Stop sending to this peer. Inside `send` this ends the engine's send loop (x21)."""
        self._shown.discard(peer)
        self._wire.hide(self._nodes[peer])

    def deliver(self, peer: int, message: Packet) -> None:
        """Deliver a message of the library to the engine."""
        syncobj.monotonicTime = self._clock
        self._wire.deliver(self._nodes[peer], message)

    def tick(self) -> None:
        """Run due elections, the commit rule and due heartbeats."""
        syncobj.monotonicTime = self._clock
        self._core.doTick(0.0)

    def end(self) -> None:
        """Take no part any more: nothing is sent, and `role_changed` is not called.

        The term, the leader and the role stay as they are. The engine, the library's object and the
        group no longer hold each other, so that all are freed without a garbage collection.
        """
        self._wire.end()
        self._core.conf.onStateChanged = None
        self._role_changed = _ignore

    def send_now(self) -> None:
        """As leader: send each shown peer the entries not yet sent to it, or a heartbeat."""
        self._core._SyncObj__newAppendEntriesTime = -math.inf
        self.tick()

    def campaign(self) -> None:
        """Start an election in the next term now, regardless of the timers.

        The engine starts an election only while it sees a peer, so all peers are shown for this one
        tick.
        """
        peers = [member for member in self._nodes if member != self._core.selfNode.id]
        for peer in peers:
            self.show(peer)
        self._core._SyncObj__raftElectionDeadline = -math.inf
        self.tick()
        for peer in peers:
            self.hide(peer)

    def step_up(self, peer: int, term: int) -> None:
        """Move to a higher term that `peer` was seen in, as a follower without a vote.

        The engine gets a vote request that can never be granted: no other message does only this.
        """
        self.deliver(
            peer,
            {"type": "request_vote", "term": term, "last_log_term": -1, "last_log_index": -1},
        )

    def propose(self, command: bytes) -> int:
        """As leader: append and send the command, and return its index."""
        syncobj.monotonicTime = self._clock
        before = self._journal.last_index
        self._core._applyCommand(command, None)
        for _ in range(_PROPOSE_TRIES):
            # The library skips its queue when the clock jumps between two of its readings.
            self._core._checkCommandsToApply()
            if self._journal.last_index > before:
                break
        invariant(self._journal.last_index == before + 1, "the engine takes no command")
        return before + 1


def _append_bytes(options: RaftOptions) -> int:
    # The library cuts an entry of this size or more into pickled pieces (hole 28).
    return max(options.append_bytes_max, limits.entry_bytes_max + 1)
