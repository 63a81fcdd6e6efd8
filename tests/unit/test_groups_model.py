"""Consumer groups against a plain model, whatever happens, in whatever order (G1 to G3, G6, x30).

LOGNODE_GROUPS_EXAMPLES and LOGNODE_GROUPS_STEPS say how much of it.
"""

import os
import shutil
import tempfile
from pathlib import Path

from group_model import GroupModel
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from lineages import KEYS

from lognode.statemachine.range_state import RangeState

NUMBERS = st.integers(0, 40)
AT = st.integers(0, 7)
KEY = st.sampled_from(KEYS)
SPAN = st.sampled_from([(b"", None), (b"b", b"f"), (b"d", None), (b"", b"c")])


class GroupMachine(RuleBasedStateMachine):
    """Drives the ranges and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.model = GroupModel(self.directory / "log")

    @initialize(begun=st.booleans(), rounds=st.integers(1, 3))
    def begin(self, begun: bool, rounds: int) -> None:
        """Mostly, keys have rows above the floor and leases, so that each next step matters."""
        (state,) = self.model.log.ranges
        for _ in range(rounds):
            self.model.log.append(state, KEYS)
        if begun:
            self.model.open(state, 1, False)
            for at, key in enumerate(KEYS):
                self.model.lease(state, key, 1)
                if at % 2:
                    self.model.ack(state, key)

    def teardown(self) -> None:
        for state in self.model.log.ranges:
            self.model.quiet(state)
        self.model.check()
        self.model.log.close()
        shutil.rmtree(self.directory)

    def _of(self, key: bytes) -> RangeState:
        return next(s for s in self.model.log.ranges if key in self.model.log.own(s))

    def _at(self, at: int) -> RangeState:
        return self.model.log.ranges[at % len(self.model.log.ranges)]

    @rule(at=AT, keys=st.lists(KEY, min_size=1, max_size=5), ms=NUMBERS)
    def append(self, at: int, keys: list[bytes], ms: int) -> None:
        state = self._at(at)
        own = [key for key in keys if key in self.model.log.own(state)]
        if own:
            self.model.log.append(state, own, ms=ms)

    @rule(at=AT, begin=st.sampled_from([1, 1, 5, 1 << 40]), waits=st.booleans())
    def leader_change(self, at: int, begin: int, waits: bool) -> None:
        self.model.open(self._at(at), begin, waits)

    @rule(key=KEY, count=st.integers(1, 3), end=st.sampled_from(["", "ack", "ack", "fail"]))
    def lease(self, key: bytes, count: int, end: str) -> None:
        state = self._of(key)
        self.model.lease(state, key, count)
        if end == "ack":
            self.model.ack(state, key)
        elif end == "fail":
            self.model.fail(state, key, reject=False)

    @rule(key=KEY)
    def ack(self, key: bytes) -> None:
        self.model.ack(self._of(key), key)

    @rule(at=AT, which=NUMBERS)
    def ack_stale(self, at: int, which: int) -> None:
        self.model.ack_stale(self._at(at), which)

    @rule(at=AT, key=KEY, out=AT)
    def ack_with(self, at: int, key: bytes, out: int) -> None:
        state = self._of(key)
        own = self.model.log.own(state)
        self.model.lease(state, key, 1 + at % 3)
        self.model.ack_with(state, key, own[out % len(own)])

    @rule(at=AT, which=NUMBERS, out=AT)
    def ack_with_stale(self, at: int, which: int, out: int) -> None:
        own = self.model.log.own(self._at(at))
        if own:
            self.model.ack_with_stale(self._at(at), which, own[out % len(own)])

    @rule(at=AT, which=NUMBERS)
    def repeat(self, at: int, which: int) -> None:
        self.model.repeat(self._at(at), which)

    @rule(key=KEY)
    def release(self, key: bytes) -> None:
        self.model.release(key)

    @rule(key=KEY, reject=st.booleans())
    def fail(self, key: bytes, reject: bool) -> None:
        self.model.fail(self._of(key), key, reject)

    @rule(key=KEY)
    def retry(self, key: bytes) -> None:
        self.model.retry(self._of(key), key)

    @rule(key=KEY)
    def letter(self, key: bytes) -> None:
        self.model.letter(self._of(key), key)

    @rule(key=KEY)
    def copied(self, key: bytes) -> None:
        self.model.copied(self._of(key), key)

    @rule(key=KEY)
    def skip(self, key: bytes) -> None:
        self.model.skip(self._of(key), key)

    @rule(at=AT, span=SPAN, to=st.integers(1, 60))
    def reset(self, at: int, span: tuple[bytes, bytes | None], to: int) -> None:
        self.model.reset(self._at(at), span, to)

    @rule(at=AT, rows_left=st.sampled_from([0, 1, 2, 99]), back=st.sampled_from([0, 0, 1, 5]))
    def claim(self, at: int, rows_left: int, back: int) -> None:
        self.model.claim(self._at(at), rows_left, back)

    @rule(which=NUMBERS)
    def apply_claim(self, which: int) -> None:
        self.model.apply_claim(which)

    @rule(at=AT, rows_left=st.sampled_from([1, 99]))
    def raise_floor(self, at: int, rows_left: int) -> None:
        self.model.claim(self._at(at), rows_left, 0)
        self.model.apply_claim(-1)

    @rule(at=AT, key=KEY)
    def split(self, at: int, key: bytes) -> None:
        self.model.split(self._at(at), key)

    @rule(at=AT)
    def unite(self, at: int) -> None:
        self.model.unite(at % len(self.model.log.ranges))

    @rule(at=AT)
    def install(self, at: int) -> None:
        self.model.install(self._at(at))

    @rule(at=AT, span=SPAN, before=st.integers(1, 60))
    def trim(self, at: int, span: tuple[bytes, bytes | None], before: int) -> None:
        self.model.trim(self._at(at), span, before)

    @rule(key=KEY, before=st.integers(1, 60))
    def trim_key(self, key: bytes, before: int) -> None:
        self.model.trim_key(self._of(key), key, before)

    @rule(at=AT)
    def lag(self, at: int) -> None:
        self.model.check_lag(self._at(at))

    @invariant()
    def holds(self) -> None:
        self.model.check()


def test_G1_G2_G3_G5_G6_x30_groups_agree_with_the_model() -> None:
    run_state_machine_as_test(
        GroupMachine,
        settings=settings(
            max_examples=int(os.environ.get("LOGNODE_GROUPS_EXAMPLES", "20")),
            stateful_step_count=int(os.environ.get("LOGNODE_GROUPS_STEPS", "40")),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
