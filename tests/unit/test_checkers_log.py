"""The rules of every workload: a good history passes, and each anomaly is found in a bad one."""

from collections.abc import Callable

import pytest
from hand_history import Story

from lognode.chaos.checkers import for_workload
from lognode.chaos.verdict import Anomaly, Result


def _judged(story: Story) -> Result:
    [log] = for_workload("append")
    return log(story.history)


def _story() -> Story:
    """p1-1 and p1-2 and p2-1 of key k at 1, 2 and 5, p2-2 of key j at 3."""
    story = Story()
    story.append("p1-1", 1)
    story.append("p1-2", 2)
    story.append("p2-2", 3, "j")
    story.append("p2-1", 5)
    return story


K = [(1, "p1-1"), (2, "p1-2"), (5, "p2-1")]


def test_a_good_history_is_valid() -> None:
    """With all that may be: reads that lag, unknown outcomes, failures, pages, lost answers."""
    story = _story()
    story.read(3, K)
    story.read(4, K[:1], consistency="prefix")
    story.read(4, K, consistency="prefix")
    story.poll(5, 0, K[:2])
    story.poll(5, 2, K[2:])
    story.poll(5, 5, [])
    story.poll(6, 0, K[:1], limit=1)
    story.poll(6, 1, [], consistency="prefix")
    story.poll(8, 0, K, consistency="prefix")
    story.poll(8, 0, K[:1], consistency="prefix")  # a page
    story.scan(3, [("j", 3, "p2-2"), *(("k", seq, value) for seq, value in K)])
    story.follow([("k", 1, "p1-1")])
    story.append("p3-1", None, type="fail")
    story.append("p4-1", None, type="info")
    story.append("p5-1", None, type="info")
    story.contents["k"].append([8, "p5-1"])
    story.event(6, "invoke", "append", story.asked("p6-1"))
    story.append("p7-1", None)
    story.contents["k"].append([9, "p7-1"])
    story.end()
    story.poll(7, 9, [], consistency="prefix")
    result = _judged(story)
    assert result.anomalies == []
    assert result.verdict == "valid"
    assert result.counts["acknowledged"] == 5
    assert result.counts["unseen"] == 1


def _lost(story: Story) -> None:
    story.end(without={"p1-2"})


def _lost_of_unknown_seq(story: Story) -> None:
    story.append("p3-1", None)
    story.end()


def _lost_on_node(story: Story) -> None:
    story.end(node_2_without={"p1-2"})


def _vanished(story: Story) -> None:
    story.append("p3-1", None, type="info")
    story.read(4, [*K, (6, "p3-1")])
    story.end()


def _unseen(story: Story) -> None:
    story.end()
    story.poll(4, 2, [], consistency="prefix")


def _duplicate(story: Story) -> None:
    story.contents["k"].append([7, "p1-1"])
    story.end()


def _duplicate_of_two_acks(story: Story) -> None:
    story.append("p1-1", 7)
    story.contents["k"].pop()
    story.end()


def _aborted_read(story: Story) -> None:
    story.append("p3-1", None, type="fail")
    story.read(4, [*K, (6, "p3-1")])
    story.end()


def _phantom(story: Story) -> None:
    story.read(4, [*K, (6, "p9-9")])
    story.end()


def _phantom_of_another_key(story: Story) -> None:
    story.read(4, [*K, (6, "p2-2")])
    story.end()


def _phantom_of_the_future(story: Story) -> None:
    story.read(4, [*K, (6, "p3-1")])
    story.append("p3-1", None, type="info")
    story.contents["k"].append([6, "p3-1"])
    story.end()


def _two_values(story: Story) -> None:
    story.append("p3-1", 5)
    story.contents["k"].pop()
    story.end()


def _later_send_before(story: Story) -> None:
    """Two records of one operation: no time lies between them."""
    asked = {"producer": "p3", "records": [["k", "p3-1"], ["k", "p3-2"]]}
    story.do(3, "append", asked, {"seqs": [7, 6]})
    story.contents["k"] += [[6, "p3-2"], [7, "p3-1"]]
    story.end()


def _numbers_the_other_way(story: Story) -> None:
    story.event(3, "invoke", "append", story.asked("p3-2", number=2))
    story.event(4, "invoke", "append", story.asked("p3-1", number=1))
    story.event(3, "ok", "append", {"seqs": [6]})
    story.event(4, "ok", "append", {"seqs": [7]})
    story.contents["k"] += [[6, "p3-2"], [7, "p3-1"]]
    story.end()


def _poll_that_falls(story: Story) -> None:
    story.poll(4, 0, [K[1], K[0]])
    story.end()


def _poll_before_its_position(story: Story) -> None:
    story.poll(4, 2, K[1:])
    story.end()


def _read_that_falls(story: Story) -> None:
    story.read(4, [K[1], K[0], K[2]])
    story.end()


def _poll_that_skips(story: Story) -> None:
    story.poll(4, 0, [K[0], K[2]], consistency="prefix")
    story.end()


def _poll_that_skips_the_first(story: Story) -> None:
    story.poll(4, 1, K[2:])
    story.end()


def _read_that_skips(story: Story) -> None:
    story.read(4, [K[0], K[2]], consistency="prefix")
    story.end()


def _sent_after_an_ack(story: Story) -> None:
    story.append("p3-1", 4)
    story.end()


def _sent_after_a_read(story: Story) -> None:
    """What was read before counts, although its append was never acknowledged."""
    story.append("p3-1", None, type="info")
    story.read(4, [*K, (9, "p3-1")])
    story.append("p4-1", 8)
    story.contents["k"].append([9, "p3-1"])
    story.end()


def _unsure_but_sent_after_an_ack(story: Story) -> None:
    story.append("p3-1", None, type="info")
    story.contents["k"].append([4, "p3-1"])
    story.end()


def _stale_read(story: Story) -> None:
    story.read(4, K[:2])
    story.end()


def _stale_empty_read(story: Story) -> None:
    story.read(4, [])
    story.end()


def _stale_poll(story: Story) -> None:
    story.poll(4, 2, [])
    story.end()


def _stale_poll_below_its_limit(story: Story) -> None:
    story.poll(4, 0, K[:2], limit=3)
    story.end()


def _stale_scan(story: Story) -> None:
    """It does not know of key j."""
    story.scan(4, [("k", seq, value) for seq, value in K])
    story.end()


def _stale_between_two_acks(story: Story) -> None:
    """The first one counts."""
    story.append("p3-1", 6, number=1)
    story.read(4, K)
    story.append("p3-1", 6, number=1, process=5)
    story.contents["k"].pop()
    story.end()


def _back_in_a_session(story: Story) -> None:
    story.read(4, K)
    story.read(4, K[:2], consistency="prefix")
    story.end()


def _back_in_a_session_of_polls(story: Story) -> None:
    story.poll(4, 0, K[:2], consistency="prefix")
    story.poll(4, 0, [], consistency="prefix")
    story.end()


BAD: list[tuple[str, str, Callable[[Story], None]]] = [
    ("lost-write", "S2", _lost),
    ("lost-write", "S2", _lost_of_unknown_seq),
    ("lost-on-node", "S2", _lost_on_node),
    ("vanished-read", "S5", _vanished),
    ("unseen", "L2", _unseen),
    ("duplicate", "S8", _duplicate),
    ("duplicate", "S8", _duplicate_of_two_acks),
    ("G1a", "S11", _aborted_read),
    ("phantom", "S5", _phantom),
    ("phantom", "S5", _phantom_of_another_key),
    ("phantom", "S5", _phantom_of_the_future),
    ("inconsistent-seq", "S3", _two_values),
    ("nonmonotonic-send", "S4", _later_send_before),
    ("nonmonotonic-send", "S4", _numbers_the_other_way),
    ("nonmonotonic-poll", "S4", _poll_that_falls),
    ("nonmonotonic-poll", "S4", _poll_before_its_position),
    ("nonmonotonic-read", "S4", _read_that_falls),
    ("poll-skip", "S4", _poll_that_skips),
    ("poll-skip", "S4", _poll_that_skips_the_first),
    ("read-skip", "S4", _read_that_skips),
    ("realtime-order", "S4", _sent_after_an_ack),
    ("realtime-order", "S4", _sent_after_a_read),
    ("realtime-order", "S4", _unsure_but_sent_after_an_ack),
    ("stale-read", "S7", _stale_read),
    ("stale-read", "S7", _stale_empty_read),
    ("stale-read", "S7", _stale_poll),
    ("stale-read", "S7", _stale_poll_below_its_limit),
    ("stale-read", "S7", _stale_scan),
    ("stale-read", "S7", _stale_between_two_acks),
    ("session-went-back", "S7", _back_in_a_session),
    ("session-went-back", "S7", _back_in_a_session_of_polls),
]
ALSO: dict[Callable[[Story], None], set[str]] = {
    _sent_after_a_read: {"read-skip"},
    _vanished: {"stale-read"},
    _duplicate_of_two_acks: {"realtime-order"},
    _two_values: {"lost-write", "lost-on-node", "realtime-order"},
}
"""What the same history shows besides: a seq that is wrong is also out of order, and so on."""


@pytest.mark.parametrize(("name", "promise", "tell"), BAD, ids=[t.__name__ for _, _, t in BAD])
def test_an_anomaly_is_found(name: str, promise: str, tell: Callable[[Story], None]) -> None:
    story = _story()
    tell(story)
    result = _judged(story)
    names = {one.name for one in result.anomalies}
    assert name in names
    assert names <= {name} | ALSO.get(tell, set()), [one.message for one in result.anomalies]
    assert result.verdict == "invalid"
    [first, *_] = [one for one in result.anomalies if one.name == name]
    assert first.promise == promise
    assert first.key in ("k", "j")
    assert first.operations
    indexes = {one.index for one in story.history.operations()}
    assert set(first.operations) <= indexes


@pytest.mark.parametrize(
    ("spans", "found"),
    [([["k", None]], set()), ([["", "j"], ["k", "l"]], set()), ([["", "k"]], {"lost-on-node"})],
)
def test_a_node_is_asked_for_the_keys_of_its_ranges_only(
    spans: list[list[str | None]], found: set[str]
) -> None:
    story = _story()
    story.end()
    held = {"k": story.contents["k"]}
    story.do(99, "final", {}, {"keys": held, "spans": spans}, node=2)
    assert {one.name for one in _judged(story).anomalies} == found


@pytest.mark.parametrize(
    ("value", "where"),
    [("p1-1", "prefix"), ("p1-2", "middle"), ("p2-1", "postfix"), ("p2-2", "whole key")],
)
def test_S2_a_lost_write_says_where_of_its_key_it_was(value: str, where: str) -> None:
    story = _story()
    story.end(without={value})
    lost = _of(_judged(story), "lost-write")
    assert where in lost.message
    assert value in lost.message


def _of(result: Result, name: str) -> Anomaly:
    [found] = [one for one in result.anomalies if one.name == name]
    return found


def test_a_record_that_was_sent_again_is_one_record() -> None:
    """Its first attempt was of unknown outcome, its second failed, its third is a duplicate."""
    story = _story()
    story.append("p3-1", None, type="info", number=1)
    story.append("p3-1", None, type="fail", number=1, process=4)
    story.read(7, [*K, (6, "p3-1")])
    assert _judged(story).anomalies == []
    story.append("p3-1", None, number=1, process=5)
    story.contents["k"].append([6, "p3-1"])
    story.end()
    assert _judged(story).anomalies == []
    story.contents["k"].append([7, "p3-1"])
    story.end()
    assert {one.name for one in _judged(story).anomalies} == {"duplicate"}


def test_concurrent_operations_are_not_an_anomaly() -> None:
    """A read, an append and a poll that began before an acknowledgement need not know of it."""
    story = Story()
    story.event(3, "invoke", "read", {"key": "k", "consistency": "linearizable"})
    story.event(2, "invoke", "append", story.asked("p2-1"))
    story.append("p1-1", 5)
    story.event(3, "ok", "read", {"entries": [], "last": 0})
    story.event(2, "ok", "append", {"seqs": [3]})
    story.contents["k"].append([3, "p2-1"])
    story.end()
    assert _judged(story).anomalies == []


def test_without_final_reads_nothing_is_lost() -> None:
    story = _story()
    story.do(100, "final", {}, type="fail", error="UNAVAILABLE: nobody")
    assert _judged(story).anomalies == []
