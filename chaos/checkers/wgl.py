"""Linearizability of one object by search, after Wing and Gong (1993) and Lowe (2017).

An operation takes effect at one moment between its invocation and its completion. The search
places one operation after another: next may come any whose invocation precedes all completions of
those not yet placed. What is left to do depends only on which operations are placed and on the
state they left, so each such pair, a configuration, is looked at once; the placed ones are bits of
an integer.

Two orders need not be tried. A read that fits where the search stands is placed there and then:
it changes nothing. And of two operations that do the same and may never have happened, the one
that was invoked first is placed first. One that may never have happened need not be placed at all.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

State = Hashable
Act = tuple[Any, ...]
"""What an operation does and was told: its name, then what the model wants to know."""

IMPOSSIBLE: Final = object()
"""What a model's step gives for an act that cannot have had this answer in this state."""

_FIRST_ROUND: Final = 500
_GROWTH: Final = 4
_CLOCK_EVERY: Final = 1024
_SHOWN_MAX: Final = 60
_CONFIGURATIONS_MAX: Final = 4_000_000
"""Of one key, about 700 MiB: a search that wants more gives up."""


@dataclass(frozen=True, slots=True)
class Model:
    """An object as if one client at a time used it."""

    initial: State
    step: Callable[[Any, Act], Any]
    """(state, act) -> the next state, or IMPOSSIBLE."""
    reads: frozenset[str]
    """Names of acts that never change the state."""
    shown: Callable[[Any], str] = str
    """A state in words."""


@dataclass(frozen=True, slots=True)
class Call:
    """One operation that happened, or may have (`ended` None: from `began` on, or never)."""

    began: int
    ended: int | None
    act: Act
    name: str
    """Who did what, for people."""
    index: int
    """Of its invocation."""


class Search:
    """The search for one key; it can be carried on where it stopped."""

    def __init__(self, model: Model, calls: Sequence[Call]) -> None:
        self._model = model
        ordered = sorted(calls, key=lambda call: call.began)
        self._sure = [call for call in ordered if call.ended is not None]
        self._maybe = [
            call for call in ordered if call.ended is None and call.act[0] not in model.reads
        ]
        self._all = (1 << len(self._sure)) - 1
        self._twins = _twins(self._maybe)
        self._stack: list[tuple[int, Any]] = [(0, model.initial)]
        self._seen: set[tuple[int, Any]] = set(self._stack)
        self._furthest = -1
        self.stuck: Call | None = None
        """Of all that must be placed, the one whose completion no order got past so far."""
        self.states: set[Any] = set()
        """What the state may be, with all placed that ended before the end of `stuck`."""

    def run(self, steps: int, deadline: float) -> bool | None:
        """Whether there is an order; None: not known after so many more configurations, or at the
        deadline of time.monotonic()."""
        stack = self._stack
        for step in range(steps):
            if not stack:
                return False
            if step % _CLOCK_EVERY == 0 and (self.exhausted or time.monotonic() > deadline):
                return None
            mask, state = stack.pop()
            if mask & self._all == self._all:
                return True
            for found in self._next(mask, state):
                if found not in self._seen:
                    self._seen.add(found)
                    stack.append(found)
        return False if not stack else None

    @property
    def exhausted(self) -> bool:
        """It holds as many configurations as it may."""
        return len(self._seen) > _CONFIGURATIONS_MAX

    def _next(self, mask: int, state: Any) -> list[tuple[int, Any]]:
        """Configurations one placement further, the most promising last."""
        enabled, bound = self._enabled(mask, state)
        step, reads = self._model.step, self._model.reads
        found = []
        for at in enabled:
            call = self._sure[at]
            after = step(state, call.act)
            if after is IMPOSSIBLE:
                continue
            if call.act[0] in reads:
                return [(mask | 1 << at, state)]
            found.append((call.ended, mask | 1 << at, after))
        found.sort(key=lambda one: -(one[0] or 0))
        return [*self._unsure(mask, state, bound), *((m, after) for _, m, after in found)]

    def _enabled(self, mask: int, state: Any) -> tuple[list[int], int]:
        """Which of the sure ones may come next, and the first completion among the unplaced."""
        lowest = (~mask & (mask + 1)).bit_length() - 1
        bound, stuck, enabled = None, None, []
        for at in range(lowest, len(self._sure)):
            if mask >> at & 1:
                continue
            call = self._sure[at]
            assert call.ended is not None
            if bound is not None and call.began > bound:
                break
            enabled.append(at)
            if bound is None or call.ended < bound:
                bound, stuck = call.ended, call
        assert bound is not None
        if bound > self._furthest:
            self._furthest, self.stuck, self.states = bound, stuck, set()
        if bound == self._furthest:
            self.states.add(state)
        return enabled, bound

    def _unsure(self, mask: int, state: Any, bound: int) -> list[tuple[int, Any]]:
        found = []
        for number, call in enumerate(self._maybe):
            if call.began > bound:
                break
            bit = 1 << len(self._sure) + number
            twin = self._twins[number]
            waits = twin is not None and not mask >> len(self._sure) + twin & 1
            if mask & bit or waits:
                continue
            after = self._model.step(state, call.act)
            if after is not IMPOSSIBLE and after != state:
                found.append((mask | bit, after))
        return found


def shorten(text: str) -> str:
    """At most 60 characters of it, the last ones, where what differs stands."""
    return text if len(text) <= _SHOWN_MAX else "..." + text[3 - _SHOWN_MAX :]


def _twins(calls: Sequence[Call]) -> list[int | None]:
    """For each call the last one before it that does the same."""
    last: dict[Act, int] = {}
    found = []
    for number, call in enumerate(calls):
        found.append(last.get(call.act))
        last[call.act] = number
    return found


@dataclass(slots=True)
class Judgement:
    """Of all keys together; `linearizable` None: not known of the keys in `undecided`."""

    linearizable: bool | None
    key: str | None = None
    """The one that has no order."""
    stuck: Call | None = None
    states: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)

    def why(self) -> str:
        """The first key found that has no order, in a sentence."""
        if self.linearizable is None:
            keys = ", ".join(self.undecided[:5]) + (", ..." if len(self.undecided) > 5 else "")
            return f"no answer in time for keys {keys}"
        if self.stuck is None:
            return "linearizable"
        states = ", ".join(self.states[:5]) + (", ..." if len(self.states) > 5 else "")
        return (
            f"key {self.key}: {self.stuck.name} has no place; "
            f"with all that ended before placed, the state may be: {states}"
        )


def judge(model: Model, calls: Mapping[str, Sequence[Call]], time_limit_s: float) -> Judgement:
    """Search all keys, in rounds of growing budget, until one has no order or all have one.

    A key that has none mostly shows it soon, and may stand behind one whose search is long.
    """
    deadline = time.monotonic() + time_limit_s
    searches = {key: Search(model, of_key) for key, of_key in calls.items()}
    open_keys, steps = list(searches), _FIRST_ROUND
    while any(not searches[key].exhausted for key in open_keys):
        undecided = []
        for key in open_keys:
            search = searches[key]
            answer = search.run(steps, deadline)
            if answer is None:
                undecided.append(key)
            elif not answer:
                states = sorted(shorten(model.shown(state)) for state in search.states)
                return Judgement(False, key, search.stuck, states)
        open_keys, steps = undecided, steps * _GROWTH
        if time.monotonic() > deadline:
            break
    return Judgement(None if open_keys else True, undecided=open_keys)
