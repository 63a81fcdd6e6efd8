"""The names of the library that the engine leans on are where the table says, and do what it says.

A new text of the library fails the first test; the others then say what to look at.
"""

import hashlib
import inspect
import logging
import os
import random
import re
from pathlib import Path

import pytest
from pysyncobj import syncobj
from pysyncobj.journal import Journal
from raft_net import MemoryLog

from lognode.client.protocol.invariants import InvariantError
from lognode.raft import engine as engine_module
from lognode.raft.engine import LIBRARY_SHA256, MODULE_SEAMS, SEAMS, Engine, Packet
from lognode.raft.journal import EngineJournal
from lognode.raft.types import RaftOptions

TEXT = inspect.getsource(syncobj)


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def make(
    members: tuple[int, ...] = (1, 2, 3),
) -> tuple[Engine, MemoryLog, list[tuple[int, Packet]]]:
    sent: list[tuple[int, Packet]] = []
    log = MemoryLog()
    engine = Engine(
        node_id=1,
        members=members,
        journal=EngineJournal(log),
        clock=Clock(),
        rng=random.Random(1),
        options=RaftOptions(),
        fallback_s=2.0,
        send=lambda peer, packet: sent.append((peer, packet)),
        role_changed=lambda role: None,
    )
    return engine, log, sent


def test_the_library_is_the_text_that_was_read() -> None:
    path = Path(syncobj.__file__)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == LIBRARY_SHA256


def test_another_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "syncobj.py"
    other.write_text(TEXT + "\n")
    monkeypatch.setattr(syncobj, "__file__", str(other))
    with pytest.raises(ImportError, match=r"pysyncobj 0\.3\.17"):
        engine_module._check_library()


@pytest.mark.parametrize("name", sorted(SEAMS))
def test_mangled_seam_is_in_the_library(name: str) -> None:
    private = name.removeprefix("_SyncObj")
    assert re.search(rf"self\.{private}\b", TEXT), f"the library no longer has {private}"
    core = make()[0]._core
    assert hasattr(core, name)


@pytest.mark.parametrize("name", sorted(MODULE_SEAMS))
def test_module_seam_is_read_at_each_use(name: str) -> None:
    assert hasattr(syncobj, name)
    assert re.search(rf"(?<![.\w]){name}\b", TEXT)


@pytest.mark.parametrize(
    "name", [name for name, use in SEAMS.items() if use.startswith("overridden")]
)
def test_override_has_the_signature_of_what_it_replaces(name: str) -> None:
    ours = inspect.signature(getattr(engine_module._Core, name))
    theirs = inspect.signature(getattr(syncobj.SyncObj, name))
    assert list(ours.parameters) == list(theirs.parameters)


def test_no_mangled_name_is_used_outside_the_table() -> None:
    used = set(re.findall(r"_SyncObj__\w+", inspect.getsource(engine_module)))
    assert used == set(SEAMS)


def test_timeouts_come_from_the_group_s_rng() -> None:
    def drawn() -> float:
        return float(make()[0]._core._SyncObj__raftElectionDeadline)

    random.seed(1)
    first = drawn()
    random.seed(2)
    assert drawn() == first


def test_no_descriptor_is_opened() -> None:
    before = len(os.listdir("/proc/self/fd"))
    engines = [make() for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert engines


def test_hidden_peers_are_not_sent_to_and_no_election_starts() -> None:
    engine, _log, sent = make()
    engine._clock.now += 3600.0  # type: ignore[attr-defined]
    engine.tick()
    assert (engine.role, engine.term, sent) == ("follower", 0, [])


def test_campaign_asks_everyone_at_once_and_hides_them_again() -> None:
    engine, log, sent = make()
    engine.campaign()
    assert engine.role == "candidate"
    assert (log.term, log.vote) == (1, 1)
    assert sorted((peer, packet["type"]) for peer, packet in sent) == [
        (2, "request_vote"),
        (3, "request_vote"),
    ]
    assert not engine.shown(2)


def test_step_up_raises_the_term_and_does_nothing_else() -> None:
    engine, log, sent = make()
    engine.step_up(2, 7)
    assert (engine.term, engine.role, log.term, log.vote) == (7, "follower", 7, None)
    assert sent == []


def test_hiding_a_peer_inside_send_ends_the_engine_s_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """x21: a peer behind the log's base makes the library spin for the heartbeat period."""
    engine, log, sent = make()
    engine.campaign()
    engine.deliver(2, {"type": "response_vote", "term": 1})
    assert engine.role == "leader"
    for _ in range(50):
        engine.propose(b"\x00x")
    log.set_commit(40)
    log.cut_front(40)

    def send_and_hide(peer: int, packet: Packet) -> None:
        sent.append((peer, packet))
        engine.hide(peer)

    engine._wire._send = send_and_hide
    engine.show(2)
    sent.clear()
    engine.deliver(
        2, {"type": "next_node_idx", "next_node_idx": 3, "reset": True, "success": False}
    )
    engine.send_now()  # with a clock that stands still the library would never come back
    assert len(sent) == 1
    assert "prevLogIdx" not in sent[0][1]
    assert caplog.records == []  # the library logs a traceback when it has no dump to send


def test_a_clock_jump_between_two_looks_does_not_leave_a_proposal_in_the_queue() -> None:
    engine, log, _sent = make((1,))
    engine.campaign()
    clock = engine._clock
    jumps = iter([0.0, 5.0, 0.0, 0.0, 0.0])

    def jumping() -> float:
        clock.now += next(jumps, 0.0)  # type: ignore[attr-defined]
        return clock()

    engine._clock = jumping
    index = engine.propose(b"\x00x")
    assert log.entry(index).command == b"\x00x"


def test_hole_19_nothing_is_ever_applied_or_unpickled_by_the_library() -> None:
    core = make()[0]._core
    for name in ("_SyncObj__doApplyCommand", "_SyncObj__parseChangeClusterRequest"):
        with pytest.raises(InvariantError):
            getattr(core, name)(b"\x02cos\nsystem\n")


def test_a_journal_of_the_library_can_still_be_made() -> None:
    """The canary runs the unmodified engine in the same process."""
    assert type(syncobj.createJournal(None)).__name__ == "MemoryJournal"


def test_the_journal_has_every_method_of_the_library_s() -> None:
    for name, method in vars(Journal).items():
        if callable(method) and name != "__init__":
            ours = inspect.signature(getattr(EngineJournal, name))
            assert len(ours.parameters) == len(inspect.signature(method).parameters), name


def test_the_serializer_s_stub_has_what_is_called_of_it_here() -> None:
    """The other calls are in loading and making dumps, which the two thresholds rule out."""
    called = set(re.findall(r"self\.__serializer\.(\w+)", TEXT))
    never = {"serialize", "deserialize", "setTransmissionData"}
    assert called - never <= set(dir(make()[0]._core._SyncObj__serializer))


def test_the_false_alarm_about_truncation_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(syncobj.__name__)
    with caplog.at_level(logging.DEBUG, logger=syncobj.__name__):
        logger.critical("truncating already-applied log entries from index %d (%d)", 1, 2)
        logger.critical("something else")
    assert [record.message for record in caplog.records] == ["something else"]
    assert "'truncating already-applied log entries from index %d '" in TEXT
