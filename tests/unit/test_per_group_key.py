"""What a key of a consumer group costs in Python, on the leader, on a member and in the client.

Time does not count: calls and lines of Python are counted (`call_counts`), each key with one entry,
which is the dearest case. A change that lowers a figure should lower its bound.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from call_counts import Counting
from group_leaders import GroupView
from hot_path import Costs, costs

from lognode.client.cluster import Body
from lognode.client.group_held import Held
from lognode.client.protocol import limits
from lognode.client.protocol.records import encode_batch
from lognode.node.dispatch.dispatcher import Dispatcher, Options
from lognode.node.dispatch.leases import Lease
from lognode.node.dispatch.settling import Settling
from lognode.node.dispatch.supply import KeyRead
from lognode.statemachine import commands
from lognode.statemachine.groups.group import Group
from lognode.statemachine.groups.selection import Selection
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segments import SegmentStore

pytestmark = pytest.mark.slow
FEW, MANY = 512, 2_048
GROUP, ANN = 7, 11
SPAN: Final = b"a", b"z"
SLACK: Final = 0.5
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "node": (56.2, 171.5),
    "statemachine": (1.3, 5.8),
    "client": (38, 136),
}
"""Calls and lines for each key, on the leader with all its parts and in the client."""


class Range:
    """A range with the leader of a group, and entries of `count` keys."""

    def __init__(self, root: Path, count: int) -> None:
        (root / "files").mkdir(parents=True)
        self._store = SegmentStore(root / "files")
        self._state = RangeState(start=SPAN[0], end=SPAN[1], store=self._store)
        self._do(commands.LEVEL, 4)
        keys = [b"k%05d" % at for at in range(count)]
        self._do(commands.APPEND, [
            encode_batch(keys, [b"v" * 128] * count, producer=0, epoch=1, low=1, numbers=1)
        ])  # fmt: skip
        self._do(commands.GROUP_OPEN, [GROUP, 1, False])
        self.group = self._state.groups.by_id[GROUP]
        self._dispatcher = Dispatcher(
            GROUP, self.group, SPAN, Options(30_000, 5, Selection()), now_ms=0, reclaims=False
        )

    def close(self) -> None:
        self._store.close()

    def _do(self, kind: int, payload: object) -> Mapping[str, Any]:
        command = commands.proposal(kind, 1, payload)
        (reply,) = (
            self._state.apply(
                self._state.applied_index + 1, 1, commands.encode(kind, 1, payload)
            ).replies
            or ()
        )
        assert command
        assert reply["status"] == "ok"
        return reply

    def drain(self) -> int:
        """Let a consumer work on all keys; return how many there were."""
        leader, now, done = self._dispatcher, 0, 0
        leader.join(ANN, now)
        while True:
            now += 5
            while (read := leader.next_read(self._state.next_seq)) is not None:
                assert not isinstance(read, KeyRead)
                page = self._state.read_span(
                    read.start, read.end, read.from_seq, read.end_seq, limit=read.limit,
                    bytes_max=read.bytes_max,
                )  # fmt: skip
                leader.take_page(read, page, now)
            found = leader.take(ANN, 128, limits.MIB, now)
            if not found.keys:
                return done
            done += len(found.keys)
            rows = [
                (key, token, seq + 1)
                for key, token, seq in zip(found.keys, found.tokens, found.seqs, strict=True)
            ]
            leader.settle(ANN, rows, (), (), (), Settling(lambda: None), now_ms=now)
            for proposal in leader.proposals(self._state.next_seq, now):
                self._do(proposal.kind, proposal.payload)
                leader.applied(proposal, (), (), now)


class Apart(GroupView):
    """Leaders whose work does not count for the consumer that asks them."""

    async def ask(self, *asked: Any, **named: Any) -> Body:
        return await asyncio.create_task(super().ask(*asked, **named))


def on_a_leader(root: Path) -> Costs:
    runs = {}
    for count in (FEW, MANY):
        counting, range_ = Counting(), Range(root / f"{count}", count)
        with counting.counted() as found:
            assert range_.drain() == count
        assert range_.group.position(b"k00001") == 3
        range_.close()
        runs[count] = [found]
    return costs(runs[FEW], runs[MANY], MANY - FEW)


def in_the_client(_: Path) -> Costs:
    async def drained(count: int) -> Any:
        view, counting = Apart(), Counting()
        for at in range(count):
            view.append(b"k%05d" % at, b"v" * 128)
        async with view.consumer(keys_max=1_024, lease_ms=30_000) as consumer:
            with counting.counted() as found:
                for _ in range(count):
                    batch = await anext(consumer)
                    await batch.ack(wait=False)
                await consumer.flush()
        return [found]

    return costs(asyncio.run(drained(FEW)), asyncio.run(drained(MANY)), MANY - FEW)


WHERE: Final[Mapping[str, Callable[[Path], Costs]]] = {
    "node": on_a_leader, "statemachine": on_a_leader, "client": in_the_client,
}  # fmt: skip


def is_over(found: Costs, part: str) -> bool:
    (calls, lines), (calls_max, lines_max) = found.parts.get(part, (0, 0)), BOUNDS[part]
    return calls > calls_max + SLACK or lines > lines_max + SLACK


@pytest.mark.parametrize("part", BOUNDS)
def test_a_key_takes_no_more_python_than_its_bound(tmp_path: Path, part: str) -> None:
    found = WHERE[part](tmp_path)
    print(found.table())
    assert not is_over(found, part), (
        f"a key takes more than {BOUNDS[part]}; see the functions above"
    )


class Mutation(NamedTuple):
    """A function that does more for each key than today."""

    part: str
    owner: Any
    name: str


@pytest.mark.parametrize(
    "mutation",
    [
        Mutation("node", Lease, "acked"),
        Mutation("statemachine", Group, "ack"),
        Mutation("client", Held, "acked"),
    ],
    ids=lambda mutation: mutation.part,
)
def test_more_python_for_each_key_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutation: Mutation
) -> None:
    original = getattr(mutation.owner, mutation.name)

    def slower(*arguments: Any) -> Any:
        keys = arguments[1] if mutation.part == "statemachine" else (1,)
        [None for _ in keys]
        return original(*arguments)

    monkeypatch.setattr(mutation.owner, mutation.name, slower)
    assert is_over(WHERE[mutation.part](tmp_path), mutation.part)
