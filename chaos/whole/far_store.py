"""The object store of a run's tier, and what happens to requests on their way.

A request has three moments: it leaves the node, it takes effect at the store, and its answer comes
back. Other nodes and sweeps act in between, and the node may be paused or dead by then. A request
may be lost, or its answer; an error may come at once; the effect may come long after the node has
given up, even after its death. A listing comes in pages, each of a moment of its own. A page may be
of an earlier moment, although the contract of stores says otherwise: no promise of a tier needs a
new listing. The store is away for a while.

A node may have an empty place where the store was, as when a directory of a file server is
unmounted: its requests go there until the store is mounted again, at the latest by the next process
of the node. A process that begins with an empty place makes another tier there, and asks for a
restart once the store is mounted. So only processes that have written to the store lose the store.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from ...client.objects.store import Listed
from ...client.protocol.errors import LognodeError, Unavailable
from .loop import SimLoop
from .memory_store import MemoryStore

PLACE: Final = "s3://simulated/tier"
PAGE: Final = 12
"""The most names in a page of a listing."""
_OLD_MAX: Final = 40
"""How many changes ago a listing may be from."""
_FAST_S: Final = (0.5e-3, 6e-3)
_SLOW_S: Final = (0.02, 0.6)
_SLOW: Final = 0.06
_PATIENCE_S: Final = (0.2, 2.0)
_LATE_S: Final = (0.0, 8.0)
_SHARES: Final[Mapping["Fate", float]] = {
    "refused": 0.03, "lost": 0.02, "unanswered": 0.03, "late": 0.03,
}  # fmt: skip
_OLD: Final = 0.06
"""The share of pages of listings that are of an earlier moment."""
_AWAY: Final = 0.5
_AWAY_FROM_S: Final = (1.0, 15.0)
_AWAY_S: Final = (0.5, 4.0)

Fate = Literal["done", "refused", "lost", "unanswered", "late"]
Reply = Callable[[Any, LognodeError | None], None]
"""Takes the answer, or the error."""


class Request(NamedTuple):
    """A request of a node. `act` takes effect at a store, and returns the answer."""

    kind: Literal["put", "get", "list", "delete"]
    name: str
    act: Callable[[MemoryStore], Any]


class FarStore(MemoryStore):
    """The store; its methods are what happens there, and `take` is the way to it."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        super().__init__()
        self.place = PLACE
        self.is_calm = False
        """Whether faults have ended."""
        self.arrives: Callable[[Request], bool] = lambda _: True
        """Asked when a request arrives; False: the request is lost."""
        self.is_done: Callable[[Request], None] = lambda _: None
        """Called when a request has taken effect, before its answer leaves."""
        self._loop = loop
        self._rng = rng
        self._past: deque[list[Listed]] = deque([[]], _OLD_MAX)
        self._in_place: dict[str, MemoryStore] = {}
        """What processes have in the place of the store."""
        self._writers: set[str] = set()
        """The processes that have put a file or a manifest."""
        self._is_away = False
        self._away: tuple[float, float] = (0.0, 0.0)
        if rng.random() < _AWAY:
            begin = loop.time() + rng.uniform(*_AWAY_FROM_S)
            self._away = begin, begin + rng.uniform(*_AWAY_S)

    def calm(self) -> None:
        """End all faults. Requests that are late still arrive."""
        self.is_calm = True
        self._in_place.clear()

    def leave(self) -> None:
        """Refuse all requests until `come_back`, also when faults have ended."""
        self._is_away = True

    def come_back(self) -> None:
        """Undo `leave`."""
        self._is_away = False

    def unmount(self, who: str) -> None:
        """Put an empty place before a process, where the store was."""
        if who in self._writers:
            self._loop.trace(who, "the tier is unmounted")
            self._in_place[who] = MemoryStore()

    def mount(self, who: str) -> None:
        """Undo `unmount`."""
        if self._in_place.pop(who, None) is not None:
            self._loop.trace(who, "the tier is mounted")

    def begins(self, who: str) -> None:
        """Note that a process begins. The store is mounted."""
        self.mount(who)
        self._writers.discard(who)

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        is_stored = super().put(name, content, replace=replace)
        if is_stored:
            self._past.append(list(super().objects()))
        return is_stored

    def delete(self, name: str) -> None:
        if name in self.contents:
            super().delete(name)
            self._past.append(list(super().objects()))

    def page(self, store: MemoryStore, folder: str, after: str) -> list[Listed]:
        """Return objects of a folder with names above `after`, at most a page of them.

        `store`: this one, or what a process has in its place.
        """
        found = store.objects()
        if store is self and not self.is_calm and self._rng.random() < _OLD:
            found = iter(self._past[-self._rng.randint(1, len(self._past))])
        prefix = f"{folder}/" if folder else ""
        named = (each for each in found if each.name > after and each.name.startswith(prefix))
        return list(islice(named, PAGE))

    def take(self, request: Request, who: str, reply: Reply) -> None:
        """Carry a request of a process out; `reply` gets the answer or an error, if any comes."""
        fate = self._fate()
        self._loop.trace(who, f"{request.kind} {request.name or '/'}: {fate}")
        if fate == "refused":
            self._at(self._delay_s(), reply, None, self._error("the store answers 503"))
            return
        if fate in ("lost", "unanswered", "late"):
            patience_s = self._rng.uniform(*_PATIENCE_S)
            self._at(patience_s, reply, None, self._error("no answer in time"))
            if fate != "lost":
                more_s = patience_s + self._rng.uniform(*_LATE_S) if fate == "late" else 0.0
                self._at(self._delay_s() + more_s, self._arrived, request, who, None)
            return
        self._at(self._delay_s(), self._arrived, request, who, reply)

    def _arrived(self, request: Request, who: str, reply: Reply | None) -> None:
        if not self.arrives(request):
            return
        place = self._in_place.get(who, self)
        if request.kind == "put" and place is self and "/" in request.name:
            self._writers.add(who)
        answer, error = None, None
        try:
            answer = request.act(place)
        except LognodeError as found:  # an answer, too: an object is shorter than was asked for
            error = found
        self.is_done(request)
        if reply is not None:
            self._at(self._delay_s(), reply, answer, error)

    def _fate(self) -> Fate:
        if self._is_away:
            return "refused"
        if self.is_calm:
            return "done"
        if self._away[0] <= self._loop.time() < self._away[1]:
            return "refused"
        drawn = self._rng.random()
        for fate, share in _SHARES.items():
            drawn -= share
            if drawn < 0:
                return fate
        return "done"

    def _error(self, text: str) -> LognodeError:
        return self.failed(Unavailable, f"{text}. Try again")

    def _delay_s(self) -> float:
        slow = not self.is_calm and self._rng.random() < _SLOW
        return self._rng.uniform(*(_SLOW_S if slow else _FAST_S))

    def _at(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        """Call in the world, where no end of a process matters."""
        self._loop.call_later(delay_s, call, *args, context=self._loop.world.context)
