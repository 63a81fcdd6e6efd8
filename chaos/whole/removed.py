"""Logs whose entries are removed: by bytes, by age, by key, and by compaction.

One client appends values that are large for the small WAL of a simulated node, so that nodes write
segments, merge them, and remove files. No fault here changes which entries may be gone:

- by bytes and by age, a range loses its entries in order: all below some seq, and never the newest;
- by key, only what was asked for goes, and what was acknowledged as removed stays away;
- compaction keeps the newest entry of each key.
"""

import asyncio
import contextlib
import random
from collections import defaultdict
from typing import Final

from ...client.client import AsyncClient
from ...client.protocol.errors import LognodeError
from ..verdict import Anomaly
from .nodes import Machines

_ANSWER_S: Final = 2.0
_READ_S: Final = 30.0
_RATE: Final = 25.0
_VALUE_BYTES: Final = (500, 24_000)
_KEYS: Final = ("k1", "k2", "k3", "k4")
_BYTES: Final = 48 * 1024
_SETTLE_S: Final = 2.5
"""Removal is decided every two seconds, and merges are looked for every second."""
_FILLS, _FILL = 4, 30
"""How often and how many entries are appended at once after the faults: more than a WAL keeps, so
that the nodes write segments."""
_TRIMS: Final = 0.05

BY_BYTES, BY_AGE, BY_KEY, COMPACT = "by-bytes", "by-age", "by-key", "compacted"
_LOGS: Final = (BY_BYTES, BY_AGE, BY_KEY, COMPACT)

Entries = dict[int, bytes | None]


class Removed:
    """Implements `sides.Side`."""

    def __init__(self, machines: Machines, rng: random.Random) -> None:
        self.anomalies: list[Anomaly] = []
        self._machines = machines
        self._rng = rng
        self._acked: defaultdict[tuple[str, str], Entries] = defaultdict(dict)
        """Acknowledged entries by log and key, by seq."""
        self._asked: defaultdict[str, int] = defaultdict(int)
        """By key, below which seq entries were asked to go."""
        self._gone: defaultdict[str, int] = defaultdict(int)
        """By key, below which seq entries are gone for sure."""

    async def prepare(self, admin: AsyncClient) -> None:
        """Make the logs."""
        await admin.create_log(BY_BYTES, retention_bytes=_BYTES)
        await admin.create_log(BY_AGE, retention_ms=1_500, snapshot_delay_ms=500)
        await admin.create_log(BY_KEY)
        await admin.create_log(COMPACT, cleanup="compact", delete_retention_ms=3_600_000)

    async def run(self) -> None:
        """Append and remove until cancelled."""
        client = AsyncClient(self._machines.servers, timeout=_ANSWER_S)
        try:
            while True:
                await asyncio.sleep(self._rng.expovariate(_RATE))
                with contextlib.suppress(LognodeError):
                    if self._rng.random() < _TRIMS:
                        await self._trim(client)
                    else:
                        await self._append(client)
        finally:
            await client.close(timeout=0.0)

    async def finish(self, admin: AsyncClient) -> None:
        """Append more without faults, wait for removal, and judge what is left."""
        for _ in range(_FILLS):
            await asyncio.gather(*(self._append(admin) for _ in range(_FILL)))
            await asyncio.sleep(_SETTLE_S)
        for log in _LOGS:
            left: dict[str, Entries] = {}
            for key in _KEYS:
                scan = admin.log(log).scan(key, timeout=_READ_S)
                left[key] = {entry.seq: entry.value async for entry in scan}
            self._judge(log, left)

    async def _append(self, client: AsyncClient) -> None:
        log, key = self._rng.choice(_LOGS), self._rng.choice(_KEYS)
        value = self._rng.randbytes(self._rng.randint(*_VALUE_BYTES))
        is_end = log == COMPACT and self._rng.random() < 0.1
        ack = await client.log(log).append(
            key, None if is_end else value, snapshot=log == BY_AGE and self._rng.random() < 0.2
        )
        if ack.seq is not None:
            self._acked[log, key][ack.seq] = None if is_end else value

    async def _trim(self, client: AsyncClient) -> None:
        key = self._rng.choice(_KEYS)
        acked = sorted(self._acked[BY_KEY, key])
        if not acked:
            return
        before = self._rng.choice(acked)
        self._asked[key] = max(self._asked[key], before)
        await client.log(BY_KEY).trim(key, before)
        self._gone[key] = max(self._gone[key], before)

    def _judge(self, log: str, left: dict[str, Entries]) -> None:
        for key in _KEYS:
            acked, now = self._acked[log, key], left[key]
            for seq in acked.keys() & now.keys():
                if acked[seq] != now[seq]:
                    self._wrong("S3", log, f"entry {seq} of {key} has another value")
            if log == COMPACT and acked and max(acked) > max(now, default=-1):
                self._wrong("S2", log, f"the newest entry {max(acked)} of {key} is gone")
            if log == BY_KEY:
                if lost := [seq for seq in acked if seq not in now and seq >= self._asked[key]]:
                    self._wrong("S2", log, f"entries {lost[:5]} of {key} are gone")
                if back := [seq for seq in now if seq < self._gone[key]]:
                    self._wrong("S5", log, f"removed entries {back[:5]} of {key} are there")
        if log == BY_BYTES:
            self._judge_floor(log, left)

    def _judge_floor(self, log: str, left: dict[str, Entries]) -> None:
        """The range lost its entries in order of their seqs, and not the newest."""
        acked = {seq for key in _KEYS for seq in self._acked[log, key]}
        now = {seq for entries in left.values() for seq in entries}
        missing = acked - now
        if missing and min(now, default=0) < max(missing):
            told = f"entry {max(missing)} is gone, and the older entry {min(now, default=0)} is not"
            self._wrong("S2", log, told)
        if acked and max(acked) > max(now, default=-1):
            self._wrong("S2", log, f"the newest entry {max(acked)} is gone")

    def _wrong(self, promise: str, log: str, told: str) -> None:
        self.anomalies.append(Anomaly("removed", f"log {log}: {told}", promise=promise))
