"""Dispatchers against a plain model, whatever happens, in whatever order (G1 to G5).

LOGNODE_DISPATCH_EXAMPLES and LOGNODE_DISPATCH_STEPS say how much of it.
"""

import os
import shutil
import tempfile
from pathlib import Path

from dispatch_model import CONSUMERS, DispatchModel, Leader
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

AT = st.integers(0, 7)
KEY = st.sampled_from(KEYS)
WHO = st.sampled_from(CONSUMERS)
SPAN = st.sampled_from([(b"", None), (b"b", b"f"), (b"d", None), (b"", b"c")])
HOW = st.sampled_from(
    ["ack", "ack", "append", "append", "fail", "release", "reject", "extend", "leave"]
)


class DispatchMachine(RuleBasedStateMachine):
    """Drives the leaders, the consumers and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.model = DispatchModel(self.directory / "log", 0)
        self.model.held[99] = {}

    @initialize(seed=st.integers(0, 1 << 20), rounds=st.integers(1, 4))
    def begin(self, seed: int, rounds: int) -> None:
        self.model.rng.seed(seed)
        (state,) = self.model.log.ranges
        for _ in range(rounds):
            self.model.log.append(state, KEYS)
        leader = self.model.lead(state)
        self.model.read(leader, 99)
        for consumer in CONSUMERS:
            self.model.take(leader, consumer, 2, 1 << 20)

    def teardown(self) -> None:
        self.model.finish(slow=self.model.rng.choice([None, *KEYS]))
        self.model.check()
        self.model.log.close()
        shutil.rmtree(self.directory)

    def _of(self, key: bytes) -> Leader:
        return next(each for each in self.model.leaders if self.model._owns(each, key))

    def _at(self, at: int) -> Leader:
        return self.model.leaders[at % len(self.model.leaders)]

    @rule(at=AT, keys=st.lists(KEY, min_size=1, max_size=5))
    def append(self, at: int, keys: list[bytes]) -> None:
        state = self._at(at).state
        own = [key for key in keys if key in self.model.log.own(state)]
        if own:
            self.model.log.append(state, own)

    @rule(at=AT, steps=st.integers(1, 20))
    def read(self, at: int, steps: int) -> None:
        self.model.read(self._at(at), steps)

    @rule(at=AT, who=WHO, count=st.integers(0, 4), room=st.sampled_from([1, 100, 1 << 20]),
          claims=st.sampled_from(["", "", "all"]))  # fmt: skip
    def take(self, at: int, who: int, count: int, room: int, claims: str) -> None:
        leader = self._at(at)
        self.model.read(leader, 5)
        self.model.take(leader, who, count, room, claims)

    @rule(who=WHO, how=HOW, key=KEY, part=st.booleans())
    def settle(self, who: int, how: str, key: bytes, part: bool) -> None:
        self.model.settle(self._of(key), who, how, key, part)

    @rule(who=WHO, how=HOW, which=AT)
    def settle_held(self, who: int, how: str, which: int) -> None:
        held = list(self.model.held[who])
        if held:
            key = held[which % len(held)]
            self.model.settle(self._of(key), who, how, key, False)

    @rule(which=st.integers(0, 99))
    def repeat(self, which: int) -> None:
        """A request comes again, or late."""
        if self.model.past:
            request = self.model.past[which % len(self.model.past)]
            self.model.send(self._of(request[2]), request)

    @rule(who=WHO, key=KEY, token=st.integers(0, 1 << 62))
    def made_up(self, who: int, key: bytes, token: int) -> None:
        before = len(self._of(key).log)
        self.model.send(self._of(key), (who, "ack", key, token, 1 << 40))
        assert len(self._of(key).log) <= before + 1

    @rule(at=AT, count=st.integers(1, 5))
    def apply(self, at: int, count: int) -> None:
        for _ in range(count):
            self.model.apply_one(self._at(at))

    @rule(at=AT, ms=st.sampled_from([10, 300, 1_100, 40_000]))
    def time_passes(self, at: int, ms: int) -> None:
        self.model.now += ms
        for leader in self.model.leaders:
            self.model.tick(leader)

    @rule(at=AT)
    def leader_change(self, at: int) -> None:
        self.model.lead(self._at(at).state)

    @rule(who=WHO)
    def consumer_dies(self, who: int) -> None:
        self.model.held[who] = {}

    @rule(key=KEY)
    def retry(self, key: bytes) -> None:
        self.model.retry_key(self._of(key), key)

    @rule(key=KEY)
    def letter(self, key: bytes) -> None:
        self.model.letter_key(self._of(key), key)

    @rule(key=KEY)
    def skip(self, key: bytes) -> None:
        self.model.skip_key(self._of(key), key)

    @rule(at=AT, span=SPAN, to=st.integers(1, 60))
    def reset(self, at: int, span: tuple[bytes, bytes | None], to: int) -> None:
        self.model.reset_span(self._at(at), span, to)

    @rule(at=AT, key=KEY)
    def split(self, at: int, key: bytes) -> None:
        state = self._at(at).state
        self.model.drop_leaders()
        self.model.log.split(state, key)
        self.model.lead_all()

    @rule(at=AT)
    def unite(self, at: int) -> None:
        self.model.drop_leaders()
        self.model.log.unite(at % len(self.model.log.ranges), 2)
        self.model.lead_all()

    @rule(key=KEY, before=st.integers(1, 60))
    def trim_key(self, key: bytes, before: int) -> None:
        self.model.trim_key(self._of(key).state, key, before)

    @rule(at=AT, span=SPAN, before=st.integers(1, 60))
    def trim(self, at: int, span: tuple[bytes, bytes | None], before: int) -> None:
        self.model.trim(self._at(at).state, span, before)

    @invariant()
    def holds(self) -> None:
        self.model.check()


def test_G1_G2_G3_G4_G5_dispatchers_agree_with_the_model() -> None:
    run_state_machine_as_test(
        DispatchMachine,
        settings=settings(
            max_examples=int(os.environ.get("LOGNODE_DISPATCH_EXAMPLES", "20")),
            stateful_step_count=int(os.environ.get("LOGNODE_DISPATCH_STEPS", "40")),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
