"""A log of which the local disks keep few bytes, while the rest is in the object store only.

Clients append, append on conditions, trim and read old entries while ranges are split, merged and
moved, and while the place of the store is empty on a node now and then. Each read that has an
answer is judged at the end (`cached_reads`): no fault of the store may change what a read says.

After the faults

- the files of each replica on the disk are within the bound;
- every acknowledged entry is there, from the cluster and from each node;
- with the store away and all nodes started anew, a read is right or says Unavailable, and appends
  go on; when the store is back, everything is read again;
- damaged pages and files come back;
- once the log is deleted, no node has a file of the log.
"""

import asyncio
import contextlib
import random
import struct
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from ...client.client import AsyncClient
from ...client.protocol.errors import LognodeError, SequenceMismatch, Unavailable
from ...client.protocol.types import ABSENT
from ...node.replicas.range_replica import RangeReplica
from ...node.tier import names
from ..upgrades import finalize
from ..verdict import Anomaly
from ..watch import healthy
from .cached_reads import Reads
from .far_store import FarStore
from .nodes import Machine, Machines
from .range_changes import change_range
from .rot import rot

LOG: Final = "cached"
_LINE_LOG: Final = "cached-lines"
"""The log of the conditional appends: those whose entries a node applies again after its start may
need the store, and hold up their ranges."""
_LOGS: Final = (LOG, _LINE_LOG)
_KEYS: Final = tuple(f"k{number}" for number in range(8))
_LINES: Final = ("k1-line", "k2-line", "k6-line")
"""Keys with one writer each, which names the entry before in each entry."""
_ANSWER_S: Final = 2.0
_READ_S: Final = 30.0
_RATE: Final = 12.0
_VALUE_BYTES: Final = (500, 12_000)
_BOUNDS: Final = (1, 30_000, 90_000)
_RETAINED: Final = (None, None, 250_000)
_LINE_EVERY_S: Final = (0.2, 2.0)
_READ_EVERY_S: Final = (0.1, 0.8)
_CHANGE_EVERY_S: Final = (0.5, 3.0)
_UNMOUNT: Final = 0.35
_UNMOUNT_EVERY_S: Final = (1.0, 6.0)
_UNMOUNTED_S: Final = (0.01, 3.0)
_FILLS, _FILL = 3, 40
_FILL_S: Final = 1.0
_SETTLED_S: Final = 200.0
"""The bound for files that leave the disks: the tier must have them first."""
_WAIT_S: Final = 1.0
_START_S: Final = 60.0
_AWAY_READ_S: Final = 3.0
_YOUNG: Final = 10
_END: Final = struct.Struct(">QII")
"""The end of a file of pages, which begins with the bytes before the list of pages."""
_AWAY_READS: Final = 12


class Cached:
    """Implements `sides.Side`."""

    def __init__(self, machines: Machines, tier: FarStore, rng: random.Random) -> None:
        self._machines = machines
        self._tier = tier
        self._rng = rng
        self._bound = rng.choice(_BOUNDS)
        self._retained = rng.choice(_RETAINED)
        self._is_unmounted = rng.random() < _UNMOUNT
        self._reads = Reads(removes=self._retained is not None)
        self.anomalies: list[Anomaly] = self._reads.anomalies
        self._count = 0

    async def prepare(self, admin: AsyncClient) -> None:
        """Make the log."""
        await finalize(admin)
        replicas = self._rng.choice((1, 3, 3)) if len(self._machines) > 1 else 1
        for log in _LOGS:
            await admin.create_log(
                log, replicas=replicas, split_at=("k4",), local_retention_bytes=self._bound,
                retention_bytes=self._retained,
            )  # fmt: skip

    async def run(self) -> None:
        """Append, read and change until cancelled."""
        client = AsyncClient(self._machines.servers, timeout=_ANSWER_S)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._often(1 / _RATE, 2 / _RATE, lambda: self.append(client)))
                for key in _LINES:
                    group.create_task(self._write_line(client, key))
                group.create_task(self._often(*_READ_EVERY_S, lambda: self.read(client)))
                group.create_task(self._often(*_CHANGE_EVERY_S, lambda: self._change(client)))
                if self._is_unmounted:
                    group.create_task(self._often(*_UNMOUNT_EVERY_S, self._unmount))
        finally:
            await client.close(timeout=0.0)

    async def finish(self, admin: AsyncClient) -> None:
        """Judge, first with the store, then without; and delete the log."""
        self._tier.calm()
        await self.rest(admin)
        for step in (self.judge, self._without_store, self.damaged, self.delete):
            if not self.anomalies:
                await step(admin)

    async def _often(self, low: float, high: float, call: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(low, high))
            with contextlib.suppress(LognodeError):
                await call()

    # Load.

    async def append(self, client: AsyncClient) -> None:
        """Append an entry with a value of its own."""
        self._count += 1
        key = self._rng.choice(_KEYS)
        value = b"%d:" % self._count + self._value()
        self._reads.sends(key, value)
        ack = await client.log(LOG).append(key, value)
        if ack.seq is not None:
            self._reads.acked[key][ack.seq] = value

    def _value(self) -> bytes:
        return self._rng.randbytes(self._rng.randint(*_VALUE_BYTES))

    async def fill(self, client: AsyncClient) -> None:
        """Append more than a write-ahead log keeps, so that nodes write segments."""

        async def one() -> None:
            with contextlib.suppress(LognodeError):
                await self.append(client)

        await asyncio.gather(*(one() for _ in range(_FILL)))

    async def _write_line(self, client: AsyncClient, key: str) -> None:
        """Append to a key of one writer, on the condition that the last entry is the newest.

        The condition of an old entry is looked up in the tier.
        """
        log, last, is_known = client.log(_LINE_LOG), -1, True
        while True:
            await asyncio.sleep(self._rng.uniform(*_LINE_EVERY_S))
            self._count += 1
            with contextlib.suppress(LognodeError):
                if not is_known:
                    found = await log.latest(key)
                    last, is_known = -1 if found is None else found.seq, True
                value = b"%d:%d:" % (self._count, last) + self._value()
                self._reads.sends(key, value)
                is_known = False
                try:
                    ack = await log.append(key, value, expect=ABSENT if last < 0 else last)
                except SequenceMismatch as error:
                    self._reads.refuses(key, last, error)
                    raise
                if ack.seq is not None:
                    self._reads.acked[key][ack.seq] = value
                    last, is_known = ack.seq, True

    async def read(self, client: AsyncClient, *, timeout: float | None = None) -> None:
        """Read a key in a way that is drawn; remember the answer. Raises LognodeError."""
        key = self._rng.choice((*_KEYS, *_LINES))
        what = self._rng.choice(("scan", "back", "latest", "count"))
        log, before = client.log(_log_of(key)), self._reads.before(key)
        match what:
            case "latest":
                found = await log.latest(key, timeout=timeout)
                entries = [] if found is None else [(found.seq, found.value)]
                self._reads.latest(before, entries)
            case "count":
                self._reads.count(before, await log.count(key, timeout=timeout))
            case _:
                scan = log.scan(key, reverse=what == "back", timeout=timeout)
                entries = [(entry.seq, entry.value) async for entry in scan]
                self._reads.scan(before, entries[::-1] if what == "back" else entries)

    # Changes.

    async def _change(self, client: AsyncClient) -> None:
        drawn = self._rng.random()
        if drawn < 0.15:
            await self.trim(client)
        elif drawn < 0.25:
            bound = self._rng.choice((None, self._bound, 2 * self._bound))
            await client.alter_log(self._rng.choice(_LOGS), local_retention_bytes=bound)
        else:
            log = self._rng.choice(_LOGS)
            await change_range(client, log, _KEYS, self._machines.numbers, self._rng)

    async def trim(self, client: AsyncClient) -> None:
        key = self._rng.choice(_KEYS)
        if acked := sorted(self._reads.acked[key]):
            before = self._rng.choice(acked[: 1 + len(acked) // 2])
            self._reads.asks_to_trim(key, before)
            await client.log(LOG).trim(key, before)
            self._reads.trimmed(key, before)

    async def _unmount(self) -> None:
        """Take the store away from the place of a node, and bring it back."""
        process = self._machines[self._rng.choice(self._machines.numbers)].process
        if process is not None and process.alive:
            self._tier.unmount(process.name)
            await asyncio.sleep(self._rng.uniform(*_UNMOUNTED_S))
            self._tier.mount(process.name)

    # After the faults.

    async def rest(self, admin: AsyncClient) -> None:
        """Append more, and wait until the disks of all nodes are within the bound."""
        for log in _LOGS:
            await self._repeated(partial(admin.alter_log, log, local_retention_bytes=self._bound))
        for _ in range(_FILLS):
            await self.fill(admin)
            await asyncio.sleep(_FILL_S)
        await self._wait("disk-over-bound", lambda: self._crowded(admin))

    async def _crowded(self, admin: AsyncClient) -> str:
        """Return which replica has more on the disk than the bound; "" for none."""
        ids = await self._ids(admin)
        for machine, replica in self._replicas(ids):
            sizes = {info.content_id: info.size for info in replica.state.durable_base.manifest}
            here = {name for name in sizes if _path(machine, name, "seg").exists()}
            if sum(sizes[name] for name in here) > self._bound:
                return (
                    f"node {machine.number} has {len(here)} of {len(sizes)} files of range "
                    f"{replica.gid} on its disk, above the bound {self._bound}"
                )
        return ""

    async def _ids(self, admin: AsyncClient) -> set[int]:
        return {row["id"] for log in _LOGS for row in await admin.admin.ranges(log)}

    def _replicas(self, ids: set[int]) -> Iterator[tuple[Machine, RangeReplica]]:
        for machine in self._machines:
            for replica in machine.ranges():
                if replica.gid.range_id in ids and not replica.stopped:
                    yield machine, replica

    async def judge(self, admin: AsyncClient) -> None:
        """Read everything from the cluster, then from each node; judge all reads so far."""
        final = {}
        for key in (*_KEYS, *_LINES):
            scan = admin.log(_log_of(key)).scan(key, timeout=_READ_S)
            final[key] = [(entry.seq, entry.value) async for entry in scan]
        self._reads.judge(final)
        for log in _LOGS:
            own = {key: entries for key, entries in final.items() if _log_of(key) == log}
            for row in await admin.admin.ranges(log):
                for node in row["members"]:
                    await self._judge_node(admin, node, row, own)

    async def _judge_node(
        self, admin: AsyncClient, node: int, row: dict[str, bytes],
        final: dict[str, list[tuple[int, bytes | None]]],
    ) -> None:  # fmt: skip
        for key, entries in final.items():
            is_here = row["start"] <= key.encode() and (
                row["end"] is None or key.encode() < row["end"]
            )
            if not is_here or not entries:
                continue
            log = admin.log(_log_of(key))
            scan = log.scan(key, node=node, through=entries[-1][0], timeout=_READ_S)
            found = [(entry.seq, entry.value) async for entry in scan]
            self._reads.judge_node(node, key, entries, found)

    async def _without_store(self, admin: AsyncClient) -> None:
        """Read and append while the store is away and the nodes have nothing of it in memory."""
        self._tier.leave()
        for machine in self._machines:
            await machine.kill()
        for machine in self._machines:
            await machine.start()
        if why := await healthy(admin, len(self._machines.numbers), _START_S):
            self._reads.wrong("not-converged", f"without the store, {why}", "L2")
        for _ in range(_AWAY_READS):
            try:
                await self.read(admin, timeout=_AWAY_READ_S)
            except Unavailable as error:
                if "retry_after" not in error.fields:
                    told = f"a read says {error.message!r}, and not when to repeat the read"
                    self._reads.wrong("no-retry-after", told)
            except LognodeError as error:
                self._reads.wrong("wrong-refusal", f"without the store, a read says {error!r}")
        for at in range(_YOUNG):
            await admin.log(LOG).append(f"k{at % 8}-young", b"%d" % at, timeout=_READ_S)
        await self.fill(admin)
        self._tier.come_back()
        await self.judge(admin)
        await self.rest(admin)

    async def damaged(self, admin: AsyncClient) -> None:
        """Damage pages of a node, and a file of a node; both must read as before."""
        machine = self._machines[self._rng.choice(self._machines.numbers)]
        await machine.kill()
        for path in sorted((machine.data / "files").glob("*.kept")):
            self._spoil(path)
        await machine.start()
        self.anomalies.extend(await rot(self._machines, self._rng, self._in_tier()))
        if why := await healthy(admin, len(self._machines.numbers), _START_S):
            self._reads.wrong("not-converged", f"with damaged pages, {why}", "L2")
            return
        await self.judge(admin)

    def _spoil(self, path: Path) -> None:
        """Change a bit of a file, or all pages, or remove the file."""
        data, how = bytearray(path.read_bytes()), self._rng.choice(("bit", "pages", "all"))
        if how == "all":
            path.unlink()
            return
        if how == "bit":
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        else:
            size, _, _ = _END.unpack(data[-_END.size :])
            data[:size] = self._rng.randbytes(size)
        path.write_bytes(data)

    def _in_tier(self) -> set[str]:
        parts = map(names.part_of, self._tier.contents)
        return {part[0].content_id for part in parts if part is not None}

    async def delete(self, admin: AsyncClient) -> None:
        """Delete the log: its files leave all disks."""
        ids = await self._ids(admin)
        files = {
            info.content_id for _, replica in self._replicas(ids)
            for info in replica.state.durable_base.manifest
        }  # fmt: skip
        for log in _LOGS:
            await self._repeated(partial(admin.delete_log, log))

        async def left() -> str:
            for machine in self._machines:
                for name in sorted(files):
                    for suffix in ("seg", "kept"):
                        if _path(machine, name, suffix).exists():
                            return f"node {machine.number} has {name}.{suffix} of the deleted log"
            return ""

        await self._wait("left-on-disk", left)

    async def _wait(self, name: str, why: Callable[[], Awaitable[str]]) -> None:
        """Wait until a reason is empty; it is an anomaly after a while."""
        loop = asyncio.get_running_loop()
        until, told = loop.time() + _SETTLED_S, "no node says anything"
        while told:
            if loop.time() >= until:
                self._reads.wrong(name, f"after {_SETTLED_S:.0f} s without faults, {told}")
                return
            await asyncio.sleep(_WAIT_S)
            with contextlib.suppress(LognodeError):
                told = await why()

    async def _repeated(self, call: Callable[[], Awaitable[object]]) -> None:
        """Call until the cluster does not refuse: another change may be under way."""
        while True:
            with contextlib.suppress(LognodeError):
                await call()
                return
            await asyncio.sleep(_WAIT_S)


def _log_of(key: str) -> str:
    return _LINE_LOG if key in _LINES else LOG


def _path(machine: Machine, content_id: str, suffix: str) -> Path:
    return machine.data / "files" / f"{content_id}.{suffix}"
