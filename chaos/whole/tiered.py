"""A log whose sealed segments go to an object store, and what a restore gives at any moment.

Clients append to the log while its ranges are split, merged and moved. Now and then the store is
copied, and the entries that a restore would give are read from the copy. Later, for each key,

- each restore must have given the oldest entries of the key: none left out, none twice, none that
  the cluster never had, and no fewer than an earlier restore;
- once faults are over, the store must have every sealed entry, and nothing else;
- the ranges of a split go on with the files that the store has;
- the store must lose everything of a deleted log.
"""

import asyncio
import contextlib
import random
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from ...client.client import AsyncClient
from ...client.protocol.errors import LognodeError, LogNotFound, NotFound
from ...node.tier import names
from ...node.tier.coverage import Snapshot
from ...node.tier.names import Chain, StoredFile
from ...node.tier.restoring import entries_of, logs_of
from ...node.tier.tier_store import TierStore
from ..verdict import Anomaly
from .far_store import FarStore
from .memory_store import MemoryStore
from .nodes import Machines
from .range_changes import change_range

LOG: Final = "tiered"
_KEYS: Final = tuple(f"k{number}" for number in range(8))
_ANSWER_S: Final = 2.0
_READ_S: Final = 30.0
_RATE: Final = 40.0
_VALUE_BYTES: Final = (500, 12_000)
_LOOK_EVERY_S: Final = (0.3, 1.5)
_CHANGE_EVERY_S: Final = (0.5, 2.5)
_FILLS, _FILL = 3, 40
_FILL_S: Final = 1.0
_SETTLED_S: Final = 200.0
"""The bound for what waits: a node rests for up to a minute after errors of the store."""
_WAIT_S: Final = 1.0

Entries = dict[bytes, list[tuple[int, bytes | None]]]
"""By key, seqs and values in their order."""


class Tiered:
    """Implements `sides.Side`."""

    def __init__(
        self, machines: Machines, tier: FarStore, rng: random.Random, *, is_spread: bool,
        local_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self.anomalies: list[Anomaly] = []
        self.looks: list[Entries] = []
        """What restores gave, one after the other."""
        self._machines = machines
        self._tier = tier
        self._rng = rng
        self._replicas = rng.choice((1, 3, 3)) if is_spread else 3
        self._local_bytes = local_bytes
        """How many bytes of a range the disks keep."""
        self._acked: defaultdict[bytes, dict[int, bytes]] = defaultdict(dict)
        self._count = 0

    async def prepare(self, admin: AsyncClient) -> None:
        """Make the log."""
        await admin.create_log(
            LOG, replicas=self._replicas, split_at=("k4",), local_retention_bytes=self._local_bytes
        )

    async def run(self) -> None:
        """Append, change ranges and look until cancelled."""
        client = AsyncClient(self._machines.servers, timeout=_ANSWER_S)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._append_on(client))
                group.create_task(self._change_on(client))
                group.create_task(self._look_on())
        finally:
            await client.close(timeout=0.0)

    async def finish(self, admin: AsyncClient) -> None:
        """Append more without faults, wait until the store has everything, and judge."""
        self._tier.calm()
        for _ in range(_FILLS):
            await self.fill(admin)
            await asyncio.sleep(_FILL_S)
        await self._wait("not-in-tier", self._lacks)
        await self._wait("left-in-tier", self._left)
        await self.look()
        await self._judge(admin)
        if not self.anomalies:
            await self._split_again(admin)
        if not self.anomalies:
            await self._delete(admin)

    # Load.

    async def fill(self, client: AsyncClient) -> None:
        """Append more than a write-ahead log keeps, so that nodes write segments."""
        await asyncio.gather(*(self._try_append(client) for _ in range(_FILL)))

    async def _try_append(self, client: AsyncClient) -> None:
        with contextlib.suppress(LognodeError):
            await self.append(client)

    async def append(self, client: AsyncClient) -> None:
        """Append an entry with a value of its own."""
        self._count += 1
        key = self._rng.choice(_KEYS)
        value = b"%d:" % self._count + self._rng.randbytes(self._rng.randint(*_VALUE_BYTES))
        ack = await client.log(LOG).append(key, value)
        if ack.seq is not None:
            self._acked[key.encode()][ack.seq] = value

    async def _append_on(self, client: AsyncClient) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(_RATE))
            await self._try_append(client)

    async def _change_on(self, client: AsyncClient) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(*_CHANGE_EVERY_S))
            with contextlib.suppress(LognodeError):
                await change_range(client, LOG, _KEYS, self._machines.numbers, self._rng)

    # Looks.

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(*_LOOK_EVERY_S))
            await self.look()

    async def look(self) -> None:
        """Read what a restore gives, from a copy of the store."""
        store = TierStore(MemoryStore(self._tier.contents))
        found: Entries = defaultdict(list)
        try:
            (log,) = logs_of(store, [LOG])
            with tempfile.TemporaryDirectory(dir=self._machines.root) as made:
                async for entries in entries_of(store, log, Path(made)):
                    for entry in entries:
                        found[entry.key].append((entry.seq, entry.value))
        except (NotFound, LogNotFound):
            return
        except Exception as error:  # of any kind: nobody waits for the task that looks
            self._wrong("no-restore", f"a restore fails: {error!r}")
            return
        self.looks.append(found)

    # What the store lacks, and what nobody needs.

    async def _wait(self, name: str, why: Callable[[], str]) -> None:
        """Wait until a reason is empty; it is an anomaly after a while."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _SETTLED_S
        while told := why():
            if loop.time() >= until:
                self._wrong(name, f"{_SETTLED_S:.0f} s after the faults ended, {told}")
                return
            await asyncio.sleep(_WAIT_S)

    def _led(self) -> dict[Chain, int]:
        """Return the ranges that nodes lead, with the indexes of their durable bases."""
        return {
            Chain(*replica.gid): replica.state.durable_base.applied_index
            for machine in self._machines
            for replica in machine.ranges()
            if replica.leads
        }

    def _snapshot(self) -> Snapshot:
        return TierStore(MemoryStore(self._tier.contents)).snapshot()

    def _lacks(self) -> str:
        """Return what the store lacks of the leaders' durable bases."""
        heads, led = self._snapshot().heads, self._led()
        if not led:
            return "no node leads a range"
        for chain, index in led.items():
            head = heads.get(chain)
            if head is None or not head.is_whole:
                return f"range {chain.text} has no whole manifest"
            if head.applied[0] < index:
                return f"range {chain.text} is durable to {index}, its head to {head.applied[0]}"
        for machine in self._machines:
            if count := machine.waiting_files():
                return f"node {machine.number} says that {count} files wait"
        return ""

    def _left(self) -> str:
        """Return what the store has besides what a restore of all present ranges needs."""
        snapshot, led = self._snapshot(), self._led()
        heads = [head for chain, head in snapshot.heads.items() if chain in led]
        needed = {held.path for head in heads for held in head.held.values()}
        stored = {file.path for file in self._stored()}
        if needed != stored:
            return f"files {sorted(needed ^ stored)[:2]} are left over or missing"
        folders = {file.chain for file in self._stored()}
        for chain, numbers in snapshot.numbers.items():
            if len(numbers) > 1:
                return f"range {chain.text} has {len(numbers)} manifests"
            if chain not in led and chain not in folders:
                return f"range {chain.text} has a manifest, which nothing needs"
        return ""

    def _stored(self) -> set[StoredFile]:
        parts = map(names.part_of, self._tier.contents)
        return {part[0] for part in parts if part is not None}

    # The judgement.

    async def _judge(self, admin: AsyncClient) -> None:
        final: Entries = {}
        for name in _KEYS:
            scan = admin.log(LOG).scan(name, timeout=_READ_S)
            final[name.encode()] = [(entry.seq, entry.value) async for entry in scan]
        for key, acked in self._acked.items():
            if lost := acked.items() - set(final[key]):
                self._wrong("lost-write", f"{len(lost)} entries of {key!r} are gone", "S2")
        self.judge_looks(final)

    def judge_looks(self, final: Entries) -> None:
        """Find restores that did not give the oldest entries of each key."""
        before: dict[bytes, int] = defaultdict(int)
        for at, look in enumerate(self.looks):
            for key, has in final.items():
                given = look.get(key, [])
                if given != has[: len(given)]:
                    told = _difference(given, has)
                    self._wrong("wrong-restore", f"restore {at} of key {key!r} {told}")
                if len(given) < before[key]:
                    told = f"gives {len(given)} entries, and gave {before[key]} before"
                    self._wrong("restore-went-back", f"restore {at} of key {key!r} {told}")
                before[key] = len(given)
            if strange := look.keys() - final.keys():
                self._wrong("wrong-restore", f"restore {at} has keys {sorted(strange)[:3]}")

    async def _split_again(self, admin: AsyncClient) -> None:
        """Split a range that has files: the store gets none of them again.

        A range that was split or moved a moment ago may have published nothing yet; then its files
        come again, and nothing is judged.
        """
        rows = await admin.admin.ranges(LOG)
        starts = {row["start"] for row in rows}
        free = [key for key in _KEYS[1:] if key.encode() not in starts]
        if not free:
            return
        row = max(
            (row for row in rows if row["start"] < free[0].encode()), key=lambda row: row["start"]
        )
        head = self._snapshot().heads.get(Chain(row["id"], row["generation"]))
        before = self._stored()
        known = {file.content_id for file in before}
        await self._repeated(lambda: admin.admin.split(LOG, at=free[0]))
        await self._wait("not-in-tier", self._lacks)
        child = Chain(row["id"], row["generation"] + 1)
        again = {file.content_id for file in self._stored() - before if file.chain == child} & known
        if head is None or not head.is_whole:
            return
        if again:
            self._wrong("uploaded-again", f"after a split, files {sorted(again)[:2]} came again")

    async def _delete(self, admin: AsyncClient) -> None:
        """Delete the log: everything of the log leaves the store."""
        await self._repeated(lambda: admin.delete_log(LOG))

        def left() -> str:
            heads = self._snapshot().heads.values()
            chains = [head.chain for head in heads if head.log.name == LOG]
            return f"the deleted log has manifests of {len(chains)} ranges" if chains else ""

        await self._wait("left-in-tier", left)

    async def _repeated(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Call until the cluster does not refuse: another change may be under way."""
        while True:
            with contextlib.suppress(LognodeError):
                await call()
                return
            await asyncio.sleep(_WAIT_S)

    def _wrong(self, name: str, told: str, promise: str | None = None) -> None:
        self.anomalies.append(Anomaly(name, told, promise=promise))


def _difference(given: list[tuple[int, bytes | None]], has: list[tuple[int, bytes | None]]) -> str:
    """Return how a restore differs from the key."""
    seqs, own = [seq for seq, _ in given], [seq for seq, _ in has]
    if len(set(seqs)) < len(seqs):
        return f"gives seq {next(seq for seq in seqs if seqs.count(seq) > 1)} twice"
    if strange := set(given) - set(has):
        return f"gives seq {min(seq for seq, _ in strange)}, which the key does not have so"
    if seqs != sorted(seqs):
        return "gives entries out of order"
    return f"leaves out seq {next(seq for seq in own if seq not in set(seqs))}"
