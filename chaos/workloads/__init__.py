"""chaos/workloads/: what the clients of a test do. One file a workload; the shapes of what they
record are those that the checkers of the same name read.

- `append`: unique values to keys by many producers, polls, reads and scans by many readers;
- `follow`: followers of a key, of a prefix and of the log, beside producers;
- `register`: conditional appends, on keys that several clients want;
- `set`: adds to a key, and reads of whole keys;
- `exactly_once`: producers with names that go on with what was not acknowledged;
- `snapshots`: snapshots that are taken and read several times, beside producers.

`parts` has what they share.
"""

from typing import Protocol

from ..process import Process


class Worker(Protocol):
    """What one process does. Its methods raise `Retired` when the process must do no more."""

    async def step(self) -> None:
        """The next operation, in its turn."""

    async def drain(self) -> None:
        """The test's time is over and all faults are healed: take what is still to come."""

    async def close(self) -> None:
        """The process ends."""


class Workload(Protocol):
    """What all processes of a test do; keeps what outlives one of them."""

    def role(self, slot: int) -> str:
        """What processes in this slot do, in a word."""

    def worker(self, slot: int, process: Process) -> Worker:
        """For a new process in this slot."""
