"""Tells listeners about applied entries that concern them, in slices of the event loop.

An entry concerns a listener that named one of its keys, or whose span contains one of its keys. The
first slice runs at once. Until all slices have run, the keys of further entries gather, and the
next round over the listeners takes them together. So tens of thousands of listeners cost at most a
slice a turn, and no news is lost.
"""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, TypeVar

from ..runtime.slices import SLICE_S
from ..runtime.unexpected import OnBroken, guarded

K = TypeVar("K")
TOLD_A_TURN: Final = 32
"""Follows told in one turn: each reads a page, which takes about 0.1 ms."""

Listener = Callable[[Collection[bytes] | None, int], None]
"""Called with keys that got entries and the first seq of these entries. Called with None and 0 when
something else has changed: the replica has ended, or its member is cut off. The seqs of the calls
grow. An entry that concerns the listener and has a lower seq was told by an earlier call, or was
applied before the listener listened. A listener for a span may also get keys outside the span."""
Span = tuple[bytes, bytes | None]
"""The first key, and the first key after the span; None: the span has no end."""


class News:
    """The listeners of a replica. `on_broken` ends the node after a bug."""

    def __init__(self, on_broken: OnBroken) -> None:
        self._on_broken = on_broken
        self._keyed: dict[bytes, set[Listener]] = {}
        self._spans: dict[Span, set[Listener]] = {}
        self._touched: set[bytes] = set()
        """Keys that got entries after the present round over the listeners began."""
        self._touched_from = 0
        """The lowest seq of these entries."""
        self._for_all = False
        """All listeners must be told that something has changed, after all other news."""
        self._round: Iterator[bool] | None = None
        self._scheduled = False

    def listen(self, listener: Listener, keys: Iterable[bytes]) -> None:
        """Call the listener after entries of the keys were applied."""
        for key in keys:
            self._keyed.setdefault(key, set()).add(listener)

    def listen_span(self, listener: Listener, start: bytes, end: bytes | None) -> None:
        """Call the listener after entries of keys in [start, end) were applied; None: no end."""
        self._spans.setdefault((start, end), set()).add(listener)

    def unlisten(self, listener: Listener, keys: Iterable[bytes]) -> None:
        """Undo `listen`."""
        for key in keys:
            _discard(self._keyed, key, listener)

    def unlisten_span(self, listener: Listener, start: bytes, end: bytes | None) -> None:
        """Undo `listen_span`."""
        _discard(self._spans, (start, end), listener)

    def tell(self, keys: Iterable[bytes], seq: int) -> None:
        """Tell the listeners that the keys got entries, from `seq` on."""
        if not self.has_listeners:
            return  # a later listener reads before it waits
        if not self._touched:
            self._touched_from = seq
        self._touched.update(keys)
        if not self._scheduled:
            self._tell_some()

    @property
    def has_listeners(self) -> bool:
        """Whether there are listeners."""
        return bool(self._keyed or self._spans)

    def tell_all(self) -> None:
        """Tell all listeners that something else than entries has changed."""
        self._for_all = True
        if not self._scheduled:
            self._tell_some()

    def _tell_some(self) -> None:
        self._scheduled = False
        told, until = 0, time.perf_counter() + SLICE_S
        while self._round is not None or self._begin_round():
            for was_told in self._round or ():
                told += was_told
                if told == TOLD_A_TURN or time.perf_counter() > until:
                    self._scheduled = True
                    asyncio.get_running_loop().call_soon(guarded(self._tell_some, self._on_broken))
                    return
            self._round = None

    def _begin_round(self) -> bool:
        """Begin to go over the listeners with the present news; False: there is no news."""
        if self._touched:
            touched, self._touched = self._touched, set()
            self._round = self._tell_touched(touched, self._touched_from)
        elif self._for_all:
            self._for_all = False
            self._round = self._tell_each()
        return self._round is not None

    def _tell_touched(self, touched: set[bytes], seq: int) -> Iterator[bool]:
        """Go over the listeners in small steps; a step says whether a listener was told."""
        woken: dict[Listener, set[bytes]] = {}
        for key in self._keyed.keys() & touched:
            for listener in list(self._keyed.get(key, ())):
                woken.setdefault(listener, set()).add(key)
                yield False
        for listener, own in woken.items():
            if any(listener in self._keyed.get(key, ()) for key in own):
                listener(own, seq)
            yield True
        if not self._spans:
            return
        has_any = _Touched(touched).has_any
        for span in list(self._spans):
            if not has_any(span):
                yield False
                continue
            for listener in list(self._spans.get(span, ())):
                if listener in self._spans.get(span, ()):
                    listener(touched, seq)
                yield True

    def _tell_each(self) -> Iterator[bool]:
        told: set[Listener] = set()
        for listeners in (*self._spans.values(), *self._keyed.values()):
            for listener in list(listeners):
                is_new = listener not in told and listener in listeners
                if is_new:
                    told.add(listener)
                    listener(None, 0)
                yield is_new


class _Touched:
    """Keys that got entries. They are sorted only when a span lies between two of the keys."""

    def __init__(self, keys: set[bytes]) -> None:
        self._keys = keys
        self._least, self._greatest = min(keys), max(keys)
        self._sorted: list[bytes] | None = None

    def has_any(self, span: Span) -> bool:
        """Whether one of the keys is in the span."""
        start, end = span
        if start > self._greatest or (end is not None and end <= self._least):
            return False
        if start <= self._least or end is None or end > self._greatest:
            return True
        if self._sorted is None:
            self._sorted = sorted(self._keys)
        return self._sorted[bisect_left(self._sorted, start)] < end


def _discard(listeners: dict[K, set[Listener]], at: K, listener: Listener) -> None:
    own = listeners.get(at)
    if own is not None:
        own.discard(listener)
        if not own:
            del listeners[at]
