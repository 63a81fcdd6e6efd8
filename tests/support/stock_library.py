"""The consensus library as it comes, one member of it, among peers that the test plays.

Nothing of lognode's is between the test and the library, so that what a hole of it does can be
shown: the reason for the guard, the journal and the rules of `raft/`.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pysyncobj import syncobj
from pysyncobj.config import SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

Packet = dict[str, Any]
Outcome = tuple[object, object]

NO_OP = b"\x01"
REGULAR = b"\x00"


class _Wire(Transport):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(None, None, ())
        self.sent: list[tuple[str, Packet]] = []

    def send(self, node: Node, message: Packet) -> bool:
        self.sent.append((node.id, message))
        return True

    def addNode(self, node: Node) -> None:
        """A member was added."""

    def show(self, node: Node) -> None:
        self._onNodeConnected(node)

    def deliver(self, node: Node, message: Packet) -> None:
        self._onMessageReceived(node, message)


class Stock(syncobj.SyncObj):  # type: ignore[misc]
    """Member "1" of a group; what it applies is in `applied`."""

    def __init__(
        self,
        *,
        members: int = 3,
        journal: Path | None = None,
        dump: Path | None = None,
        dynamic: bool = False,
        batch_bytes: int = 1 << 16,
        apply: Callable[[bytes], None] = lambda command: None,
    ) -> None:
        self.wire = _Wire()
        self.peers = [Node(str(number)) for number in range(2, members + 1)]
        self.applied: list[bytes] = []
        self._on_apply = apply
        conf = SyncObjConf(
            autoTick=False,
            dynamicMembershipChange=dynamic,
            appendEntriesUseBatch=False,
            appendEntriesBatchSizeBytes=batch_bytes,
            connectionTimeout=math.inf,
            commandsWaitLeader=False,
            useFork=False,
            logCompactionMinEntries=1 << 60,
            logCompactionMinTime=math.inf,
            journalFile=None if journal is None else str(journal),
            fullDumpFile=None if dump is None else str(dump),
        )
        super().__init__(Node("1"), self.peers, conf, nodeClass=Node, transport=self.wire)

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        if command[:1] == REGULAR:
            self.applied.append(command[1:])
            self._on_apply(command[1:])

    @property
    def log(self) -> Any:
        """The library's journal."""
        return self._SyncObj__raftLog

    @property
    def last_index(self) -> int:
        """The last entry of its log."""
        return int(self.log[-1][1])

    def append(
        self, leader: int, term: int, prev: tuple[int, int], *commands: bytes, commit: int = 1
    ) -> Packet:
        """What a peer that leads sends, and the answer to it."""
        entries = [(c, prev[0] + 1 + n, term) for n, c in enumerate(commands)]
        return self.hear(
            leader,
            {
                "type": "append_entries",
                "term": term,
                "commit_index": commit,
                "entries": entries,
                "prevLogIdx": prev[0],
                "prevLogTerm": prev[1],
            },
        )

    def hear(self, peer: int, message: Packet) -> Packet:
        """A message of a peer arrives; the last thing sent back since."""
        before = len(self.wire.sent)
        self.wire.deliver(self.peers[peer - 2], message)
        sent = self.wire.sent[before:]
        return sent[-1][1] if sent else {}

    def lead(self) -> None:
        """Be elected by peer 2, and commit the first entry of the term with it."""
        for peer in self.peers:
            self.wire.show(peer)
        self._SyncObj__raftElectionDeadline = -math.inf
        self.doTick(0.0)
        self.hear(2, {"type": "response_vote", "term": self.raftCurrentTerm})
        self.acked(2)

    def acked(self, peer: int) -> None:
        """A peer has everything."""
        answer = {"success": True, "reset": False, "next_node_idx": self.last_index + 1}
        self.hear(peer, {"type": "next_node_idx", **answer})
        self.doTick(0.0)

    def propose(self, command: bytes, outcomes: list[Outcome] | None = None) -> None:
        """Queue a command and let it into the log; its outcome goes to the list."""
        callback = None if outcomes is None else lambda *outcome: outcomes.append(outcome)
        self._applyCommand(command, callback)
        self._checkCommandsToApply()


@contextlib.contextmanager
def library_time(step_s: float = 1e-4) -> Iterator[list[float]]:
    """The library's clock, at each look a little later; the list's item can be moved on."""
    real, now = syncobj.monotonicTime, [1000.0]

    def creep() -> float:
        now[0] += step_s
        return now[0]

    syncobj.monotonicTime = creep
    try:
        yield now
    finally:
        syncobj.monotonicTime = real
