"""The facts of a history of Kafka clients: records with their places, runs of consumers, commits.

Offsets give the order of a partition's records, so that each rule takes n log n. A run is what one
consumer got of one partition, from an assignment to the next.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..history import History, Operation

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(slots=True)
class Record:
    """A value that a producer sent; values are unique."""

    value: str
    partition: int
    operation: Operation
    acked: bool = False
    offset: int | None = None
    """The offset of the acknowledgement, where there is one."""

    @property
    def place(self) -> tuple[int, int | None]:
        """The partition, and the offset if it is known."""
        return self.partition, self.offset


@dataclass(slots=True)
class Run:
    """Records that a consumer got of a partition, in the order of getting."""

    partition: int
    group: str | None
    began: Operation
    """The operation with the assignment."""
    start: int | None = None
    """The offset at which the consumer wanted to begin; None for a member of a group."""
    got: list[tuple[int, Operation]] = field(default_factory=list)
    """The offset of each record, and the operation that returned it."""


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset of a partition that a member committed, or tried to."""

    partition: int
    offset: int
    operation: Operation

    @property
    def is_sure(self) -> bool:
        """Whether the commit was acknowledged."""
        return self.operation.outcome == "ok"


@dataclass(frozen=True, slots=True)
class Told:
    """A number that an operation was told about a partition, such as a watermark."""

    partition: int
    number: int
    operation: Operation


class KafkaAccount:
    """The facts of a history. Raises ValueError, KeyError or TypeError for another shape."""

    def __init__(self, history: History) -> None:
        self.records: dict[str, Record] = {}
        self.seen: list[tuple[Place, str | None, Operation]] = []
        """Each record that a consumer got, with its place."""
        self.runs: list[Run] = []
        self.commits: list[Commit] = []
        self.committed: list[Told] = []
        """Committed offsets that somebody was told."""
        self.lows: list[Told] = []
        self.highs: list[Told] = []
        """Watermarks of requests for offsets."""
        self.ends: list[Told] = []
        """High watermarks that came with records."""
        self.final: Operation | None = None
        self.at_end: dict[int, dict[int, str | None]] = {}
        """The records of each partition at the end, by offset."""
        self._open: dict[tuple[int, int], Run] = {}
        """The newest run of each process and partition."""
        for one in history.operations():
            self._take(one)
        self._known: dict[int, list[int]] = {}
        self._gather_known()

    # Facts.

    def known(self, partition: int, after: int, before: int) -> int | None:
        """Return the first offset between two with a record that somebody knows of, or None."""
        offsets = self._known.get(partition, [])
        at = bisect_right(offsets, after)
        return offsets[at] if at < len(offsets) and offsets[at] < before else None

    def last_below(self, partition: int, end: int) -> int | None:
        """Return the offset of the last known record below `end`, or None."""
        offsets = self._known.get(partition, [])
        at = bisect_left(offsets, end)
        return offsets[at - 1] if at else None

    def read_to(self, partition: int) -> float:
        """Return the offset below which the read at the end has got all records of a partition."""
        if self.final is None:
            return 0
        if str(partition) not in self.final.answer["left"]:
            return math.inf
        return max(self.at_end.get(partition, ()), default=-1) + 1

    def has_read(self, partition: int, offset: int | None) -> bool:
        """Return whether the read at the end has passed an offset; None: one that is not known."""
        to = self.read_to(partition)
        return to == math.inf or (offset is not None and offset < to)

    def places(self) -> Iterator[tuple[Place, str | None, Operation]]:
        """Yield each place with the value that somebody saw there, or was acknowledged there."""
        for record in self.records.values():
            if record.offset is not None:
                yield (record.partition, record.offset), record.value, record.operation
        yield from self.seen

    def _gather_known(self) -> None:
        found: dict[int, set[int]] = {}
        for (partition, offset), _, _ in self.places():
            found.setdefault(partition, set()).add(offset)
        self._known = {partition: sorted(offsets) for partition, offsets in found.items()}

    # Operations.

    def _take(self, one: Operation) -> None:
        if one.f == "append":
            self._sent(one)
        elif one.f == "commit":
            self.commits += [Commit(at, offset, one) for at, offset in one.asked["offsets"]]
        elif one.outcome != "ok":
            return
        elif one.f == "consume":
            self._consumed(one)
        elif one.f == "assign":
            self._assigned(one)
        elif one.f == "offsets":
            self._watermarks(one)
        elif one.f == "committed":
            self._committed(one)
        elif one.f == "final":
            self._final(one)
        else:
            raise ValueError(f"the operation {one.f!r} is not one of Kafka clients")

    def _sent(self, one: Operation) -> None:
        is_ok = one.outcome == "ok"
        seqs = one.answer["seqs"] if is_ok else []
        unsure = set(one.answer["unsure"]) if is_ok else set()
        for place, (partition, value) in enumerate(one.asked["records"]):
            record = Record(value, int(partition), one)
            if is_ok and place not in unsure:
                record.acked, record.offset = True, seqs[place]
            if value in self.records:
                raise ValueError(f"the value {value!r} was sent twice")
            self.records[value] = record

    def _assigned(self, one: Operation) -> None:
        for process, partition in list(self._open):
            if process == one.process:
                del self._open[process, partition]
        for partition, offset in one.asked["places"]:
            self._begin(Run(partition, None, one, offset), one)

    def _begin(self, run: Run, one: Operation) -> None:
        self._open[one.process, run.partition] = run
        self.runs.append(run)

    def _consumed(self, one: Operation) -> None:
        group = one.asked["group"]
        for event in one.answer["events"]:
            if event[0] == "revoke":
                for partition in event[1]:
                    self._open.pop((one.process, partition), None)
            elif event[0] == "assign":
                for partition in event[1]:
                    self._begin(Run(partition, group, one), one)
            else:
                partition, offset, value = event
                self.seen.append(((partition, offset), value, one))
                run = self._open.get((one.process, partition))
                if run is None:
                    raise ValueError(
                        f"process {one.process} got offset {offset} of partition {partition}, "
                        "which nobody assigned to it"
                    )
                run.got.append((offset, one))
        for name, end in one.answer["ends"].items():
            self.ends.append(Told(int(name), end, one))

    def _watermarks(self, one: Operation) -> None:
        for name, (low, high) in one.answer["ends"].items():
            self.lows.append(Told(int(name), low, one))
            self.highs.append(Told(int(name), high, one))

    def _committed(self, one: Operation) -> None:
        for name, offset in one.answer["offsets"].items():
            self.committed.append(Told(int(name), offset, one))

    def _final(self, one: Operation) -> None:
        self.final = one
        self._watermarks(one)
        self._committed(one)
        for name, rows in one.answer["keys"].items():
            self.at_end[int(name)] = dict(rows)
            self.seen += [((int(name), offset), value, one) for offset, value in rows]


def later(floors: Iterable[Told], checked: Iterable[Told]) -> Iterator[tuple[Told, Told]]:
    """Yield each checked number that began after the end of an operation with a higher number in
    `floors`, with the highest of these."""
    events: list[tuple[int, int, Told]] = []
    for told in floors:
        if told.operation.ended is not None:
            events.append((told.operation.ended, 1, told))
    events += [(told.operation.began, 0, told) for told in checked]
    highest: dict[int, Told] = {}
    for _, is_floor, told in sorted(events, key=lambda event: event[:2]):
        before = highest.get(told.partition)
        if not is_floor:
            if before is not None and before.number > told.number:
                yield before, told
        elif before is None or told.number > before.number:
            highest[told.partition] = told
