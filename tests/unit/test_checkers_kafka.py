"""The checker of Kafka clients: a good history, and each anomaly once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hand_history import Story

from lognode.chaos.checkers.kafka import kafka
from lognode.chaos.history import History, Type
from lognode.chaos.verdict import Result

Records = Sequence[tuple[int, str]]


class Queue:
    """Histories of one partition, 0, and a group. Process 1 sends, 2 and 3 are members, 4 has the
    partition assigned, 5 watches."""

    def __init__(self) -> None:
        self.story = Story()
        self.there: dict[int, str] = {}
        self.seen = 0

    def send(
        self, *offsets: int | None, type: Type = "ok", unsure: Sequence[int] = (),  # noqa: A002
        **more: str,
    ) -> None:  # fmt: skip
        """Values `v1`, `v2`, ... that get these offsets."""
        values = [f"v{self.seen + place + 1}" for place in range(len(offsets))]
        self.seen += len(offsets)
        for value, offset in zip(values, offsets, strict=True):
            if offset is not None and type == "ok":
                self.there[offset] = value
        asked = {"producer": "p1/1", "records": [["0", value] for value in values]}
        answer: Any = {"seqs": list(offsets), "unsure": list(unsure), **more}
        answer = answer if type == "ok" else None
        self.story.do(1, "append", asked, answer, type=type)

    def assign(self, start: int) -> None:
        self.story.do(4, "assign", {"places": [[0, start]]}, {})

    def consume(
        self, process: int, *offsets: int, end: int | None = None, other: Mapping[int, str] = {}
    ) -> None:
        """Records by their offsets, `other` with values of their own; process 4 is outside the
        group."""
        values = {**self.there, **other}
        events: list[Any] = [[0, offset, values[offset]] for offset in offsets]
        self._consume(process, events, end)

    def joins(self, process: int, *offsets: int) -> None:
        """A member gets the partition, and these records."""
        events: list[Any] = [["assign", [0]], *([0, at, self.there[at]] for at in offsets)]
        self._consume(process, events, None)

    def leaves(self, process: int) -> None:
        self._consume(process, [["revoke", [0]]], None)

    def _consume(self, process: int, events: list[Any], end: int | None) -> None:
        asked = {"group": None if process == 4 else "g"}
        ends = {} if end is None else {"0": end}
        self.story.do(process, "consume", asked, {"events": events, "ends": ends})

    def commit(self, process: int, offset: int, *, type: Type = "ok") -> None:  # noqa: A002
        asked = {"group": "g", "offsets": [[0, offset]]}
        self.story.do(process, "commit", asked, {} if type == "ok" else None, type=type)

    def committed(self, offset: int) -> None:
        self.story.do(5, "committed", {"group": "g"}, {"offsets": {"0": offset}})

    def offsets(self, low: int, high: int) -> None:
        self.story.do(5, "offsets", {}, {"ends": {"0": [low, high]}})

    def result(self, *, without: Sequence[int] = (), left: Sequence[str] = ()) -> Result:
        """After the read of everything at the end, but for some offsets."""
        rows = {at: value for at, value in sorted(self.there.items()) if at not in without}
        high = max(self.there) + 1 if self.there else 0
        answer = {
            "keys": {"0": [[at, value] for at, value in rows.items()]},
            "ends": {"0": [0, high]}, "offsets": {}, "left": list(left),
        }  # fmt: skip
        self.story.do(9, "final", {}, answer)
        return kafka(History(self.story.events))

    def names(self, **given: Any) -> list[str]:
        return sorted({one.name for one in self.result(**given).anomalies})


def _good() -> Queue:
    """Three records with gaps between their offsets, read by a member and by another consumer."""
    queue = Queue()
    queue.send(1, 4)
    queue.joins(2, 1, 4)
    queue.commit(2, 5)
    queue.assign(0)
    queue.consume(4, 1, 4, end=5)
    queue.offsets(0, 5)
    queue.committed(5)
    queue.send(9)
    queue.consume(2, 9)
    return queue


def test_a_queue_that_keeps_its_word_is_valid() -> None:
    result = _good().result()
    assert result.verdict == "valid", result.anomalies
    assert result.counts["records acknowledged"] == 3
    assert result.counts["offsets committed"] == 1


def test_a_member_gets_uncommitted_records_again_after_a_rebalance() -> None:
    queue = _good()
    queue.leaves(2)
    queue.joins(3, 9)
    queue.commit(3, 10)
    queue.leaves(3)
    queue.joins(2)
    assert queue.names() == []


def test_a_record_of_unknown_outcome_may_be_there_or_not() -> None:
    queue = _good()
    queue.send(None, type="info")
    queue.send(20, None, unsure=[1])
    queue.consume(2, 20)
    assert queue.names() == []
    queue = _good()
    queue.send(None, type="info")
    queue.there[30] = "v4"
    queue.consume(2, 30)
    assert queue.names() == []


def test_a_commit_without_an_outcome_may_come_after_the_next_commit() -> None:
    queue = _good()
    queue.commit(2, 9, type="fail")
    queue.commit(2, 10)
    queue.committed(9)
    assert queue.names() == []


def test_a_late_commit_may_follow_one_whose_acknowledgement_is_lost() -> None:
    queue = _good()
    queue.commit(2, 9, type="fail")
    queue.commit(2, 10, type="fail")
    queue.committed(10)
    queue.committed(9)
    assert queue.names() == []


def test_a_record_of_unknown_outcome_that_nobody_has_read_yet_may_be_at_the_end() -> None:
    """No read at the end has come so far as to say that no record is there."""
    queue = _good()
    queue.send(None, type="info")
    queue.offsets(0, 21)
    assert kafka(History(queue.story.events)).anomalies == []
    queue.there[30] = "v4"
    assert queue.names(without=[30], left=["0"]) == []


def _lost(queue: Queue) -> list[str]:
    queue.send(20)
    return queue.names(without=[20])


def _vanished(queue: Queue) -> list[str]:
    queue.send(None, type="info")
    queue.consume(2, 20, other={20: "v4"})
    return queue.names()


def _broken(queue: Queue) -> list[str]:
    queue.send(None, unsure=[0], broken="Broker: Broker received an out of order sequence number")
    return queue.names()


def _duplicate(queue: Queue) -> list[str]:
    queue.there[20] = queue.there[9]
    queue.consume(2, 20)
    return queue.names()


def _inconsistent(queue: Queue) -> list[str]:
    queue.send(None, type="info")
    queue.assign(9)
    queue.consume(4, 9, other={9: "v4"})
    return queue.names()


def _phantom(queue: Queue) -> list[str]:
    queue.there[20] = "nobody's"
    queue.consume(2, 20)
    return queue.names()


def _nonmonotonic_send(queue: Queue) -> list[str]:
    queue.send(21, 20)
    queue.consume(2, 20, 21)
    return queue.names()


def _realtime(queue: Queue) -> list[str]:
    queue.send(21)
    queue.send(20)
    queue.consume(2, 20, 21)
    return queue.names()


def _nonmonotonic_poll(queue: Queue) -> list[str]:
    queue.consume(4, 9)
    queue.consume(4, 4)
    return queue.names()


def _before_start(queue: Queue) -> list[str]:
    queue.assign(9)
    queue.consume(4, 4)
    return queue.names()


def _int_skip(queue: Queue) -> list[str]:
    queue.assign(1)
    queue.consume(4, 1, 9)
    return queue.names()


def _skip(queue: Queue) -> list[str]:
    queue.assign(1)
    queue.consume(4, 1)
    queue.consume(4, 9)
    return queue.names()


def _skip_at_start(queue: Queue) -> list[str]:
    queue.assign(2)
    queue.consume(4, 9)
    return queue.names()


def _member_skips(queue: Queue) -> list[str]:
    queue.send(20, 21)
    queue.consume(2, 20, 21)
    queue.leaves(2)
    queue.joins(3, 21)
    return queue.names()


def _beyond(queue: Queue) -> list[str]:
    queue.consume(4, 9, end=9)
    return queue.names()


def _low_went_back(queue: Queue) -> list[str]:
    queue.offsets(4, 10)
    queue.offsets(1, 10)
    return queue.names()


def _high_went_back(queue: Queue) -> list[str]:
    queue.send(None, type="info")
    queue.there[20] = "v4"
    queue.consume(2, 20)
    queue.offsets(0, 21)
    queue.offsets(0, 10)
    return queue.names()


def _stale_end(queue: Queue) -> list[str]:
    queue.offsets(0, 5)
    return queue.names()


def _gap_at_end(queue: Queue) -> list[str]:
    queue.offsets(0, 15)
    queue.send(20)
    queue.consume(2, 20)
    return queue.names()


def _told_less(queue: Queue) -> list[str]:
    queue.commit(2, 10)
    queue.committed(5)
    return queue.names()


def _begins_below(queue: Queue) -> list[str]:
    queue.commit(2, 10)
    queue.leaves(2)
    queue.joins(3, 9)
    return queue.names()


def _late_of_another_member(queue: Queue) -> list[str]:
    """Nothing excuses a commit of an earlier member that comes after those of the next."""
    queue.commit(2, 9, type="fail")
    queue.leaves(2)
    queue.joins(3, 9)
    queue.commit(3, 10)
    queue.committed(9)
    return queue.names()


def _skipped_by_group(queue: Queue) -> list[str]:
    queue.send(20)
    queue.commit(2, 21)
    return queue.names()


def _unseen(queue: Queue) -> list[str]:
    queue.send(20)
    return queue.names()


@pytest.mark.parametrize(
    ("tell", "names"),
    [
        (_lost, ["lost"]),
        (_vanished, ["vanished"]),
        (_broken, ["broken-producer"]),
        (_duplicate, ["duplicate"]),
        (_inconsistent, ["inconsistent-offset"]),
        (_phantom, ["phantom"]),
        (_nonmonotonic_send, ["nonmonotonic-send"]),
        (_realtime, ["realtime-order"]),
        (_nonmonotonic_poll, ["nonmonotonic-poll"]),
        (_before_start, ["nonmonotonic-poll"]),
        (_int_skip, ["int-poll-skip"]),
        (_skip, ["poll-skip"]),
        (_skip_at_start, ["poll-skip"]),
        (_member_skips, ["poll-skip"]),
        (_beyond, ["beyond-end"]),
        (_low_went_back, ["watermark-went-back"]),
        (_high_went_back, ["watermark-went-back"]),
        (_stale_end, ["stale-end"]),
        (_gap_at_end, ["gap-at-end"]),
        (_told_less, ["commit-went-back"]),
        (_begins_below, ["commit-went-back"]),
        (_late_of_another_member, ["commit-went-back"]),
        (_skipped_by_group, ["skipped-by-group"]),
        (_unseen, ["unseen"]),
    ],
    ids=lambda given: given.__name__.strip("_") if callable(given) else given[0],
)
def test_each_anomaly_is_found(tell: Callable[[Queue], list[str]], names: list[str]) -> None:
    assert tell(_good()) == names


def test_a_read_that_did_not_reach_the_end_says_nothing_of_what_lies_behind() -> None:
    queue = _good()
    queue.send(20)
    result = queue.result(without=[20], left=["0"])
    assert result.verdict == "unknown"
    assert result.anomalies == []
    assert "the end of partition 0" in result.unknown[0]


def test_a_read_that_did_not_reach_the_end_has_passed_what_is_lost() -> None:
    queue = _good()
    queue.send(20, 21)
    queue.consume(2, 20, 21)
    assert queue.names(without=[20], left=["0"]) == ["lost", "vanished"]


def test_a_partition_that_was_not_read_to_its_end_hides_nothing_of_others() -> None:
    queue = _good()
    queue.send(20)
    queue.consume(2, 20)
    assert queue.names(without=[20], left=["1"]) == ["lost", "vanished"]


def test_a_history_without_a_read_at_the_end_is_unknown() -> None:
    queue = _good()
    assert kafka(History(queue.story.events)).verdict == "unknown"
