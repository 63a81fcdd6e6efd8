"""Linearizability of one object by search, after Wing and Gong (1993) and Lowe (2017).

An operation takes effect at one moment between its invocation and its completion. The search places
one operation after another: the next can be any operation whose invocation precedes all completions
of the operations not yet placed. The remaining work depends only on the set of placed operations
and on the resulting state. Each such pair, a configuration, is therefore visited once; the set is
stored as the bits of an integer.

Two kinds of orders are skipped. A read that fits the current state is placed at once, since it
changes nothing. When two equal operations may never have happened, the search first places the
operation that was invoked first. An operation that may never have happened need not be placed at
all.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

State = Hashable
Act = tuple[Any, ...]
"""An operation with its answer: its name, then the arguments of the model."""

IMPOSSIBLE: Final = object()
"""The result of a model's step for an act that cannot have had this answer in this state."""

_FIRST_ROUND: Final = 500
_GROWTH: Final = 4
_CLOCK_EVERY: Final = 1024
_SHOWN_MAX: Final = 60
_CONFIGURATIONS_MAX: Final = 4_000_000
"""For one key, about 700 MiB: a search that needs more gives up."""


@dataclass(frozen=True, slots=True)
class Model:
    """An object as a single client would use it."""

    initial: State
    step: Callable[[Any, Act], Any]
    """(state, act) -> the next state, or IMPOSSIBLE."""
    reads: frozenset[str]
    """Names of acts that never change the state."""
    shown: Callable[[Any], str] = str
    """Describes a state."""


@dataclass(frozen=True, slots=True)
class Call:
    """One operation that happened, or may have (`ended` None: from `began` on, or never)."""

    began: int
    ended: int | None
    act: Act
    name: str
    """The process and its operation, for people."""
    index: int
    """The index of the invocation."""


class Search:
    """The search for one key; it can be continued after a stop."""

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
        """The call that must be placed and whose completion no order has passed so far."""
        self.states: set[Any] = set()
        """The possible states with all calls placed that ended before the end of `stuck`."""

    def run(self, steps: int, deadline: float) -> bool | None:
        """Return whether an order exists.

        None: unknown after `steps` further configurations, or at the deadline of time.monotonic().
        """
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
        """Whether the search holds as many configurations as it may."""
        return len(self._seen) > _CONFIGURATIONS_MAX

    def _next(self, mask: int, state: Any) -> list[tuple[int, Any]]:
        """Return the configurations one placement further, the most promising last."""
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
        """Return the sure calls that may come next, and the first completion among the unplaced."""
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
    """Return the last 60 characters at most, since texts differ at their ends."""
    return text if len(text) <= _SHOWN_MAX else "..." + text[3 - _SHOWN_MAX :]


def _twins(calls: Sequence[Call]) -> list[int | None]:
    """Return, for each call, the last call before it that does the same."""
    last: dict[Act, int] = {}
    found = []
    for number, call in enumerate(calls):
        found.append(last.get(call.act))
        last[call.act] = number
    return found


@dataclass(slots=True)
class Judgement:
    """The judgement of all keys; `linearizable` None: unknown for the keys in `undecided`."""

    linearizable: bool | None
    key: str | None = None
    """The key without an order."""
    stuck: Call | None = None
    states: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)

    def why(self) -> str:
        """Describe the first key found without an order."""
        if self.linearizable is None:
            keys = ", ".join(self.undecided[:5]) + (", ..." if len(self.undecided) > 5 else "")
            return f"the time limit ended before the answer for keys {keys}"
        if self.stuck is None:
            return "linearizable"
        states = ", ".join(self.states[:5]) + (", ..." if len(self.states) > 5 else "")
        return (
            f"key {self.key}: {self.stuck.name} has no place; after all operations that "
            f"ended before it, the state may be: {states}"
        )


def judge(model: Model, calls: Mapping[str, Sequence[Call]], time_limit_s: float) -> Judgement:
    """Search all keys, in rounds of growing budget, until one has no order or all have one.

    A key without an order mostly shows this soon, but may stand behind a key with a long search.
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
