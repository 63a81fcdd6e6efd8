"""Kill a node's storage at each of its disk steps in turn, recover, and look at everything.

The scenario is one process: appends over several WAL files, flushes with the log cut behind the
first, memtables frozen that wait for each other, files reclaimed, bases installed on logs that hold
them and on logs that do not, a generation retired, segments merged. It tells what it did through a
pipe, so that what was acknowledged is known when it dies. Run as a program: `storage_failpoints.py
DIRECTORY` prints the list of failpoints, and fails at the first whose recovery is not what it
should be.
"""

import asyncio
import logging
import os
import random
import re
import shutil
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
from boundaries import Boundaries
from storage_node import StorageNode, descriptor, numbered_batch

from lognode.node.replicas.range_replica import RangeReplica
from lognode.raft.types import GroupId
from lognode.statemachine import commands, merge_plan
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.segment_writer import build
from lognode.statemachine.segments import SegmentStore

SERVED, HELD, DIVERGED, RETIRED = (GroupId(n, 1) for n in (1, 2, 3, 4))
KEYS = [b"a", b"a\0", b"b", b"\0\0"]
_LENGTH = struct.Struct(">I")
_HELD_TO = 12
_BASE_AT = 8
_DIVERGED_TERM = 5

Told = list[list[Any]]
Failpoint = tuple[str, int]


class Pipe:
    """Messages to the parent, each written whole before the next disk step."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def tell(self, *message: Any) -> None:
        packed = msgpack.packb(message)
        os.write(self._fd, _LENGTH.pack(len(packed)) + packed)


def forked(action: Callable[[Pipe], None]) -> tuple[bool, Told]:
    """Run in a process of its own: whether it ended by itself, and what it told."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        pipe = Pipe(writer)
        try:
            action(pipe)
        except BaseException:
            pipe.tell("failed", traceback.format_exc())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(pid, 0)
    told, at = [], 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        told.append(msgpack.unpackb(data[at + 4 : at + 4 + length], strict_map_key=False))
        at += 4 + length
    for message in told:
        if message[0] == "failed":
            raise AssertionError(message[1])
    return os.WIFEXITED(status), told


# The scenario.


class Scenario:
    """Drives the storage and tells what was acknowledged."""

    def __init__(self, root: Path, pipe: Pipe) -> None:
        self.node = StorageNode(root)
        self._pipe = pipe
        self._number = 1
        self._told_to = 1

    async def run(self) -> None:
        node, host = self.node, self.node.host
        served = await host.create_range(descriptor(1), Base(), campaign=True)
        retired = await host.create_range(descriptor(4), Base(), campaign=True)
        assert served is not None
        assert retired is not None
        await node.leading(served)
        await node.leading(retired)
        await retired.append(numbered_batch(1, KEYS))
        await node.flusher.flush(retired)
        self._pipe.tell("created")
        for _ in range(6):
            await self._append(served, 4)
        await self._flush(served)
        for frozen in (1, 2):  # two that wait for the builder, and the live one
            for _ in range(3):
                await self._append(served, 4)
            served.propose_freeze()
            await node.applied(served)
            assert len(served.state.queue) == frozen
        await self._append(served, 4)
        await self._flush_while_appending(served)
        await node.reclaim()
        self._pipe.tell("retiring")
        await host.retire([RETIRED])
        await self._append(served, 1)
        await self._followers()
        await node.reclaim()
        await self._append(served, 2)
        await self._flush(served)
        before = len(served.state.manifest)
        assert await node.merges.try_merge(served)
        assert len(served.state.manifest) == before - 1
        await node.reclaim()
        files = node.wal.file_count
        while node.wal.file_count == files:  # the next is one that was let go
            await self._append(served, 4)

    async def _append(self, replica: RangeReplica, count: int) -> None:
        rng = random.Random(self._number)
        keys = [rng.choice(KEYS) for _ in range(count)]
        data = numbered_batch(self._number, keys)
        self._pipe.tell("tried", self._number, keys, data)
        reply = await replica.append(data)
        assert reply["status"] == "ok", reply
        self._pipe.tell("acked", self._number, reply["first_seq"], reply["timestamp_ms"])
        self._number += count
        log = replica.raft_log
        for index in range(max(self._told_to, log.base_index) + 1, log.commit_index + 1):
            entry = log.entry(index)
            self._pipe.tell("entry", entry.index, entry.term, entry.command)
        self._told_to = log.commit_index

    async def _flush(self, replica: RangeReplica) -> None:
        await self.node.flusher.flush(replica)
        self._pipe.tell("flushed", replica.state.durable_base.applied_index)

    async def _flush_while_appending(self, replica: RangeReplica) -> None:
        flushing = asyncio.ensure_future(self.node.flusher.flush(replica))
        await asyncio.sleep(0)
        for _ in range(2):
            await self._append(replica, 2)
        await flushing
        self._pipe.tell("flushed", replica.state.durable_base.applied_index)

    async def _followers(self) -> None:
        """Two followers whose leader was ahead: one holds the base's entry, one another."""
        node, host = self.node, self.node.host
        for gid, term in ((HELD, 1), (DIVERGED, _DIVERGED_TERM)):
            follower = descriptor(gid.range_id, members=(1, 2, 3))
            replica = await host.create_range(follower, Base(), campaign=False)
            assert replica is not None
            log = replica.raft_log
            log.set_hard_state(1, 2)
            for index in range(2, _HELD_TO + 1):
                log.append(index, 1, follower_command(index))
            await node.rounds.durable()
            self._pipe.tell("follower", gid.range_id)
            base = peer_base(node.store, node.directory.tmp / "peer", term)
            await host.reinstall_range(replica, base)
            self._pipe.tell("installed", gid.range_id)


def follower_command(index: int) -> bytes:
    """The entry that leaders sent."""
    batch = numbered_batch(1 + 2 * index, [b"a", b"b"])
    return commands.encode(commands.APPEND, 1000 + index, [batch])


def peer_base(store: SegmentStore, path: Path, term: int) -> Base:
    """What a leader's base at `_BASE_AT` is, its file fetched into the store."""
    state = RangeState(start=b"", end=None, store=store)
    for index in range(2, _BASE_AT + 1):
        state.apply(index, term, follower_command(index))
    frozen = state.freeze()
    assert frozen is not None
    info = build(path, 1, frozen.sources())
    store.add(path, info.content_id)
    return state.base_with(frozen, info)


def run_scenario(root: Path, kill_at: Failpoint, pipe: Pipe) -> None:
    Boundaries(root, kill_at=kill_at, told=lambda label, nth: pipe.tell("at", label, nth)).install()

    async def main() -> None:
        wal = root / "wal"
        wal.mkdir(parents=True)
        (wal / "spare-0000000099").write_bytes(b"not made to its end")
        scenario = Scenario(root, pipe)
        await scenario.node.start()
        await scenario.run()
        scenario.node.stop()

    asyncio.run(main())


# Recovery.


def recover_and_check(root: Path, told: Told) -> None:
    """A fresh process finds what was promised, serves nothing else, and goes on."""

    async def main() -> None:
        node = StorageNode(root)
        await node.start()
        assert not node.host.damaged, node.host.damaged
        assert not node.wal.recovery.damaged, node.wal.recovery.damaged
        _check_files(node)
        _check_followers(node, told)
        replica = node.host.replica(SERVED)
        if any(message[0] == "created" for message in told):
            assert replica is not None
        if replica is not None:
            await node.leading(replica)
            _check_served(node, replica, told)
            await _go_on(node, replica, told)
        _check_retired(node, told)
        node.stop()

    asyncio.run(main())


def _check_files(node: StorageNode) -> None:
    """Orphans are gone; what is named is whole."""
    named = {info.content_id for r in node.host.ranges() for info in r.state.durable_base.manifest}
    found = {path.stem for path in node.directory.files.iterdir()}
    assert found == named, (found, named)
    assert not list(node.directory.tmp.iterdir())
    for content_id in named:
        node.store.verify(content_id)
        node.store.segment(content_id).check()


def _check_served(node: StorageNode, replica: RangeReplica, told: Told) -> None:
    state, log = replica.state, replica.raft_log
    entries = {m[1]: (m[2], m[3]) for m in told if m[0] == "entry"}
    for index in range(log.first_index, log.last_index + 1):
        entry = log.entry(index)
        mine = (entry.term, entry.command)
        assert entries.setdefault(index, mine) == mine, f"entry {index} has changed"
    flushed = max((m[1] for m in told if m[0] == "flushed"), default=1)
    assert state.durable_base.applied_index >= flushed
    # Tables are those of exactly the applied index, and the hash that of the entries (x16).
    model = RangeState(start=b"", end=None, store=node.store)
    for index in range(2, state.applied_index + 1):
        model.apply(index, *entries[index])
    for name in ("applied_term", "next_seq", "last_timestamp_ms", "state_hash", "sealed"):
        assert getattr(state, name) == getattr(model, name), name
    assert state.producers.to_wire() == model.producers.to_wire()
    everything = _contents(state)
    assert everything == _contents(model)
    tried = {m[1]: (m[2], m[3]) for m in told if m[0] == "tried"}
    for _, number, first_seq, _ in (m for m in told if m[0] == "acked"):
        for at, key in enumerate(tried[number][0]):
            value = everything[key, first_seq + at]
            assert value is not None
            assert value.startswith(b"%d:" % (number + at)), "an acknowledged entry differs"
    values = [value for value in everything.values() if value is not None]
    allowed = {b"%d" % (n + at) for n, (keys, _) in tried.items() for at in range(len(keys))}
    assert {value.split(b":")[0] for value in values} <= allowed
    assert len(set(values)) == len(values), "something is there twice"


def _contents(state: RangeState) -> dict[tuple[bytes, int], bytes | None]:
    found: dict[tuple[bytes, int], bytes | None] = {}
    for key in state.keys(limit=1000):
        page = state.scan(key, limit=10_000, bytes_max=1 << 30)
        found.update(((key, entry.seq), entry.value) for entry in page.entries())
    return found


async def _go_on(node: StorageNode, replica: RangeReplica, told: Told) -> None:
    """What was acknowledged is a duplicate with its seqs; what was not is applied once."""
    acked = {m[1]: m[2] for m in told if m[0] == "acked"}
    for _, number, keys, data in (m for m in told if m[0] == "tried"):
        reply = await replica.append(data)
        assert reply["status"] == "ok", reply
        if number in acked:
            assert reply["duplicates"] == list(range(len(keys)))
            assert reply["seqs"] == [acked[number] + at for at in range(len(keys))]
    numbers = sorted(int(value.split(b":")[0]) for value in _contents(replica.state).values()
                     if value is not None)  # fmt: skip
    assert numbers == list(range(1, len(numbers) + 1))
    before = _contents(replica.state)
    await node.flusher.flush(replica)
    assert _contents(replica.state) == before
    await node.reclaim()


def _check_followers(node: StorageNode, told: Told) -> None:
    """Entries that a follower may have acknowledged stay (x1); a base is there whole (x2.10)."""
    ready = {m[1] for m in told if m[0] == "follower"}
    installed = {m[1] for m in told if m[0] == "installed"}
    for gid in (HELD, DIVERGED):
        replica = node.host.replica(gid)
        if gid.range_id not in ready:
            continue
        assert replica is not None
        log, base = replica.raft_log, replica.state.durable_base
        has_base = base.applied_index == _BASE_AT
        assert has_base or gid.range_id not in installed
        assert (log.term >= 1, log.vote) == (True, 2) or gid == DIVERGED
        if gid == HELD or not has_base:
            assert log.last_index == _HELD_TO
            for index in range(log.first_index, _HELD_TO + 1):
                assert log.entry(index).command == follower_command(index)
        else:
            position = (log.base_index, log.base_term, log.last_index)
            assert position == (_BASE_AT, _DIVERGED_TERM, _BASE_AT)
        if has_base:
            assert replica.state.next_seq == 2 * (_BASE_AT - 1) + 1
            assert log.term_at(_BASE_AT) == base.applied_term


def _check_retired(node: StorageNode, told: Told) -> None:
    """It is as it was, or gone for good; nothing in the WAL waits for it."""
    created = any(m[0] == "created" for m in told)
    retiring = any(m[0] == "retiring" for m in told)
    replica = node.host.replica(RETIRED)
    if created and not retiring:
        assert replica is not None
    if replica is None and created:
        assert RETIRED not in node.wal.groups, "a retired log still pins WAL files"
        assert node.host.marks[RETIRED.range_id] == RETIRED.generation


# The enumeration.


def enumerate_failpoints(directory: Path) -> list[Failpoint]:
    """Every boundary of a run that nobody kills, in the order in which it was reached."""
    finished, told = forked(lambda pipe: run_scenario(directory, ("", 0), pipe))
    assert finished
    forked(lambda pipe: recover_and_check(directory, told))
    return [(str(m[1]), int(m[2])) for m in told if m[0] == "at"]


def sampled(failpoints: list[Failpoint]) -> list[Failpoint]:
    """The first failpoint of each kind, and every third of the others."""
    kinds: set[str] = set()
    found = []
    for number, (label, nth) in enumerate(failpoints):
        kind = re.sub(r"\d+", "", label)
        if kind not in kinds or number % 3 == 0:
            found.append((label, nth))
        kinds.add(kind)
    return found


def kill_at(root: Path, failpoint: Failpoint, number: int) -> bool:
    """Kill there, kill the recovery somewhere, recover, check. False: it was not reached."""
    shutil.rmtree(root, ignore_errors=True)
    finished, told = forked(lambda pipe: run_scenario(root, failpoint, pipe))
    try:
        forked(lambda pipe: recover_killed(root, ("", 1 + number * 7 % 40)))
        forked(lambda pipe: recover_and_check(root, told))
    except AssertionError as error:
        raise AssertionError(f"killed at {failpoint}:\n{error}") from None
    return not finished


def recover_killed(root: Path, kill_at: Failpoint) -> None:
    Boundaries(root, kill_at=kill_at).install()

    async def main() -> None:
        node = StorageNode(root)
        await node.start()
        await node.reclaim()
        node.stop()

    asyncio.run(main())


def main() -> None:
    setattr(merge_plan, "_JOINED", 2)  # noqa: B010  so that the scenario needs no more flushes
    logging.disable(logging.CRITICAL)
    directory = Path(sys.argv[1])
    began = time.monotonic()
    failpoints = enumerate_failpoints(directory / "whole")
    if "sampled" in sys.argv:
        failpoints = sampled(failpoints)
    missed = []
    for number, (label, nth) in enumerate(failpoints, 1):
        reached = kill_at(directory / "data", (label, nth), number)
        print(f"{number:4d} {label} #{nth}{'' if reached else ' (not reached this time)'}")
        if not reached:
            missed.append(label)
    # Rounds that only tell a commit index come as the threads happen to meet.
    assert len(missed) * 20 <= len(failpoints), missed
    print(f"{len(failpoints)} failpoints, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
