"""Whether nodes keep what Kafka's protocol promises, with the questions of Jepsen's test of queues.

`lost`: an acknowledged record is not there at the end; `vanished`: nor is one that was polled.
`broken-producer`: an idempotent producer was told that the record before is missing, or of another
error after which it sends nothing more. `duplicate`: a value is at two offsets.
`inconsistent-offset`: two values are at one offset, or a record is not at the offset of its
acknowledgement. `phantom`: nobody sent a value to the partition where it is. `nonmonotonic-send`:
the records of one send do not have rising offsets; `realtime-order`: nor have two records of which
the second was sent after the acknowledgement of the first. `nonmonotonic-poll`: the offsets of a
consumer do not rise. `int-poll-skip`, `poll-skip`: a consumer passes a record, within one poll or
between two. `beyond-end`: a consumer got a record at or behind the high watermark that it was told
with it. `watermark-went-back`; `stale-end`: a high watermark is below a record that was
acknowledged before; `gap-at-end`: a high watermark is not the offset behind a record, at which
consumers of Java stand still. `commit-went-back`: a member begins, or somebody is told, below an
offset that was committed before. `skipped-by-group`, `unseen`: no member of the group got a record
below a committed offset, or a record at all, in the end.
"""

from collections.abc import Iterator
from itertools import pairwise

from ..history import History, Operation
from ..verdict import Anomaly, Result
from .kafka_account import KafkaAccount, Place, Run, Told, later


def kafka(history: History) -> Result:
    """Check a history of Kafka clients."""
    account = KafkaAccount(history)
    result = Result("kafka")
    for rule in (
        _places, _phantoms, _broken, _sends, _runs, _beyond, _watermarks, _ends, _commits, _starts,
    ):  # fmt: skip
        result.anomalies += rule(account)
    if account.final is None:
        result.unknown.append("there is no read of everything at the end")
    else:
        result.anomalies += _lost(account)
        if account.final.answer["left"]:
            left = ", ".join(account.final.answer["left"])
            result.unknown.append(f"the read at the end did not reach the end of partition {left}")
        else:
            result.anomalies += _unseen(account)
    result.counts = {
        "records acknowledged": sum(one.acked for one in account.records.values()),
        "records of unknown outcome": sum(not one.acked for one in account.records.values()),
        "records at the end": sum(map(len, account.at_end.values())),
        "records polled": len(account.seen),
        "assignments to members": sum(run.group is not None for run in account.runs),
        "offsets committed": sum(one.is_sure for one in account.commits),
        "offsets with a failed commit": sum(not one.is_sure for one in account.commits),
    }
    return result


def _places(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find values at two places, and places with two values."""
    at: dict[Place, tuple[str | None, Operation]] = {}
    of: dict[str, tuple[Place, Operation]] = {}
    told: set[str | Place] = set()
    for place, value, one in account.places():
        before = at.setdefault(place, (value, one))
        if before[0] != value and place not in told:
            told.add(place)
            yield _anomaly(
                "inconsistent-offset", f"{_at(place)} was {before[0]}, and then {value}",
                place[0], "S6", before[1], one,
            )  # fmt: skip
        if value is None:
            continue
        first, was = of.setdefault(value, (place, one))
        if first != place and value not in told:
            told.add(value)
            yield _anomaly(
                "duplicate", f"{value} is at {_at(first)} and at {_at(place)}",
                place[0], "S8", was, one,
            )  # fmt: skip


def _phantoms(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find values that nobody sent to their partition."""
    told: set[str | None] = set()
    for place, value, one in account.seen:
        record = None if value is None else account.records.get(value)
        if (record is None or record.partition != place[0]) and value not in told:
            told.add(value)
            message = f"{value} is at {_at(place)}, and nobody sent it there"
            yield _anomaly("phantom", message, place[0], "S2", one)


def _broken(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find producers that a node has broken."""
    told: set[int] = set()
    for record in account.records.values():
        one = record.operation
        error = one.answer.get("broken") if one.outcome == "ok" else None
        if error is not None and one.index not in told:
            told.add(one.index)
            message = f"producer {one.asked['producer']} sends nothing more: {error}"
            yield _anomaly("broken-producer", message, record.partition, "S8", one)


def _sends(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find acknowledged records whose offsets are not in the order of sending."""
    last: dict[tuple[int, int], int] = {}
    numbers = []
    for record in account.records.values():
        if record.offset is None:
            continue
        one = record.operation
        numbers.append(Told(record.partition, record.offset, one))
        key = one.index, record.partition
        highest = last.get(key, -1)
        if record.offset <= highest:
            yield _anomaly(
                "nonmonotonic-send",
                f"{record.value} is at offset {record.offset} of partition {record.partition}, and "
                f"the record sent before it at {highest}",
                record.partition, "S4", one,
            )  # fmt: skip
        last[key] = max(highest, record.offset)
    for before, after in later(numbers, numbers):
        yield _anomaly(
            "realtime-order",
            f"a record sent after the acknowledgement of offset {before.number} of partition "
            f"{after.partition} is at {after.number}",
            after.partition, "S4", before.operation, after.operation,
        )  # fmt: skip


def _runs(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find offsets that do not rise, and records that a consumer passed."""
    for run in account.runs:
        if run.start is not None and run.got:
            offset, one = run.got[0]
            if offset < run.start:
                message = f"a consumer that begins at {run.start} got offset {offset}"
                yield _anomaly("nonmonotonic-poll", message, run.partition, "S4", run.began, one)
            yield from _passed(account, run, run.start - 1, run.began, offset, one)
        for (before, first), (offset, second) in pairwise(run.got):
            if offset <= before:
                place = _at((run.partition, offset))
                message = f"a consumer got {place} after offset {before}"
                yield _anomaly("nonmonotonic-poll", message, run.partition, "S4", first, second)
            yield from _passed(account, run, before, first, offset, second)


def _passed(
    account: KafkaAccount, run: Run, before: int, first: Operation, offset: int, second: Operation
) -> Iterator[Anomaly]:
    missed = account.known(run.partition, before, offset)
    if missed is not None:
        name = "int-poll-skip" if first.index == second.index else "poll-skip"
        message = (
            f"a consumer of partition {run.partition} got offset {offset} after {before}, without "
            f"{missed}"
        )
        yield _anomaly(name, message, run.partition, "S3", first, second)


def _beyond(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find records at or behind the high watermark of the same poll."""
    ends = {(told.operation.index, told.partition): told.number for told in account.ends}
    for (partition, offset), _, one in account.seen:
        end = ends.get((one.index, partition))
        if end is not None and offset >= end:
            message = f"offset {offset} of partition {partition} came with the high watermark {end}"
            yield _anomaly("beyond-end", message, partition, "S3", one)


def _watermarks(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find watermarks that go back, and high watermarks below what was acknowledged."""
    for what, numbers in (("low", account.lows), ("high", account.highs)):
        for before, after in later(numbers, numbers):
            yield _anomaly(
                "watermark-went-back",
                f"the {what} watermark of partition {after.partition} was {before.number}, and "
                f"then {after.number}",
                after.partition, "S6", before.operation, after.operation,
            )  # fmt: skip
    acked = [
        Told(one.partition, one.offset + 1, one.operation)
        for one in account.records.values() if one.offset is not None
    ]  # fmt: skip
    for before, after in later(acked, account.highs):
        yield _anomaly(
            "stale-end",
            f"the high watermark of partition {after.partition} is {after.number}, though offset "
            f"{before.number - 1} was acknowledged before",
            after.partition, "S7", before.operation, after.operation,
        )  # fmt: skip


def _ends(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find high watermarks that are not the offset behind a record. Only the read at the end tells
    whether a record of unknown outcome is there, as far as the read came."""
    lows = {(told.operation.index, told.partition): told.number for told in account.lows}
    for told in account.highs:
        if told.number == lows[told.operation.index, told.partition]:
            continue  # an empty partition
        if told.number > account.read_to(told.partition):
            continue
        if account.last_below(told.partition, told.number) != told.number - 1:
            message = (
                f"the high watermark of partition {told.partition} is {told.number}, and no record "
                f"is at {told.number - 1}"
            )
            yield _anomaly("gap-at-end", message, told.partition, "S3", told.operation)


def _commits(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find committed offsets that somebody was told and that are below earlier ones."""
    floors = _sure(account) + account.committed
    for before, after in later(floors, account.committed):
        if _is_late(account, before, after):
            continue
        yield _anomaly(
            "commit-went-back",
            f"the committed offset of partition {after.partition} is {after.number}, and was "
            f"{before.number} before",
            after.partition, "S9", before.operation, after.operation,
        )  # fmt: skip


def _starts(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find members that begin below a committed offset, or behind all offsets that were tried."""
    firsts = [run for run in account.runs if run.group is not None and run.got]
    begins = [Told(run.partition, run.got[0][0], run.began) for run in firsts]
    for before, after in later(_sure(account), begins):
        if _is_late(account, before, after):
            continue
        yield _anomaly(
            "commit-went-back",
            f"a member began at offset {after.number} of partition {after.partition}, though "
            f"{before.number} was committed before",
            after.partition, "S9", before.operation, after.operation,
        )  # fmt: skip
    tried: dict[int, list[tuple[int, int]]] = {}
    for one in account.commits:
        tried.setdefault(one.partition, []).append((one.operation.began, one.offset))
    for run in firsts:
        offset, got = run.got[0]
        ended = got.ended or got.began
        most = max((to for began, to in tried.get(run.partition, ()) if began < ended), default=0)
        missed = account.known(run.partition, most - 1, offset)
        if missed is not None:
            message = (
                f"a member began at offset {offset} of partition {run.partition}, without "
                f"{missed}; the highest offset that anybody committed is {most}"
            )
            yield _anomaly("poll-skip", message, run.partition, "S3", run.began, got)


def _sure(account: KafkaAccount) -> list[Told]:
    return [
        Told(one.partition, one.offset, one.operation) for one in account.commits if one.is_sure
    ]


def _is_late(account: KafkaAccount, floor: Told, found: Told) -> bool:
    """Whether a lower offset may come from a commit without an outcome of the member that committed
    the higher one: the request may arrive after those that followed it, as with Kafka."""
    of = [one for one in account.commits if one.partition == floor.partition]
    since = {
        one.operation.process: one.operation.index for one in of if one.offset == floor.number
    }  # fmt: skip
    return any(
        not one.is_sure and one.offset <= found.number
        and one.operation.index < since.get(one.operation.process, -1)
        for one in of
    )  # fmt: skip


def _lost(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find records that are not there at the end, as far as the read came."""
    assert account.final is not None
    left = {value for rows in account.at_end.values() for value in rows.values()}
    for record in account.records.values():
        if record.acked and record.value not in left and account.has_read(*record.place):
            message = (
                f"{record.value} was acknowledged at offset {record.offset} of partition "
                f"{record.partition}, and is not there at the end"
            )
            operations = record.operation, account.final
            yield _anomaly("lost", message, record.partition, "S2", *operations)
    told: set[Place] = set()
    for place, value, one in account.seen:
        is_there = place[1] in account.at_end.get(place[0], {}) or not account.has_read(*place)
        if not is_there and place not in told:
            told.add(place)
            message = f"{value} was polled at {_at(place)}, and is not there at the end"
            yield _anomaly("vanished", message, place[0], "S2", one, account.final)


def _unseen(account: KafkaAccount) -> Iterator[Anomaly]:
    """Find records that no member of the group got."""
    assert account.final is not None
    seen = {(run.partition, offset) for run in account.runs if run.group for offset, _ in run.got}
    passed: dict[int, int] = {}
    for one in account.commits:
        if one.is_sure:
            passed[one.partition] = max(one.offset, passed.get(one.partition, 0))
    for partition, rows in account.at_end.items():
        for offset, value in rows.items():
            if (partition, offset) in seen:
                continue
            is_below = offset < passed.get(partition, 0)
            below = f", below the committed offset {passed[partition]}" if is_below else ""
            message = f"no member got {value} at {_at((partition, offset))}{below}"
            name = "skipped-by-group" if is_below else "unseen"
            yield _anomaly(name, message, partition, "S9", account.final)


def _at(place: Place) -> str:
    return f"offset {place[1]} of partition {place[0]}"


def _anomaly(
    name: str, message: str, partition: int, promise: str, *operations: Operation
) -> Anomaly:
    indices = tuple(dict.fromkeys(one.index for one in operations))
    return Anomaly(name, message, str(partition), indices, promise)
