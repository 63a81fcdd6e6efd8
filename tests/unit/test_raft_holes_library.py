"""Holes of the library that its parts have which lognode does not use, and what stands instead.

`test_raft_holes.py` opens those that a switch of the guard can open. Those here have no switch:
the library's journal, dumps, pickles and membership never run. So the open side of each scenario is
the library as it comes, and must show the violation; the closed side is ours. Both together have
every row of the table of holes.
"""

import errno
import gc
import os
import pickle
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pysyncobj.journal import FileJournal
from pysyncobj.tcp_connection import TcpConnection
from raft_net import Net
from raft_wal import WalLog
from stock_library import NO_OP, REGULAR, Outcome, Stock, library_time

from lognode.chaos.sim.disk import SimDisk
from lognode.client.protocol import limits
from lognode.client.protocol.errors import LimitExceeded, RemoteProtocolError
from lognode.client.protocol.frame import Broken, Decoder
from lognode.client.protocol.invariants import InvariantError
from lognode.raft import guard
from lognode.raft.messages import Append, Snapshot, decode, encode
from lognode.raft.types import DiskFailure, GroupId
from lognode.raft.wal import Wal
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segments import SegmentStore

Scenario = Callable[[Path], str | None]
"""What went wrong, or None. It may write below the path."""

GID = GroupId(1, 1)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
"""The library leaves its files open. They are collected within the test that opened them."""


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


# 7: the commit index may lie behind the log's end.


def library_7(path: Path) -> str | None:
    """The power goes after the commit index was stored, and before the entries were."""
    journal = FileJournal(str(path / "journal"))
    journal.add(NO_OP, 1, 0)
    journal.flush()
    on_disk = (path / "journal").read_bytes()
    for index in range(2, 6):
        journal.add(b"\x00entry", index, 1)
    journal.setRaftCommitIndex(5)
    journal.onOneSecondTimer()
    journal._destroy()
    (path / "journal").write_bytes(on_disk)
    member = Stock(journal=path / "journal")
    member.append(2, 2, (1, 0), b"\x00not committed", commit=1)
    member.doTick(0.0)
    return "applies what no leader committed" if member.applied else None


def ours_7(_: Path) -> str | None:
    log = WalLog(random.Random(7))
    log.append(2, 1, b"\x00a")
    log.set_commit(99)
    log.sync()
    log.crash()
    return None if log.commit_index == log.last_index == 2 else "commits what it lacks"


# 8, 9, 15: the log is cleared and written again.


def library_8(path: Path) -> str | None:
    """The process is killed inside a compaction."""
    journal = FileJournal(str(path / "journal"))
    for index in range(1, 6):
        journal.add(b"\x00entry", index, 1)

    class KilledError(Exception):
        """The process ends here."""

    def killed(*_: object) -> None:
        raise KilledError

    journal.add = killed
    with pytest.raises(KilledError):
        journal.deleteEntriesTo(2)
    journal._destroy()
    found = len(FileJournal(str(path / "journal")))
    return f"{found} of 3 entries are left" if found < 3 else None


def ours_8(_: Path) -> str | None:
    """Killed before and after the one record that cuts the front."""
    for written in (False, True):
        log = WalLog(random.Random(8))
        for index in range(2, 7):
            log.append(index, 1, b"\x00entry")
        log.sync()
        log.set_commit(4)
        log.cut_front(4)
        if written:
            log.sync()
        log.crash()
        if [entry.index for entry in log.entries(5, 6)] != [5, 6]:
            return "entries are gone"
    return None


# 10: 32 bits for an offset, and all of the log in memory.


def library_10(path: Path) -> str | None:
    """The log reaches 4 GiB."""
    journal = FileJournal(str(path / "journal"))
    try:
        journal._FileJournal__setLastRecordOffset(1 << 32)
    except struct.error:
        return "no log beyond 4 GiB"
    return None


def ours_10(_: Path) -> str | None:
    """More than the cache: all of it is there, and no more than the cache is in memory."""
    log = WalLog(random.Random(10))
    command = b"\x00" + bytes(limits.MIB)
    count = limits.log_cache_bytes_max // len(command) + 8
    for index in range(2, 2 + count):
        log.append(index, 1, command)
        log.sync()
    whole = all(log.entry(index).command == command for index in range(2, 2 + count))
    return None if whole and log.log._cached_bytes <= limits.log_cache_bytes_max else "in memory"


# 11: no checksum.


def library_11(path: Path) -> str | None:
    """One bit flips on the disk."""
    journal = FileJournal(str(path / "journal"))
    journal.add(b"\x00amount=100", 1, 1)
    journal._destroy()
    data = bytearray((path / "journal").read_bytes())
    data[data.index(b"100")] ^= 0x08
    (path / "journal").write_bytes(data)
    found = FileJournal(str(path / "journal"))[0][0]
    return f"reads {found!r}" if found != b"\x00amount=100" else None


def ours_11(_: Path) -> str | None:
    disk = SimDisk(random.Random(11))
    wal = _open(disk)
    log = wal.create_group(GID)
    _sync(wal)
    log.append(2, 1, b"\x00amount=100")
    _sync(wal)
    for _round in range(2):
        wal.mark()
        _sync(wal)
    name = disk.names()[0]
    place = disk.read(name, 0, disk.size(name)).index(b"amount=100")
    disk.flip_bit(name, place)
    return None if GID in _open(disk).recovery.damaged else "served"


# 12: what could not be written is acknowledged.


def library_12(path: Path) -> str | None:
    """The disk is full at an append; the leader sends a heartbeat behind it."""
    member = Stock(journal=path / "journal")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    member.log._FileJournal__journalFile.write = full
    with pytest.raises(OSError, match="No space"):
        member.append(2, 1, (1, 0), b"\x00lost")
    answer = member.append(2, 1, (2, 1))
    acked = answer["success"] and answer["next_node_idx"] == 3
    return "acknowledges what is not on its disk" if acked else None


def ours_12(_: Path) -> str | None:
    disk = SimDisk(random.Random(12))
    wal = _open(disk)
    log = wal.create_group(GID)
    _sync(wal)
    log.append(2, 1, b"\x00lost")
    disk.fail_at = disk.operations + 1
    with pytest.raises((DiskFailure, OSError)):
        _sync(wal)
    log.append(3, 1, b"\x00more")
    with pytest.raises(InvariantError):  # nothing is tried again
        _sync(wal)
    return None if log.durable_index < 2 else "acknowledges what is not on its disk"


# 13, 14: older and broken snapshots are taken.


def library_13(path: Path) -> str | None:
    """A dump of entry 3 arrives at a member that has applied 6."""
    older = Stock(dump=path / "older")
    older.append(2, 1, (1, 0), b"\x00a", b"\x00b", commit=3)
    older.doTick(0.0)
    older._SyncObj__serializer.serialize(({}, (b"\x00b", 3, 1), (b"\x00a", 2, 1), []), 3)
    member = Stock(dump=path / "dump")
    member.append(2, 1, (1, 0), *[b"\x00%d" % n for n in range(5)], commit=6)
    member.doTick(0.0)
    dump = (path / "older").read_bytes()
    member.hear(2, {"type": "append_entries", "term": 1, "commit_index": 3,
                    "serialized": (dump, True, False)})  # fmt: skip
    member.hear(2, {"type": "append_entries", "term": 1, "commit_index": 3,
                    "serialized": (b"", False, True)})  # fmt: skip
    return "goes back behind what it applied" if member.last_index < 6 else None


def library_14(path: Path) -> str | None:
    """A dump of which half is lost arrives."""
    member = Stock(dump=path / "dump")
    answer = {}
    for data, first, last in ((b"half a dump", True, False), (b"", False, True)):
        answer = member.hear(2, {"type": "append_entries", "term": 1, "commit_index": 1,
                                 "serialized": (data, first, last)})  # fmt: skip
    return "says that it has it" if answer.get("success") else None


def ours_13(_: Path) -> str | None:
    """The message does nothing but keep the leader known; there is no data in it."""
    net = Net(3)
    net.elect(1)
    net.propose(1, "a", "b")
    net.run(net.settled())
    follower, log = net.group(2), net.log(2)
    before = (log.base_index, log.last_index, follower.commit_index)
    follower.receive(1, encode(Snapshot(follower.term, 1, 99)))
    silent = not follower.take_messages()
    after = (log.base_index, log.last_index, follower.commit_index)
    return None if silent and after == before else "taken"


# 17, 18: two changes of the members at once; the one in the log is not in effect after a restart.


def library_17(_: Path) -> str | None:
    """A leader is asked for two more members before the first is committed."""
    leader = Stock(dynamic=True)
    leader.lead()
    for number in ("4", "5"):
        leader._addNodeToCluster((number,), lambda *_: None)
        leader._checkCommandsToApply()
    uncommitted = leader.last_index - leader.raftCommitIndex
    return "two changes at once" if len(leader.otherNodes) == 4 and uncommitted == 2 else None


def library_18(path: Path) -> str | None:
    """A member restarts with an added one in its log."""
    for _start in range(2):
        member = Stock(dynamic=True, journal=path / "journal")
        if _start == 0:
            added = b"\x02" + pickle.dumps(["add", "4"])
            member.append(2, 1, (1, 0), added, commit=1)
            assert len(member.otherNodes) == 3
            member.log._destroy()
    return "forgets a member" if len(member.otherNodes) == 2 else None


def ours_17(_: Path) -> str | None:
    """A membership command does not enter, from any sender."""
    change = b"\x02" + pickle.dumps(["add", "4"])
    try:
        decode(encode(Append(1, 1, 1, 0, 1, [[1, change]])))
    except RemoteProtocolError:
        return None
    return "entered"


# 19: pickle on the wire.


class _Payload:
    """Unpickling it makes a directory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self._path / "ran"),)


def _pickled(path: Path) -> bytes:
    data = zlib.compress(pickle.dumps(_Payload(path)))
    return struct.pack("i", len(data)) + data


def library_19(path: Path) -> str | None:
    """Bytes of a stranger arrive at a connection, before it has said who it is."""
    connection = TcpConnection(poller=None)
    connection._TcpConnection__readBuffer = _pickled(path)
    connection._TcpConnection__processParseMessage()
    return "ran the sender's code" if (path / "ran").exists() else None


def ours_19(path: Path) -> str | None:
    events = Decoder().feed(_pickled(path))
    refused = any(isinstance(event, Broken) for event in events)
    return "ran" if (path / "ran").exists() or not refused else None


# 22: an append that is never answered.


def library_22(_: Path) -> str | None:
    """A leader is deposed, its entry replaced, and time goes by."""
    with library_time() as now:
        leader = Stock()
        leader.lead()
        outcomes: list[Outcome] = []
        leader.propose(b"\x00mine", outcomes)
        leader.append(3, 9, (2, 1), commit=2)  # the log of the next leader ends here
        for _second in range(60):
            now[0] += 1.0
            leader.append(3, 9, (2, 1), commit=2)
            leader.doTick(0.0)
    return "no answer in a minute" if not outcomes and leader.last_index == 2 else None


def ours_22(_: Path) -> str | None:
    """(index, term) decides, and the lost lead is seen at once."""
    net = Net(3)
    net.elect(1)
    net.isolate(1)
    group = net.group(1)
    index, term = group.propose(b"\x00mine")
    net.run(lambda: net.leader() in (2, 3))
    net.heal()
    net.run(net.settled())
    entry = net.log(1).entry(index)
    return None if group.role != "leader" and entry.term != term else "nobody knows"


# 24, 25: apply.


def library_24(_: Path) -> str | None:
    """The state machine raises at an entry."""

    def broken(command: bytes) -> None:
        raise ValueError(command)

    member = Stock(apply=broken)
    member.append(2, 1, (1, 0), b"\x00poison", commit=2)
    for _tick in range(5):
        with pytest.raises(ValueError, match="poison"):
            member.doTick(0.0)
    return "applied again and again" if member.applied == [b"poison"] * 5 else None


def ours_24(path: Path) -> str | None:
    (path / "files").mkdir()
    state = RangeState(start=b"", end=None, store=SegmentStore(path / "files"))
    for index, command in enumerate((b"\x00poison", REGULAR, b"\x00\x93\x01\x02\x03", b"\x07"), 2):
        state.apply(index, 1, command)
    return None if state.applied_index == 5 else "stands still"


def library_25(path: Path) -> str | None:
    """A member restarts; what it had applied was kept by the state machine."""
    applied: list[bytes] = []
    for _start in range(2):
        member = Stock(journal=path / "journal", apply=applied.append)
        if _start == 0:
            member.append(2, 1, (1, 0), b"\x00a", b"\x00b", commit=3)
        member.doTick(0.0)
        member.log.onOneSecondTimer()
        member.log._destroy()
    return "applied twice" if applied == [b"a", b"b"] * 2 else None


def ours_25(_: Path) -> str | None:
    net = Net(3)
    net.elect(1)
    net.propose(1, "a", "b")
    net.run(net.settled())
    net.crash(2)
    net.restart(2)
    net.propose(1, "c")
    net.run(net.settled())
    return None if net.applied(2) == ["a", "b", "c"] else "applied twice"


# 28: an entry in pieces.


def library_28(_: Path) -> str | None:
    """A leader dies half-way through a large entry; the next one's begins where we missed it."""
    entries = [pickle.dumps((b"\x00" + letter * 100, 2, 1)) for letter in (b"a", b"b")]
    member = Stock()
    for leader, kind, entry in ((2, "start", entries[0]), (3, "finish", entries[1])):
        half = len(entry) // 2
        member.hear(leader, {
            "type": "append_entries", "term": leader, "commit_index": 1, "prevLogIdx": 1,
            "prevLogTerm": 0, "transmission": kind,
            "data": entry[:half] if kind == "start" else entry[half:],
        })  # fmt: skip
    command = member.log[-1][0]
    return "an entry that nobody wrote" if b"a" in command and b"b" in command else None


def ours_28(_: Path) -> str | None:
    net = Net(3)
    net.elect(1)
    largest = b"\x00" + bytes(limits.entry_bytes_max - 1)
    net.group(1).propose(largest)
    net.pump()
    sent = [decode(flight.message) for flight in net.sent(Append, 1, 2)]
    whole = [[1, largest]] in [body.entries for body in sent if isinstance(body, Append)]
    with pytest.raises(LimitExceeded):
        net.group(1).propose(largest + b"x")
    return None if whole else "in pieces"


LIBRARY: dict[str, tuple[tuple[int, ...], Scenario]] = {
    "hole_7": ((7,), library_7),
    "hole_8": ((8, 9, 15), library_8),
    "hole_10": ((10,), library_10),
    "hole_11": ((11,), library_11),
    "hole_12": ((12,), library_12),
    "hole_13": ((13,), library_13),
    "hole_14": ((14,), library_14),
    "hole_17": ((17,), library_17),
    "hole_18": ((18,), library_18),
    "hole_19": ((19,), library_19),
    "hole_22": ((22,), library_22),
    "hole_24": ((24,), library_24),
    "hole_25": ((25,), library_25),
    "hole_28": ((28,), library_28),
}

OURS: dict[str, Scenario] = {
    "hole_7": ours_7,
    "hole_8": ours_8,
    "hole_10": ours_10,
    "hole_11": ours_11,
    "hole_12": ours_12,
    "hole_13": ours_13,
    "hole_14": ours_13,
    "hole_17": ours_17,
    "hole_18": ours_17,
    "hole_19": ours_19,
    "hole_22": ours_22,
    "hole_24": ours_24,
    "hole_25": ours_25,
    "hole_28": ours_28,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_closed(name: str, tmp_path: Path) -> None:
    assert OURS[name](tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARY)
def test_violation_shows_in_the_library(name: str, tmp_path: Path) -> None:
    assert LIBRARY[name][1](tmp_path) is not None


def test_every_row_of_the_table_has_a_scenario() -> None:
    rows = {row for rows, _ in LIBRARY.values() for row in rows}
    assert OURS.keys() == LIBRARY.keys()
    assert rows | set(guard.HOLES) == set(range(1, 29)) - {23, 27}  # no such rows


def _open(disk: SimDisk) -> Wal:
    return Wal.open(disk, entropy=random.Random(1).randbytes, file_bytes=1 << 16)


def _sync(wal: Wal) -> None:
    round_ = wal.collect()
    if round_ is not None:
        wal.write(round_)
        wal.complete(round_)
