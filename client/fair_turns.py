"""When the work of connections is done: the event loop's time, bounded and shared.

The connections that a node has dialled, and those of the nodes of its cluster, have `OWN_TURNS`:
each may go on for `connection_s` in each turn of the loop. Nodes that are not known yet have
`STRANGER_TURNS`, of `stranger_s`. Clients, and nodes that ask to join, share `FairTurns`: all of
them together get about `clients_s` in a turn of the loop, for the frames that have arrived and for
the requests that are served. So a flood holds neither the loop, on which the node's own messages
travel, nor another client.

The time is shared between principals, however many connections and requests each has: start-time
fair queuing (Goyal, Vin and Cheng 1996), with measured time as the cost. Each principal has a tag,
the time that it has used since all had the same; who waits and has the lowest tag goes first. A
principal whose tag is not above that of the one served last goes at once, up to `light_s` beyond
the time of the turn: who uses little waits for nobody.

A principal that is over its quota is held back: its work, which is to be refused, is done every
`held_every_s` for `held_s`, and never takes more than a tenth of the time.
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
"""A new node says little until it is known here: anybody may say to be a node without TLS."""
clients_s: Final = 0.001
slice_s: Final = 0.0005
light_s: Final = 0.001
held_every_s: Final = 0.002
held_s: Final = 0.0002
_HELD_SHARE: Final = 10
_TURN_LEAST_S: Final = 0.00002
_WEIGHT: Final = 1 / 8
"""Of the newest turn, in the mean that is expected of the next one."""

T = TypeVar("T")
_NEXT_TURN: Final = object()
Step = Callable[[float], None]
"""Serves a connection until that time of the clock. It stands in line again for the rest."""


class Turns(Protocol):
    """Gives connections their turns."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock that tells the times."""

    def begin(self, step: Step) -> float | None:
        """Until when a connection may go on that has something now. None: it stands in line, and
        `step` is called when it is its turn."""

    def later(self, step: Step) -> None:
        """Stand in line: `step` is called when it is this connection's turn, once."""

    def spent(self, seconds: float) -> None:
        """A turn has taken so long."""


class _OwnTurns:
    """Each connection has its own time, `each_s` in a turn of the loop, whatever the others do."""

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
    """The turns of one principal: of all its connections, and of its requests.

    `on_spent` is told how long each turn of a connection took, in seconds, and what TLS took of its
    handshake and of its answers.
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
        """How long a turn of a request takes in the mean."""

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
        """For so long the principal is over its quota."""
        self._held_until = self.clock() + seconds

    @coroutine
    def run(
        self, begin: Callable[[], Coroutine[Any, None, T]], on_spent: Callable[[float], None]
    ) -> Generator[Any, None, T]:
        """Run a request in the turns of this share: its first, and each after a `next_turn` or a
        `sleep(0)`.

        Awaiting anything else ends a turn, and what comes after it waits for no turn: a request may
        hold what others wait for. `on_spent` is told how long each turn took.
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
                except BaseException as raised:  # is the work's to see
                    error = raised
                began = clock()
        finally:
            error = None  # or the frame and the error's traceback would hold each other
            work.close()

    def _turn(self) -> Generator[Any, None, float]:
        """Wait for a turn; the seconds that were counted for it in advance."""
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
        """Take one from the line and serve it. True: others were behind it, and the share is to
        stand in line for them."""
        step = self._line.popleft()
        more = bool(self._line)  # what comes from now on stands in line by itself
        step(until)
        return more


@coroutine
def next_turn() -> Generator[Any, None, None]:
    """Within `Share.run`: wait for a turn, unless others have had more than this share. Hold
    nothing meanwhile that others wait for."""
    yield _NEXT_TURN


class FairTurns:
    """The turns of the clients of one event loop. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.until = 0.0
        """When the time of this turn of the loop ends."""
        self._shares: WeakValueDictionary[str, Share] = WeakValueDictionary()
        self._highest = 0.0
        """The highest tag of all."""
        self._virtual = 0.0
        """The tag of whoever was served last."""
        self.line: list[tuple[float, int, Share]] = []
        """A heap, by tag. Each share stands in it once at most."""
        self._order = 0
        self._expected_s = 0.0
        """What requests will take in the next turn, which were given it in this one."""
        self.watches = False
        """Whether `_next` is called in the next turn."""
        self._held: deque[Share] = deque()
        self._held_timer: asyncio.TimerHandle | None = None

    def share(self, name: str) -> Share:
        """The share of a principal: the same for as long as anybody has it."""
        found = self._shares.get(name)
        if found is None:
            found = self._shares[name] = Share(self, name)
            found.tag = self._virtual
        return found

    def has_time(self, share: Share, now: float) -> bool:
        """Whether a share, of which nothing stands in line, may go on now."""
        if not self.watches:
            self._begin(now)
        if not self.line:
            return now < self.until
        return share.tag <= self._virtual and now < self.until + light_s

    def stand(self, share: Share) -> None:
        """The share has something in its line."""
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
        """The share has used so much of the time, while others waited for theirs."""
        share.tag = max(share.tag, self._virtual) + seconds
        self._highest = max(self._highest, share.tag)

    def expect(self, share: Share, seconds: float) -> None:
        """A request of the share will go on in the next turn, for about so long."""
        share.tag += seconds
        self._highest = max(self._highest, share.tag)
        self._expected_s += seconds

    def _begin(self, now: float) -> None:
        self.until = now + max(clients_s - self._expected_s, slice_s)
        self._expected_s = 0.0
        self.watches = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """A turn begins. Those who came before are served first."""
        self.watches = False
        if not self.line and not self._expected_s:
            return
        now = self.clock()
        self._begin(now)
        while self.line and now + self._expected_s < self.until:
            tag, _, share = heapq.heappop(self.line)
            if share.is_held or (self.line and share.tag > max(tag, self.line[0][0])):
                self.stand(share)  # where it belongs by now
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
        """Serve those that are over their quotas, in turn."""
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
