"""The end of a turn: who is pumped when, what leaves before a WAL round, and what waits for one."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lognode.client.protocol.errors import RemoteProtocolError
from lognode.node.metrics import Metrics
from lognode.node.replicas import rounds as rounds_module
from lognode.node.replicas.rounds import Rounds
from lognode.node.runtime import wal_writer
from lognode.node.runtime.surroundings import Surroundings
from lognode.node.runtime.sync_thread import SyncThread
from lognode.node.runtime.turn_ends import TurnEnds
from lognode.node.runtime.turn_time import TimedLoop
from lognode.node.runtime.wal_writer import CompiledWriter, WalWriter
from lognode.raft.group_log import GroupLog
from lognode.raft.os_disk import OsDisk
from lognode.raft.types import GroupId
from lognode.raft.wal import Wal
from lognode.raft.wal_recovery import recover


@dataclass(eq=False)
class Pumped:
    """A replica that notes when it is pumped, and wakes itself or others."""

    name: str
    turn: "Turn"
    then: list["Pumped"] = field(default_factory=list)

    def pump(self) -> None:
        self.turn.order.append(self.name)
        for replica in self.then:
            self.turn.turns.wake(replica)
        self.then = []


class Turn:
    def __init__(self, *, is_alone: Callable[[], bool] = lambda: False) -> None:
        self.order: list[str] = []
        self.broken: list[BaseException] = []
        self.proposing: list[Pumped] = []
        self.turns = TurnEnds(
            propose=self.propose, flush=lambda: self.order.append("flush"),
            begin_round=lambda: self.order.append("round"), on_broken=self.broken.append,
            is_alone=is_alone,
        )  # fmt: skip

    def propose(self) -> None:
        self.order.append("propose")
        for replica in self.proposing:
            self.turns.wake(replica)
        self.proposing = []

    def replicas(self, names: str) -> list[Pumped]:
        return [Pumped(name, self) for name in names]


def test_work_woken_in_a_turn_runs_in_one_pass() -> None:
    async def main() -> None:
        turn = Turn()
        a, b, c = turn.replicas("abc")
        turn.turns.wake(a)
        turn.turns.wake(b)
        turn.turns.wake(a)
        turn.proposing = [c]
        assert turn.order == []
        await asyncio.sleep(0)
        assert turn.order == ["a", "b", "propose", "c", "flush", "round"]
        await asyncio.sleep(0)
        assert turn.order[6:] == [], "nothing woke anybody since"

    asyncio.run(main())


def test_an_unfinished_group_is_pumped_after_a_turn_of_the_other_groups() -> None:
    async def main() -> None:
        turn = Turn()
        a, b, c = turn.replicas("abc")
        a.then = [a]
        turn.proposing = [b]
        turn.turns.wake(a)
        await asyncio.sleep(0)
        assert turn.order == ["a", "propose", "b", "flush", "round"]
        asyncio.get_running_loop().call_soon(turn.turns.wake, c)
        await asyncio.sleep(0)
        assert turn.order[5:] == ["a", "propose", "flush", "round"]
        await asyncio.sleep(0)
        assert turn.order[9:] == ["c", "propose", "flush", "round"]

    asyncio.run(main())


def test_a_call_that_is_a_turn_ends_with_it() -> None:
    async def main() -> None:
        turn = Turn()
        (a,) = turn.replicas("a")
        turn.turns.turn(lambda: turn.turns.wake(a))
        assert turn.order == ["a", "propose", "flush", "round"]
        await asyncio.sleep(0)
        assert len(turn.order) == 4

    asyncio.run(main())


@pytest.mark.parametrize("alone", [True, False])
def test_a_turn_with_a_single_event_ends_with_the_event(alone: bool) -> None:
    async def main() -> None:
        turn = Turn(is_alone=lambda: alone)
        (a,) = turn.replicas("a")

        def take() -> None:
            turn.turns.wake(a)
            turn.order.append("taken")

        turn.turns.alone(take)
        whole = ["taken", "a", "propose", "flush", "round"]
        assert turn.order == (whole if alone else ["taken"])
        await asyncio.sleep(0)
        assert turn.order == whole

    asyncio.run(main())


def test_an_event_without_work_has_no_end_of_a_turn() -> None:
    async def main() -> None:
        turn = Turn(is_alone=lambda: True)
        turn.turns.alone(lambda: None)
        await asyncio.sleep(0)
        assert turn.order == []
        turn.turns.wake(*turn.replicas("a"))  # later work is not forgotten
        await asyncio.sleep(0)
        assert turn.order == ["a", "propose", "flush", "round"]

    asyncio.run(main())


def test_the_work_before_an_error_of_an_event_is_done() -> None:
    async def main() -> None:
        turn = Turn(is_alone=lambda: True)

        def take() -> None:
            turn.turns.wake(*turn.replicas("a"))
            raise RemoteProtocolError("a frame that is not valid")

        for times in (1, 2):
            with pytest.raises(RemoteProtocolError):
                turn.turns.alone(take)
            assert turn.order == ["a", "propose", "flush", "round"] * times

    asyncio.run(main())


def test_an_event_leaves_a_scheduled_end_of_the_turn_where_it_is() -> None:
    async def main() -> None:
        turn = Turn(is_alone=lambda: True)
        a, b = turn.replicas("ab")
        turn.turns.wake(a)
        turn.turns.alone(lambda: turn.turns.wake(b))
        assert turn.order == []
        await asyncio.sleep(0)
        assert turn.order == ["a", "b", "propose", "flush", "round"]

    asyncio.run(main())


def test_the_loop_tells_how_many_events_began_its_turn() -> None:
    async def main() -> None:
        is_alone = Surroundings().is_alone()
        loop = asyncio.get_running_loop()
        pairs = [socket.socketpair() for _ in range(2)]
        heard: list[bool] = []

        def hear(side: socket.socket) -> None:
            side.recv(1)
            heard.append(is_alone())

        for here, _ in pairs:
            here.setblocking(False)
            loop.add_reader(here, hear, here)
        for count in (1, 2):
            for _, there in pairs[:count]:
                there.send(b"x")
            await until(lambda count=count: len(heard) == count)  # type: ignore[misc]
            assert heard == [count == 1] * count
            heard.clear()
        for here, there in pairs:
            loop.remove_reader(here)
            here.close()
            there.close()

    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        runner.run(main())


def test_a_bug_at_the_end_of_a_turn_ends_the_node() -> None:
    async def main() -> None:
        turn = Turn()
        (a,) = turn.replicas("a")
        error = RuntimeError("a bug")

        def broken() -> None:
            raise error

        turn.turns = TurnEnds(
            propose=broken, flush=broken, begin_round=broken, on_broken=turn.broken.append
        )
        turn.turns.wake(a)
        await asyncio.sleep(0)
        assert turn.broken == [error]

    asyncio.run(main())


@dataclass
class Disk:
    """A WAL on a real disk with the rounds of a node, and a group in it."""

    wal: Wal
    rounds: Rounds
    log: GroupLog
    failures: list[BaseException]
    on_flush: Callable[[], None] = lambda: None

    def append(self, index: int) -> None:
        self.log.append(index, 1, b"\x00%d" % index)
        self.rounds.kick()


def with_disk(
    tmp_path: Path,
    test: Callable[[Disk], Awaitable[None]],
    on_file_begun: Callable[[], None] = lambda: None,
) -> int:
    """Runs the test with each writer; the commit index that a process which starts after a kill
    finds, the same with both."""
    found = {
        run_with_disk(tmp_path / name, test, on_file_begun, compiled=name == "compiled")
        for name in ("python", "compiled") if name == "python" or wal_writer.compiled is not None
    }  # fmt: skip
    (commit,) = found
    return commit


def run_with_disk(
    tmp_path: Path,
    test: Callable[[Disk], Awaitable[None]],
    on_file_begun: Callable[[], None],
    *,
    compiled: bool,
) -> int:
    tmp_path.mkdir()
    gid = GroupId(1, 1)

    async def main() -> None:
        files = OsDisk(tmp_path)
        wal = Wal.open(files, entropy=bytes, file_bytes=1 << 20)
        thread = SyncThread("wal")
        failures: list[BaseException] = []
        writer = WalWriter(wal, thread)
        if compiled:
            writer = CompiledWriter(
                wal, thread, files, on_failure=failures.append, on_sync=lambda _: None
            )
        turn_ends = TurnEnds(
            propose=lambda: rounds.propose(), flush=lambda: disk.on_flush(),
            begin_round=lambda: rounds.begin(), on_broken=failures.append,
        )  # fmt: skip
        rounds = Rounds(
            wal, writer, on_synced=lambda _: None, on_failure=failures.append,
            on_file_begun=on_file_begun, turn_ends=turn_ends, metrics=Metrics(),
        )  # fmt: skip
        disk = Disk(wal, rounds, wal.create_group(gid), failures)
        await rounds.durable()
        async with asyncio.timeout(10):
            await test(disk)
        rounds.stop()
        writer.close()
        thread.close()
        files.close()
        assert failures == []

    asyncio.run(main())
    state = recover(OsDisk(tmp_path)).groups[gid].state
    assert state is not None
    return state.commit


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


class Leader:
    """A replica with one gathered append, whose entry it proposes to the followers and the WAL."""

    def __init__(self, disk: Disk, sent: list[str]) -> None:
        self._disk = disk
        self._sent = sent

    def propose_gathered(self) -> None:
        self._disk.log.append(2, 1, b"\x00")
        self._sent.append("entry")

    def propose_light(self) -> bool:
        return False


def test_an_entry_leaves_for_the_followers_before_its_own_round_begins(tmp_path: Path) -> None:
    sent: list[str] = []
    left: list[tuple[bool, list[str]]] = []

    async def test(disk: Disk) -> None:
        disk.on_flush = lambda: left.append((disk.wal.dirty, list(sent)))
        disk.rounds.gather(Leader(disk, sent))
        await until(lambda: (disk.log.last_index, disk.log.durable_index) == (2, 2))
        assert left[0] == (True, ["entry"]), "the entry leaves while its round is still open"

    with_disk(tmp_path, test)


def test_a_bug_of_a_replica_that_proposes_ends_the_rounds(tmp_path: Path) -> None:
    error = RuntimeError("a bug")

    class Broken(Leader):
        def propose_gathered(self) -> None:
            raise error

    async def test(disk: Disk) -> None:
        disk.rounds.gather(Broken(disk, []))
        await until(lambda: disk.failures != [])
        number = disk.wal.open_round
        disk.append(2)
        disk.rounds.begin()
        assert disk.wal.open_round == number, "a round began after the bug"
        assert disk.failures == [error]
        disk.failures.clear()

    with_disk(tmp_path, test)


def test_a_commit_index_goes_with_the_next_round_that_is_synced(tmp_path: Path) -> None:
    async def test(disk: Disk) -> None:
        disk.append(2)
        await disk.rounds.durable()
        begun = disk.wal.open_round
        disk.log.set_commit(2)
        disk.rounds.kick()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (disk.wal.open_round, disk.wal.dirty) == (begun, True), "a round for it alone"
        disk.append(3)
        await until(lambda: disk.wal.synced_round == begun)
        assert not disk.wal.dirty

    assert with_disk(tmp_path, test) == 2


@pytest.mark.parametrize("written", [False, True])
def test_entries_reported_as_durable_were_synced(
    tmp_path: Path, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that holds nothing that must be synced was written, not synced, and called so."""
    monkeypatch.setattr(rounds_module, "_PUT_OFF_S", 0.0 if written else 3600.0)

    async def test(disk: Disk) -> None:
        disk.append(2)
        await disk.rounds.durable()
        number, syncs = disk.wal.open_round, disk.wal.syncs
        disk.log.set_commit(2)
        disk.rounds.kick()
        if written:
            await until(lambda: disk.wal.open_round > number)
            assert disk.wal.syncs == syncs
        await disk.rounds.durable()
        assert disk.wal.syncs == syncs + 1
        assert disk.wal.synced_round >= number
        await disk.rounds.durable()
        assert disk.wal.syncs == syncs + 1

    assert with_disk(tmp_path, test) == 2


@pytest.mark.parametrize("how", ["in time", "when it is asked for", "when it is large"])
def test_entries_that_need_no_sync_are_written_alone(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how != "in time":
        monkeypatch.setattr(rounds_module, "_PUT_OFF_S", 3600.0)

    async def test(disk: Disk) -> None:
        disk.append(2)
        await disk.rounds.durable()
        disk.log.set_commit(2)
        if how == "when it is large":
            while not disk.wal.urgent:
                disk.log.write_state(must_sync=False)
        disk.rounds.kick()
        if how == "when it is asked for":
            await disk.rounds.durable()
        await until(lambda: not disk.wal.dirty)

    assert with_disk(tmp_path, test) == 2


def test_x5_the_last_sync_is_told_within_a_second_when_nothing_follows(tmp_path: Path) -> None:
    async def test(disk: Disk) -> None:
        disk.append(2)
        await disk.rounds.durable()
        begun, number = asyncio.get_running_loop().time(), disk.wal.open_round
        await until(lambda: disk.wal.open_round > number and not disk.wal.dirty)
        assert asyncio.get_running_loop().time() - begun < 1.0

    with_disk(tmp_path, test)


def test_x5_the_mark_comes_after_the_last_of_several_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "_MARK_S", 0.4)

    async def test(disk: Disk) -> None:
        time, mark, marks = asyncio.get_running_loop().time, disk.wal.mark, list[float]()
        monkeypatch.setattr(disk.wal, "mark", lambda: (marks.append(time()), mark()))
        disk.append(2)
        await disk.rounds.durable()
        first = time()
        await until(lambda: time() > first + 0.2)  # the timer of the first round is half over
        last = time()
        disk.append(3)
        await until(lambda: bool(marks) and marks[-1] > last)
        assert marks[-1] >= last + 0.4
        await until(lambda: not disk.wal.dirty)

    with_disk(tmp_path, test)


def test_a_round_that_begins_a_file_tells_of_it(tmp_path: Path) -> None:
    begun: list[int] = []

    async def test(disk: Disk) -> None:
        for index in range(2, 12):
            disk.log.append(index, 1, bytes(1 << 18))
            disk.rounds.kick()
            await disk.rounds.durable()
        assert len(begun) == disk.wal.file_count >= 2
        begun.clear()  # the next writer begins its own files

    with_disk(tmp_path, test, on_file_begun=lambda: begun.append(1))
