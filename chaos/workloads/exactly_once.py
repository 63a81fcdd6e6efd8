"""`exactly-once`: named producers that resend what was not acknowledged.

A name belongs to a slot. A process that fails or crashes leaves records of unknown outcome. The
next process opens the name again, which fences the old one, and resends the records with the same
numbers (S8).
"""

import asyncio
import random
from typing import Any, Final

from ...client.producer import AsyncProducer
from ..process import Process
from .append import Poller
from .parts import Keys, settled

_RECORDS_MAX: Final = 8


class ExactlyOnceWorkload:
    """Two of three processes produce, the others poll."""

    def __init__(self, rng: random.Random) -> None:
        self._keys = Keys(10, 100, rng)
        self._kept: dict[int, Kept] = {}

    def role(self, slot: int) -> str:
        """Return a word for the work of processes in this slot."""
        return "poller" if slot % 3 == 2 else "producer"

    def worker(self, slot: int, process: Process) -> "NamedProducer | Poller":
        """Return the worker of a new process in this slot."""
        if self.role(slot) == "poller":
            return Poller(process, self._keys)
        kept = self._kept.setdefault(slot, Kept(f"x{slot}"))
        return NamedProducer(process, kept, self._keys)


class Kept:
    """The state that outlives a producer's process: its name, and its unacknowledged records."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        """The last used record number."""
        self.unacked: list[tuple[int, str, str]] = []
        """Number, key and value of each unacknowledged record, in order."""


class NamedProducer:
    """One holder of a name."""

    def __init__(self, process: Process, kept: Kept, keys: Keys) -> None:
        self._process = process
        self._kept = kept
        self._keys = keys
        self._producer: AsyncProducer | None = None

    async def step(self) -> None:
        """Send the unacknowledged records and some more; open the name first."""
        process, kept = self._process, self._kept
        await process.turn()
        if not kept.unacked:
            for _ in range(process.rng.randint(1, _RECORDS_MAX)):
                kept.number += 1
                value = f"{kept.name}-{kept.number}"
                kept.unacked.append((kept.number, self._keys.to_append(), value))
        asked = {
            "producer": kept.name,
            "records": [[key, value] for _, key, value in kept.unacked],
            "numbers": [number for number, _, _ in kept.unacked],
        }
        answered = await process.call("append", asked, self._send(), writes=True)
        if answered is not None:
            kept.unacked = []
        elif self._producer is not None:
            await self.close()
            self._producer = None  # a failure ends a session; the numbers continue in the next

    async def drain(self) -> None:
        """Send the unacknowledged records once more."""
        if self._kept.unacked:
            await self.step()

    async def close(self) -> None:
        """Abandon the operations under way."""
        if self._producer is not None:
            await self._producer.close(timeout=0.0)

    async def _send(self) -> dict[str, Any]:
        if self._producer is None:
            producer = self._process.log.producer(
                name=self._kept.name, timeout=self._process.timeout_s
            )
            await producer.open()
            self._producer = producer
        tickets = [
            await self._producer.submit(key, value.encode(), number=number)
            for number, key, value in self._kept.unacked
        ]
        return {"seqs": settled(await asyncio.gather(*tickets, return_exceptions=True))}
