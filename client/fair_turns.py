"""The event loop's time for the work of connections: bounded, and shared between principals.

Connections that a node has dialled, and those of other nodes of its cluster, have `OWN_TURNS`: each
may run for `connection_s` in each turn of the loop. Nodes that are not known yet have
`STRANGER_TURNS`, of `stranger_s`. Clients, and nodes that ask to join, share `FairTurns`: together
they get about `clients_s` in a turn of the loop, for received frames and for requests. So a flood
blocks neither the loop, which carries the node's own messages, nor other clients.

The time is shared between principals, however many connections and requests each has: start-time
fair queuing (Goyal, Vin and Cheng 1996), with measured time as the cost. Each principal has a tag,
the time it has used since all tags were equal; the waiting principal with the lowest tag goes
first. A principal whose tag is not above the tag served last runs at once, up to `light_s` beyond
the time of the turn: a principal that uses little does not wait.

A principal over its quota is held back: its work, which is to be refused, runs every `held_every_s`
for `held_s`, and never takes more than a tenth of the time.
"""

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

connection_s: Final = 0.002
stranger_s: Final = 0.0001
"""Short, because without TLS anybody may claim to be a node, and a new node sends little until
it is known."""
clients_s: Final = 0.001
slice_s: Final = 0.0005
light_s: Final = 0.001
held_every_s: Final = 0.002
held_s: Final = 0.0002
_HELD_SHARE: Final = 10
_TURN_LEAST_S: Final = 0.00002
_WEIGHT: Final = 1 / 8
"""The weight of the newest turn in the moving average that predicts the next turn."""

T = TypeVar("T")
_NEXT_TURN: Final = object()
Step = Callable[[float], None]
"""Serves a connection until the given time of the clock, then queues again for the rest."""


class Turns(Protocol):
    """Gives connections their turns."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock of all times here."""

    def begin(self, step: Step) -> float | None:
        """Return the time until which a connection with work may run; None: the connection is
        queued, and `step` is called in its turn."""

    def later(self, step: Step) -> None:
        """Queue the connection: `step` is called once, in its turn."""

    def spent(self, seconds: float) -> None:
        """Count the time that a turn has taken."""


class _OwnTurns:
    """Gives each connection its own time, `each_s` in a turn of the loop, whatever the others
    do."""

    clock = staticmethod(time.perf_counter)

    def __init__(self, each_s: float) -> None:
        self._each_s = each_s

    def begin(self, step: Step) -> float | None:
        return self.clock() + self._each_s

    def later(self, step: Step) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: step(self.clock() + self._each_s))

    def spent(self, seconds: float) -> None:
        return


OWN_TURNS: Final = _OwnTurns(connection_s)
STRANGER_TURNS: Final = _OwnTurns(stranger_s)


class Share:
    """The turns of one principal: of all its connections and requests.

    `on_spent` gets the seconds of each turn of a connection, and of TLS for its handshake and its
    answers.
    """

    __slots__ = (
        "__weakref__", "_expected_s", "_held_until", "_line", "_turns", "clock", "name",
        "on_spent", "tag",
    )  # fmt: skip

    def __init__(self, turns: "FairTurns", name: str) -> None:
        self.clock = turns.clock
        self.name = name
        self.tag = 0.0
        self.on_spent: Callable[[float], None] | None = None
        self._turns = turns
        self._line: deque[Step] = deque()
        self._held_until = 0.0
        self._expected_s = _TURN_LEAST_S
        """The mean time of a request's turn."""

    def begin(self, step: Step) -> float | None:
        """See `Turns`."""
        now = self.clock()
        if self._may_go(now):
            return min(now + connection_s, max(self._turns.until, now + slice_s))
        self.later(step)
        return None

    def later(self, step: Step) -> None:
        """See `Turns`."""
        self._line.append(step)
        if len(self._line) == 1:
            self._turns.stand(self)

    def spent(self, seconds: float) -> None:
        """See `Turns`."""
        if self._turns.line:
            self._turns.count(self, seconds)
        if self.on_spent is not None:
            self.on_spent(seconds)

    @property
    def is_held(self) -> bool:
        """Whether the principal is over its quota."""
        return self.clock() < self._held_until

    def hold_back(self, seconds: float) -> None:
        """Mark the principal as over its quota for `seconds`."""
        self._held_until = self.clock() + seconds

    @coroutine
    def run(
        self, begin: Callable[[], Coroutine[Any, None, T]], on_spent: Callable[[float], None]
    ) -> Generator[Any, None, T]:
        """Run a request in the turns of this share: its first step, and each step after a
        `next_turn` or a `sleep(0)`.

        Any other await ends the turn, and the step after it waits for no turn: the request may hold
        a resource that others wait for. `on_spent` gets the seconds of each turn.
        """
        clock, turns = self.clock, self._turns
        error: BaseException | None = None
        expected_s = 0.0
        began = clock()
        if not self._may_go(began):
            expected_s = yield from self._turn()
            began = clock()
        work = begin()
        try:
            while True:
                try:
                    waits_for = work.send(None) if error is None else work.throw(error)
                except StopIteration as done:
                    found: T = done.value
                    return found
                finally:
                    took = clock() - began
                    self._expected_s += (took - self._expected_s) * _WEIGHT
                    if turns.line or expected_s:
                        turns.count(self, took - expected_s)
                        expected_s = 0.0
                    on_spent(took)
                error = None
                try:
                    if waits_for is None or waits_for is _NEXT_TURN:
                        if waits_for is None:
                            yield
                        if not self._may_go(clock()):
                            expected_s = yield from self._turn()
                    else:
                        yield waits_for
                except BaseException as raised:  # the work handles it
                    error = raised
                began = clock()
        finally:
            error = None  # otherwise this frame and the error's traceback refer to each other
            work.close()

    def _turn(self) -> Generator[Any, None, float]:
        """Wait for a turn; return the seconds that were counted for it in advance."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        expected_s = 0.0

        def step(_: float) -> None:
            nonlocal expected_s
            if not waiter.done():
                expected_s = max(self._expected_s, _TURN_LEAST_S)
                self._turns.expect(self, expected_s)
                waiter.set_result(None)

        self.later(step)
        yield from waiter
        return expected_s

    def _may_go(self, now: float) -> bool:
        if self._line or now < self._held_until:
            return False
        turns = self._turns
        if turns.watches and not turns.line:
            return now < turns.until
        return turns.has_time(self, now)

    def serve(self, until: float) -> bool:
        """Serve the first step of the queue. Returns True when other steps followed it; the
        share must then be queued for them."""
        step = self._line.popleft()
        more = bool(self._line)  # later steps queue the share by themselves
        step(until)
        return more


@coroutine
def next_turn() -> Generator[Any, None, None]:
    """Within `Share.run`: wait for a turn, unless other shares have had more time than this one.
    The caller must hold nothing that others wait for."""
    yield _NEXT_TURN


class FairTurns:
    """The turns of the clients on one event loop. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.until = 0.0
        """The end of this turn's time."""
        self._shares: WeakValueDictionary[str, Share] = WeakValueDictionary()
        self._highest = 0.0
        """The highest tag of all shares."""
        self._virtual = 0.0
        """The tag of the share served last."""
        self.line: list[tuple[float, int, Share]] = []
        """A heap, by tag. Each share is in it at most once."""
        self._order = 0
        self._expected_s = 0.0
        """The expected time in the next turn of the requests that were admitted in this turn."""
        self.watches = False
        """Whether `_next` is scheduled for the next turn."""
        self._held: deque[Share] = deque()
        self._held_timer: asyncio.TimerHandle | None = None

    def share(self, name: str) -> Share:
        """Return the share of a principal: the same object as long as it is in use."""
        found = self._shares.get(name)
        if found is None:
            found = self._shares[name] = Share(self, name)
            found.tag = self._virtual
        return found

    def has_time(self, share: Share, now: float) -> bool:
        """Return whether a share with an empty queue may run now."""
        if not self.watches:
            self._begin(now)
        if not self.line:
            return now < self.until
        return share.tag <= self._virtual and now < self.until + light_s

    def stand(self, share: Share) -> None:
        """Queue the share, which has work in its own queue."""
        if share.is_held:
            self._held.append(share)
            self._serve_held_in(held_every_s)
            return
        self._order += 1
        share.tag = max(share.tag, self._virtual)
        heapq.heappush(self.line, (share.tag, self._order, share))
        if not self.watches:
            self._begin(self.clock())

    def count(self, share: Share, seconds: float) -> None:
        """Add time to the share's tag: it ran while others waited."""
        share.tag = max(share.tag, self._virtual) + seconds
        self._highest = max(self._highest, share.tag)

    def expect(self, share: Share, seconds: float) -> None:
        """Charge in advance a request of the share that will run in the next turn, for about
        `seconds`."""
        share.tag += seconds
        self._highest = max(self._highest, share.tag)
        self._expected_s += seconds

    def _begin(self, now: float) -> None:
        self.until = now + max(clients_s - self._expected_s, slice_s)
        self._expected_s = 0.0
        self.watches = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begin a turn of the loop; earlier work is served first."""
        self.watches = False
        if not self.line and not self._expected_s:
            return
        now = self.clock()
        self._begin(now)
        while self.line and now + self._expected_s < self.until:
            tag, _, share = heapq.heappop(self.line)
            if share.is_held or (self.line and share.tag > max(tag, self.line[0][0])):
                self.stand(share)  # back to its place in the order
                continue
            self._virtual = max(self._virtual, tag)
            if share.serve(now + slice_s):
                self.stand(share)
            now = self.clock()
        if not self.line:
            self._virtual = self._highest  # nobody waits: nobody has used too much

    def _serve_held_in(self, seconds: float) -> None:
        if self._held_timer is None:
            loop = asyncio.get_running_loop()
            self._held_timer = loop.call_later(seconds, self._serve_held)

    def _serve_held(self) -> None:
        """Serve the shares that are over their quotas, in turn."""
        self._held_timer = None
        began = now = self.clock()
        expected_before = self._expected_s
        until = began + held_s
        while self._held and now < until:
            share = self._held.popleft()
            if share.serve(until):
                self.stand(share)
            now = self.clock() + self._expected_s - expected_before
        if self._held:
            self._serve_held_in(max(held_every_s, (now - began) * _HELD_SHARE))
