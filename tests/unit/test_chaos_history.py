"""Histories of live tests: events on disk, operations, bands of faults."""

import itertools
from pathlib import Path

import pytest

from lognode.chaos.history import CLUSTER, Band, History, Recorder
from lognode.client.protocol.errors import InvalidArgument


def _recorder(path: Path) -> Recorder:
    clock = itertools.count(10, 10)
    return Recorder(path, lambda: next(clock))


def test_recorded_events_are_read_back(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path / "h")
    recorder.record(0, "invoke", "append", {"records": [["ключ", "v"]]})
    recorder.record(None, "info", "kill", {"id": 0, "what": "kill of one", "nodes": [2]})
    recorder.record(0, "info", "append", error="TIMEOUT: late", node=2)
    written = recorder.close().events
    assert History.read(tmp_path / "h").events == written
    assert [event.time for event in written] == [10, 20, 30]


def test_operations_pair_what_was_asked_with_how_it_ended(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path / "h")
    recorder.record(0, "invoke", "append", "a")
    recorder.record(1, "invoke", "read", "k")
    recorder.record(1, "ok", "read", [1])
    recorder.record(0, "info", "append", error="CRASHED")
    recorder.record(12, "invoke", "append", "b")
    history = recorder.close()
    told = [
        (one.index, one.process, one.outcome, one.began, one.ended, one.answer)
        for one in history.operations()
    ]
    assert told == [
        (0, 0, "info", 10, None, None),
        (1, 1, "ok", 20, 30, [1]),
        (4, 12, "info", 50, None, None),
    ]
    assert [one.index for one in history.operations("append")] == [0, 4]


@pytest.mark.parametrize(
    ("types", "why"),
    [
        (("invoke", "invoke"), "has not ended its operation before"),
        (("ok",), "has no operation to end"),
    ],
)
def test_a_process_does_one_thing_at_a_time(tmp_path: Path, types: list[str], why: str) -> None:
    recorder = _recorder(tmp_path / "h")
    for kind in types:
        recorder.record(0, kind, "read", "k")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=why):
        recorder.close().operations()


def test_faults_are_bands_and_leaders_are_not(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path / "h")
    recorder.record(None, "info", CLUSTER, {"leaders": {"1": 2}})
    recorder.record(None, "info", "kill", {"id": 0, "what": "kill of all", "nodes": [1, 2]})
    recorder.record(None, "info", "pause", {"id": 1, "what": "pause of one", "nodes": [3]})
    recorder.record(None, "info", "kill", {"id": 0})
    assert recorder.close().bands() == [
        Band("kill", "kill of all", (1, 2), 20, 40),
        Band("pause", "pause of one", (3,), 30, None),
    ]


_NO_TYPE = '{"index":0,"time":1,"process":1,"type":"no","f":"x"}'


@pytest.mark.parametrize("line", ["", "{}", '{"index":1}', "[1]", "x", _NO_TYPE])
def test_a_malformed_history_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    recorder = _recorder(tmp_path / "h")
    recorder.record(0, "invoke", "read", "k")
    recorder.close()
    with open(tmp_path / "h", "a") as file:
        file.write(line + "\n")
    with pytest.raises(InvalidArgument, match="line 2 is not an event"):
        History.read(tmp_path / "h")
