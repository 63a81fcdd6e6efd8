"""The batches of one answer to a consumer, as columns."""

from collections.abc import Sequence

from ...client.protocol.types import Headers
from ...statemachine.groups.group import Group
from .key_line import Line
from .leases import Lease


class Batches:
    """The answer to a consumer, as columns: keys, and the entries of all keys in one row."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.leases: list[Lease] = []
        self.deliveries: list[int] = []
        self.counts: list[int] = []
        self.seqs: list[int] = []
        self.timestamps: list[int] = []
        self.values: list[bytes | None] = []
        self.headers: dict[int, Headers] = {}
        """By place in the row of entries."""

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys."""
        return self._group.keys_of([lease.key for lease in self.leases])

    @property
    def tokens(self) -> list[int]:
        """The tokens of their leases."""
        return [lease.token for lease in self.leases]

    def add(self, lease: Lease, line: Line, deliveries: int, count: int) -> None:
        """Add the first entries of a line."""
        if line.headers:
            begin = len(self.seqs)
            for at, seq in enumerate(line.seqs[:count], begin):
                if seq in line.headers:
                    self.headers[at] = line.headers[seq]
        self.leases.append(lease)
        self.deliveries.append(deliveries)
        self.counts.append(count)
        if count == len(line.seqs):
            self.seqs += line.seqs
            self.timestamps += line.timestamps
            self.values += line.values
        else:
            self.seqs += line.seqs[:count]
            self.timestamps += line.timestamps[:count]
            self.values += line.values[:count]
