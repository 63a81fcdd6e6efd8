"""Readers of the simulated cluster that keep cursors, and the check of what they are told.

Readers compete for one cursor of each group of keys. A reader opens the cursor, commits positions
of the whole span and of single keys, reads positions, and learns only by a refusal that another
reader has opened the cursor since. Each request goes on at the ranges that hold the rest of its
keys by then. Nobody sets or deletes a cursor, so that a position never goes back.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ...client.cursor_rows import Rows
from ...client.span_positions import Position
from .clients import Client, Reply
from .clock import Scheduler
from .history import History
from .options import Options
from .trace import Trace
from .violation import Violation

READERS: Final = 2
THINK_S: Final = 0.4
_OPENS: Final = 0.2
_READS: Final = 0.3


@dataclass(slots=True)
class CursorHistory:
    """What readers asked and were told of each key's position.

    Methods raise Violation when an answer breaks a promise. Ticks order the events.
    """

    commits: int = 0
    """Acknowledged commits, each of some keys of one range."""
    fenced: int = 0
    reads: int = 0
    floors: dict[tuple[str, bytes], int] = field(default_factory=dict)
    """The highest position that was acknowledged or shown."""
    _tick: int = 0
    _holder: int = 0
    _tried: dict[tuple[str, bytes], int] = field(default_factory=dict)
    """The highest position that a request named."""
    _opened: dict[tuple[str, bytes], list[tuple[int, int]]] = field(default_factory=dict)
    """Acknowledged openings: tick and holder."""

    def invoked(self) -> int:
        """Note that a request begins; return its tick."""
        self._tick += 1
        return self._tick

    def next_holder(self) -> int:
        """Return the number of a reader that opens a cursor: above all others so far."""
        self._holder += 1
        return self._holder

    def holder_before(self, name: str, key: bytes, tick: int) -> int:
        """Return the highest holder whose opening was acknowledged before the tick, or 0."""
        rows = self._opened.get((name, key), ())
        return max((holder for at, holder in rows if at < tick), default=0)

    def tries(self, name: str, positions: Mapping[bytes, int]) -> None:
        """Note the positions of a request."""
        for key, next_ in positions.items():
            self._tried[name, key] = max(self._tried.get((name, key), 1), next_)

    def tried(self, name: str, key: bytes) -> int:
        """Return the highest position of the key that a request named."""
        return self._tried.get((name, key), 1)

    def owes(self, name: str, key: bytes, next_: int) -> None:
        """Note that the position of a key was seen: no read that begins later shows a lower one."""
        self.floors[name, key] = max(self.floors.get((name, key), 1), next_)

    def opened(self, name: str, keys: list[bytes], holder: int, tick: int) -> None:
        """Note an acknowledged opening that began at the tick."""
        self._require_newest(name, keys, holder, tick)
        for key in keys:
            self._opened.setdefault((name, key), []).append((self.invoked(), holder))
            self.floors.setdefault((name, key), 1)

    def committed(self, name: str, sure: Mapping[bytes, int], holder: int, tick: int) -> None:
        """Note an acknowledged commit that began at the tick.

        `sure`: the least position of each key from then on; a range that ends below the committed
        position keeps its own end.
        """
        self._require_newest(name, list(sure), holder, tick)
        self.commits += 1
        for key, next_ in sure.items():
            self.owes(name, key, next_)

    def refused(self, name: str, keys: list[bytes], holder: int, reply: Reply, tick: int) -> None:
        """Note a refused opening or commit of these keys, which begin in one range."""
        self.fenced += 1
        if reply["status"] == "fenced" and holder >= self._holder:
            raise Violation("G1", "the newest holder of a cursor is fenced", cursor=name,
                            holder=holder)  # fmt: skip
        if reply["status"] == "missing" and all(self.holder_before(name, k, tick) for k in keys):
            raise Violation("G3", "an opened cursor is gone", cursor=name, keys=keys)

    def shown(
        self, name: str, floors: Mapping[bytes, int], found: Mapping[bytes, tuple[int, int]],
        tick: int,
    ) -> None:  # fmt: skip
        """Check a read that began at the tick: for each key its holder and position. `floors`: the
        positions that it has to show at least."""
        self.reads += 1
        for key, floor in floors.items():
            holder, next_ = found.get(key, (0, 0))
            if next_ < floor:
                raise Violation("G3", "an acknowledged position of a cursor is lost", cursor=name,
                                key=key, floor=floor, shown=next_)  # fmt: skip
            if next_ > self._tried.get((name, key), 1):
                raise Violation("G3", "a cursor is beyond every position that was committed",
                                cursor=name, key=key, shown=next_)  # fmt: skip
            if holder < self.holder_before(name, key, tick):
                raise Violation("G1", "an opening of a cursor is lost", cursor=name, key=key,
                                holder=holder)  # fmt: skip
            if next_:
                self.owes(name, key, next_)

    def final(
        self, node: int, position: Callable[[str, bytes], int], covers: Callable[[bytes], bool]
    ) -> None:
        """Check what one node holds after everything healed."""
        for (name, key), floor in self.floors.items():
            if covers(key) and position(name, key) < floor:
                raise Violation("G3", "a node lacks an acknowledged position", node=node,
                                cursor=name, key=key, floor=floor)  # fmt: skip

    def _require_newest(self, name: str, keys: list[bytes], holder: int, tick: int) -> None:
        for key in keys:
            newer = self.holder_before(name, key, tick)
            if newer > holder:
                raise Violation("G1", "a request of a fenced holder was accepted", cursor=name,
                                key=key, holder=holder, newer=newer)  # fmt: skip


@dataclass(slots=True)
class CursorReader:
    """One reader, which holds cursors until another reader takes them."""

    options: Options
    client: Client
    """Asks, repeats and routes; it does nothing of its own."""
    scheduler: Scheduler
    rng: random.Random
    trace: Trace
    log: History
    history: CursorHistory
    open_requests: int = 0
    _holders: dict[int, int] = field(default_factory=dict)
    """By group, the number with which this reader opened the cursor."""
    _stopped: bool = False

    def start(self) -> None:
        """Begin: one thing after another."""
        self._later()

    def stop(self) -> None:
        """Start nothing new; an open request goes on until it is answered."""
        self._stopped = True

    def _later(self) -> None:
        self.scheduler.after(self.rng.expovariate(1.0 / THINK_S), self._next)

    def _next(self) -> None:
        if self._stopped:
            return
        self.open_requests += 1
        group, drawn = self.rng.randrange(self.options.groups), self.rng.random()
        if group not in self._holders or drawn < _OPENS:
            holder = self._holders[group] = self.history.next_holder()
            start, end = _span(group)
            rows = Rows([(start, end, self.rng.choice((1, 1, 3)))])
            self._change("cursor_open", group, holder, rows)
        elif drawn < _OPENS + _READS:
            self._read(group, _span(group)[0])
        else:
            self._change("cursor_commit", group, self._holders[group], self._done(group))

    def _finished(self) -> None:
        self.open_requests -= 1
        self._later()

    def _done(self, group: int) -> Rows:
        """Return the rows of a commit: entries that some client knows are done."""
        ends = {key: self.log.floors.get(key, 0) + 1 for key in self._keys(group)}
        keys = self.rng.sample(sorted(ends), self.rng.randint(0, len(ends)))
        start, end = _span(group)
        spans: list[Position] = [(start, end, self.rng.choice(sorted(ends.values())))]
        if keys and self.rng.random() < 0.5:
            spans = []
        return Rows(spans, sorted((key, ends[key]) for key in keys))

    def _keys(self, group: int) -> list[bytes]:
        return [b"%d/k%d" % (group, number) for number in range(self.options.keys)]

    # Changes.

    def _change(self, how: str, group: int, holder: int, rows: Rows) -> None:
        """Send the rows to the range of the first of their keys; the answer says where the others
        begin."""
        name = f"cursor{group}"
        named = self._positions(group, rows)
        # A range whose end is below a position keeps its end, which is above all its entries.
        sure = {key: min(next_, self.log.floors.get(key, 0) + 1) for key, next_ in named.items()}
        self.history.tries(name, named)
        self.trace(self.client.name, "invoke", f"{how} {name} holder={holder} {rows.spans}")
        request: dict[str, Any] = {"cursor": name, "holder": holder, "spans": rows.spans}
        if how == "cursor_commit":
            request["keys"] = rows.keys
        body = {"op": "cursor", "key": rows.first, "how": how, "request": request}
        tick = self.history.invoked()
        self.client.insist(
            body, partial(self._changed, how, group, holder, rows, sure, tick)
        )  # fmt: skip

    def _changed(
        self, how: str, group: int, holder: int, rows: Rows, sure: Mapping[bytes, int], tick: int,
        reply: Reply,
    ) -> None:  # fmt: skip
        name = f"cursor{group}"
        self.trace(self.client.name, how, f"{name} holder={holder} {reply['status']}")
        if reply["status"] != "ok":
            # The refusing range has at least the first key; the others may be elsewhere.
            first = [key for key in sorted(sure)[:1] if how == "cursor_commit"]
            if reply["status"] != "level":
                self.history.refused(name, first, holder, reply, tick)
            self._holders.pop(group, None)
            self._finished()
            return
        end = reply["end_key"]
        part = {key: next_ for key, next_ in sure.items() if end is None or key < end}
        if how == "cursor_open":
            self.history.opened(name, list(part), holder, tick)
        else:
            self.history.committed(name, part, holder, tick)
        rest = Rows() if end is None else rows.within(end, None)
        if rest:
            self._change(how, group, holder, rest)
        else:
            self._finished()

    def _positions(self, group: int, rows: Rows) -> dict[bytes, int]:
        """Return the position that the rows name for each key of the group."""
        found: dict[bytes, int] = {}
        for start, end, next_ in rows.spans:
            for key in self._keys(group):
                if start <= key and (end is None or key < end):
                    found[key] = next_
        for key, next_ in rows.keys:
            found[key] = max(next_, found.get(key, 0))
        return found

    # Reads.

    def _read(self, group: int, start: bytes) -> None:
        """Read a page of the positions from this key on, from any member."""
        name, (_, end) = f"cursor{group}", _span(group)
        floors = {
            key: self.history.floors.get((name, key), 0)
            for key in self._keys(group) if key >= start
        }  # fmt: skip
        request = {"cursor": name, "start_key": start, "end_key": end}
        body = {"op": "cursor_read", "key": start, "how": "cursor_read", "request": request}
        tick = self.history.invoked()
        self.client.insist(body, partial(self._have_read, group, floors, tick))

    def _have_read(self, group: int, floors: dict[bytes, int], tick: int, reply: Reply) -> None:
        name, end = f"cursor{group}", reply["end_key"]
        self.trace(self.client.name, "cursor_read", f"{name} {reply['spans']} {reply['keys']}")
        found: dict[bytes, tuple[int, int]] = {}
        own = dict(map(tuple, reply["keys"]))
        asked = {key: floor for key, floor in floors.items() if end is None or key < end}
        for start, until, holder, next_ in reply["spans"]:
            for key in asked:
                if start <= key and (until is None or key < until):
                    found[key] = holder, own.get(key, next_)
        self.history.shown(name, asked, found, tick)
        if end is None:
            self._finished()
        else:
            self._read(group, end)


def _span(group: int) -> tuple[bytes, bytes]:
    """Return the span of the keys of a group."""
    return b"%d/" % group, b"%d0" % group
