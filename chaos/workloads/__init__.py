"""chaos/workloads/: what the clients of a test do, one file a workload.

The checkers of the same name read the records of a workload.

- `append`: unique values to keys by many producers, polls, reads and scans by many readers;
- `follow`: followers of a key, of a prefix and of the log, beside producers;
- `register`: conditional appends to keys that several clients compete for;
- `set` (`sets`): adds to a key, and reads of whole keys;
- `exactly_once`: named producers that resend what was not acknowledged;
- `snapshots`: snapshots that are taken and read several times, beside producers;
- `groups`: consumers of a group that take and settle items, beside producers and operators;
- `views`: appends that wait for a group and for a cursor, beside their readers;
- `kafka`: Kafka clients, which `kafka_clients` has: producers, consumers, members of a group.

`parts` has the shared parts.
"""

from typing import Protocol

from ..process import Process


class Worker(Protocol):
    """The work of one process. Its methods raise `Retired` when the process must stop."""

    async def step(self) -> None:
        """Do the next operation, in turn."""

    async def drain(self) -> None:
        """Take the last deliveries: the test's time is over and all faults are healed."""

    async def close(self) -> None:
        """End the work of the process."""


class Workload(Protocol):
    """The work of all processes of a test; it keeps the state that outlives a process."""

    def role(self, slot: int) -> str:
        """Return a word for the work of processes in this slot."""

    def worker(self, slot: int, process: Process) -> Worker:
        """Return the worker of a new process in this slot."""
