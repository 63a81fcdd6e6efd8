"""Producers and record batches of the client that `foreign_client` is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgpack
import zstandard
from foreign_client import Client, Retries
from foreign_wire import Body, Refused

ANY, ABSENT = -1, 0
BATCH_RECORDS, BATCH_BYTES = 10_000, 1_048_576


@dataclass
class Record:
    """What is to be appended, and its outcome."""

    key: bytes
    value: bytes | None
    headers: Mapping[bytes, bytes] | None = None
    expect: int = ANY
    snapshot: bool = False
    number: int = 0
    seq: int | None = None
    duplicate: bool = False
    actual: int | None = None
    """The condition did not hold: the last seq of the key."""


def pack_batch(
    records: Sequence[Record], producer: int, epoch: int, low: int, *,
    prevs: Sequence[int] | None = None, flags: int = 0,
) -> bytes:  # fmt: skip
    """The bytes of one batch."""
    values = msgpack.packb([record.value for record in records])
    size = len(values)
    if size > 256:
        compressed = zstandard.ZstdCompressor(level=1).compress(values)
        if len(compressed) < size:
            values, flags = compressed, flags | 1
    headers, expects = [r.headers for r in records], [r.expect for r in records]
    marks = [at for at, record in enumerate(records) if record.snapshot]
    numbers: int | list[int] = [record.number for record in records]
    if numbers == list(range(numbers[0], numbers[0] + len(records))):
        numbers = numbers[0]
    return bytes(msgpack.packb([
        1, len(records), producer, epoch, low, numbers, prevs, flags,
        expects if any(e != ANY for e in expects) else None, marks or None,
        msgpack.packb([r.key for r in records]),
        msgpack.packb(headers) if any(headers) else None, values, size,
    ]))  # fmt: skip


class Producer:
    """Appends each record once. One batch is under way at a time."""

    def __init__(
        self, client: Client, log: str, name: str | None = None, *, first_number: int = 1
    ) -> None:
        opened = client.ask_any("producer_open", {"name": name})
        self.client, self.log = client, log
        self.id, self.epoch, self.grant = opened["id"], opened["epoch"], opened.get("grant")
        self.next_number = first_number
        self._unsettled: set[int] = set()
        self._named, self._clean = name is not None, True
        self._used: set[bytes] = set()
        if name is not None:
            for known in client.spans(log):
                body = {"id": self.id, "epoch": self.epoch, "grant": self.grant}
                client.ask(log, known.start, "fence", body)

    def append(self, records: Sequence[Record], *, each: bool = False) -> None:
        """Append records in their order, and tell each its outcome. `each`: those whose
        conditions do not hold are left out. Raises Refused: a named producer then has to be opened
        again, another one gives the numbers up."""
        for record in records:
            record.number = self.next_number
            self.next_number += 1
            self._unsettled.add(record.number)
        retries = Retries("append", self.client.timeout)
        try:
            for group in self._groups(records):
                self._deliver(group, each, retries)
        finally:
            if not self._named:
                self._unsettled.clear()

    def _groups(self, records: Sequence[Record]) -> list[list[Record]]:
        """Batches: records of one range, within the bounds of a batch."""
        lanes: dict[bytes, list[Record]] = {}
        found: list[list[Record]] = []
        room: dict[bytes, int] = {}
        for record in records:
            start = self.client.locate(self.log, record.key)[1].start
            size = len(record.key) + len(record.value or b"")
            size += sum(len(k) + len(v) for k, v in (record.headers or {}).items())
            room[start] = room.get(start, 0) - size
            if room[start] < 0 or len(lanes[start]) == BATCH_RECORDS:
                lanes[start] = []
                found.append(lanes[start])
                room[start] = BATCH_BYTES - size
            lanes[start].append(record)
        return found

    def _deliver(self, records: list[Record], each: bool, retries: Retries) -> None:
        """Until the range has answered; a split puts records into other batches, with the numbers
        that they have."""
        client = self.client
        while True:
            log, known = client.locate(self.log, records[0].key)
            if not all(known.has(record.key) for record in records):
                for group in self._groups(records):
                    self._deliver(group, each, retries)
                return
            self._used.add(known.start)
            flags = 4 if each else 0
            batch = pack_batch(records, self.id, self.epoch, min(self._unsettled), flags=flags)
            node = known.leader or known.members[0]
            body = {"range": known.id, "generation": known.generation, "batches": [batch],
                    "grant": self.grant}  # fmt: skip
            try:
                connection = client.at(node)
                (result,) = connection.ask("append", body, retries.attempt())["results"]
                if result["status"] == "error":
                    raise Refused.of(result["error"])
            except Refused as error:
                self._clean = self._clean and error.outcome != "unknown"
                client.heed(log, known, node, error, retries)
                continue
            _settle(records, result)
            self._unsettled -= {record.number for record in records}
            return

    def close(self) -> None:
        """The ranges may forget the producer, if each of its requests was answered."""
        for start in self._used if self._clean else ():
            _, known = self.client.locate(self.log, start)
            body = {"range": known.id, "generation": known.generation, "id": self.id,
                    "grant": self.grant}  # fmt: skip
            self.client.at(known.leader or known.members[0]).tell("producer_close", body)


def _settle(records: Sequence[Record], result: Body) -> None:
    """Tell each record its outcome."""
    first = result.get("first_seq")
    if first is not None:
        for at, record in enumerate(records):
            record.seq = first + at
        return
    for record, seq in zip(records, result["seqs"], strict=True):
        record.seq = seq
    for at in result.get("duplicates") or ():
        records[at].duplicate = True
    for at, actual in zip(result.get("refused") or (), result.get("actual") or (), strict=True):
        records[at].actual = actual
