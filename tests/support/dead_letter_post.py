"""A group that parks keys, leaders that copy the parked entries, and a log that takes the copies.

The states of both logs are real. What is proposed is applied at once, or is lost with its leader.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from group_model import GROUP, GroupModel

from lognode.client.protocol.errors import LognodeError, LogNotFound, NotLeader
from lognode.client.protocol.types import Entry
from lognode.node.metrics import Metrics
from lognode.node.serving.dead_letters import DeadLetters, Post
from lognode.partitions.groups import GroupRecord
from lognode.raft.types import GroupId
from lognode.statemachine import commands
from lognode.statemachine.groups import forms
from lognode.statemachine.groups.group import Group
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.spans import has

RECORD = GroupRecord(
    group_id=GROUP, log_id=1, name="g", prefix=b"", separator=b"", patterns=(), max_deliveries=5,
    on_dead="dead_letter:dead", lease_ms=30_000, begin="earliest", begin_ms=0, waits=False,
    created_ms=0,
)  # fmt: skip
Step = Callable[[], Any]


class Dead:
    """The log of dead letters: ranges by their first keys."""

    def __init__(self, root: Path, starts: tuple[bytes, ...] = (b"",)) -> None:
        root.mkdir()
        self.store = SegmentStore(root)
        bounds = (*starts, None)
        self.ranges = {
            100 + at: RangeState(start=start, end=bounds[at + 1], store=self.store)
            for at, start in enumerate(starts)
        }
        self.exists = True
        self.sent = 0
        self.before: dict[int, Step] = {}
        """By range, what happens before an append is applied."""
        self.after: dict[int, Step] = {}
        """By range, what happens after that, before the answer."""

    def metadata(self) -> Any:
        return SimpleNamespace(
            logs={1: SimpleNamespace(name="orders")}, log_named=self._named,
            ranges_of=lambda _: list(self.ranges), range_at=self._range_at,
        )  # fmt: skip

    def _named(self, name: str) -> Any:
        if not self.exists:
            raise LogNotFound(f"log {name} does not exist", log=name)
        return SimpleNamespace(log_id=2)

    def _range_at(self, _: int, key: bytes) -> Any:
        return next(
            SimpleNamespace(range_id=range_id)
            for range_id, state in self.ranges.items()
            if has((state.start, state.end), key)
        )

    async def send(self, range_: Any, batch: bytes) -> None:
        """Implements `OwnAppends.send`."""
        self.sent += 1
        await asyncio.sleep(0)
        await _ran(self.before.get(range_.range_id))
        state = self.ranges[range_.range_id]
        command = commands.encode(commands.APPEND, 1, [batch])
        (reply,) = state.apply(state.applied_index + 1, 1, command).replies or ()
        assert reply["status"] == "ok", reply
        await _ran(self.after.get(range_.range_id))

    def entries(self, key: bytes) -> list[Entry]:
        return next(
            state.scan(key, limit=99, bytes_max=1 << 20).entries()
            for state in self.ranges.values()
            if has((state.start, state.end), key)
        )


async def _ran(step: Step | None) -> None:
    found = None if step is None else step()
    if found is not None:
        await found


class Leader(SimpleNamespace):
    """The leading member of a range of the log, with its dead letters."""

    def __init__(self, model: GroupModel, state: RangeState, dead: Dead, gid: GroupId) -> None:
        super().__init__(state=state, gid=gid, stopped=False, leads=True)
        self.model = model
        self.proposed: list[tuple[int, Any]] = []
        self.before: dict[int, Step] = {}
        """By kind, what happens before a command is applied."""
        self.after: dict[int, Step] = {}
        self.error: LognodeError | None = None
        self.fence = self.group.fence
        self.metrics = Metrics()
        self.letters = DeadLetters(
            cast("Any", self), RECORD, self.group,
            Post(dead.metadata, cast("Any", dead), self.metrics, lambda *_: None),
            parked=self.parked, is_over=lambda: self.is_over, on_moved=self._moved,
            on_ended=self._ended, on_broken=_broken,
        )  # fmt: skip

    @property
    def group(self) -> Group:
        return self.state.groups.by_id[GROUP]

    @property
    def is_over(self) -> bool:
        return not self.leads or self.group.fence != self.fence

    def parked(self) -> list[bytes]:
        return [key for key, row in self.group.rows.items() if row.parked]

    def stop(self) -> None:
        """The leader is killed: nothing that it does from now on has any effect."""
        self.leads = False
        self.letters.stop()

    async def propose_and_wait(self, kind: int, payload: Any) -> dict[str, Any]:
        """Implements `RangeReplica.propose_and_wait`."""
        await asyncio.sleep(0)
        await _ran(self.before.get(kind))
        self._check()
        commands.proposal(kind, 1, payload)
        self.proposed.append((kind, payload))
        reply = self.model.do(self.state, kind, payload)
        await _ran(self.after.get(kind))
        self._check()
        return reply

    def _check(self) -> None:
        if not self.leads:
            raise NotLeader("the leader was killed", hint=None)

    def _moved(self) -> None:
        self.letters.stir()

    def _ended(self, error: LognodeError) -> None:
        self.error = error
        self.stop()


def park(model: GroupModel, state: RangeState, key: bytes, error: str = "broken") -> None:
    """The next entry of a key failed too often, or was rejected."""
    group = state.groups.by_id[GROUP]
    note = [key, group.position(key), 3, forms.REJECT, error]
    assert model.do(state, commands.GROUP_NOTE, [GROUP, group.fence, [note], ""])["status"] == "ok"


def lead(model: GroupModel, state: RangeState, dead: Dead, gid: GroupId | None = None) -> Leader:
    """Another leader of a range."""
    model.open(state, 1, False)
    return Leader(model, state, dead, gid or GroupId(1, 1))


async def until(holds: Callable[[], Any]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110  # states have no events
            await asyncio.sleep(0.001)


def _broken(error: BaseException) -> None:
    raise AssertionError from error
