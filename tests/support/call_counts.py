"""How many Python-level events of each function a piece of work takes: calls and lines.

`Counting` traces the thread that counts, and threads that have started while it was installed. An
event counts for the innermost function of lognode on the stack that is not a part of the wire
protocol, since client and node share the protocol's functions.

- A call is a call of a Python function, a resumption of a generator or coroutine, or a call of a C
  function from Python code. Calls that C code makes of C functions are not seen: `map(len, keys)`
  is one call, and that is what this project wants of work per record.
- A line is a line of Python that is executed. Each iteration of a loop or comprehension counts
  again, even if all of the loop is on one line.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import lognode

_ROOT = Path(lognode.__file__).resolve().parent
_SHARED = "client/protocol/"
_NOT_THE_PRODUCT = ("tests/", "scripts/", "chaos/")


class Events(NamedTuple):
    """Python-level events of one function."""

    calls: float
    lines: float


class Place(NamedTuple):
    """A function of lognode: its file under the package, and its name."""

    file: str
    name: str


class Counting:
    """Counts events while `on`; see the module."""

    def __init__(self) -> None:
        self._on = False
        self._counts: dict[int, tuple[Counter[Place], Counter[Place]]] = {}
        self._places: dict[CodeType, Place | None] = {}
        self._tracers: dict[Place, Callable[[FrameType, str, Any], Any]] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have all threads that start in the block ready to be counted."""
        threading.settrace(self._trace)
        threading.setprofile(self._profile)
        try:
            yield
        finally:
            threading.settrace(None)  # type: ignore[arg-type]
            threading.setprofile(None)

    @contextmanager
    def counted(self) -> Iterator[dict[Place, Events]]:
        """Count while the block lasts, in this thread too. The result is filled at the end."""
        found: dict[Place, Events] = {}
        self._counts = {}
        before = sys.gettrace(), sys.getprofile()
        self._on = True
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        try:
            yield found
        finally:
            sys.settrace(before[0])
            sys.setprofile(before[1])
            self._on = False
            calls: Counter[Place] = Counter()
            lines: Counter[Place] = Counter()
            for thread_calls, thread_lines in list(self._counts.values()):
                calls.update(thread_calls)
                lines.update(thread_lines)
            found.update(
                {place: Events(calls[place], lines[place]) for place in calls.keys() | lines.keys()}
            )

    def _here(self) -> tuple[Counter[Place], Counter[Place]]:
        """Return the counters of this thread: threads do not share counters."""
        ident = threading.get_ident()
        found = self._counts.get(ident)
        if found is None:
            found = self._counts[ident] = (Counter(), Counter())
        return found

    def _place(self, frame: FrameType | None) -> Place | None:
        """Return the innermost place of the product on the stack; None outside of it."""
        while frame is not None:
            code = frame.f_code
            try:
                place = self._places[code]
            except KeyError:
                place = self._places[code] = _place_of(code)
            if place is not None:
                return place
            frame = frame.f_back
        return None

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not self._on:
            return None
        place = self._place(frame)
        if place is None:
            return None
        self._here()[0][place] += 1
        tracer = self._tracers.get(place)
        if tracer is None:
            tracer = self._tracers[place] = self._line_tracer(place)
        return tracer

    def _line_tracer(self, place: Place) -> Callable[[FrameType, str, Any], Any]:
        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line" and self._on:
                self._here()[1][place] += 1
            return trace

        return trace

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "c_call" and self._on:
            place = self._place(frame)
            if place is not None:
                self._here()[0][place] += 1


def _place_of(code: CodeType) -> Place | None:
    path = Path(code.co_filename)
    if not path.is_absolute() or not path.resolve().is_relative_to(_ROOT):
        return None  # code that a library made of a text has no path
    file = str(path.resolve().relative_to(_ROOT))
    if file.startswith((_SHARED, *_NOT_THE_PRODUCT, ".venv/")):
        return None
    return Place(file, code.co_qualname)


def least(runs: Iterable[Mapping[Place, Events]]) -> dict[Place, Events]:
    """Return the least events of each place in repeated runs of the same work."""
    found: dict[Place, Events] | None = None
    for run in runs:
        if found is None:
            found = dict(run)
            continue
        found = {
            place: Events(min(events.calls, run[place].calls), min(events.lines, run[place].lines))
            for place, events in found.items()
            if place in run
        }
    return found or {}


def slope(
    few: Mapping[Place, Events], many: Mapping[Place, Events], records: int
) -> dict[Place, Events]:
    """Return the events of each place for each of the `records` by which two runs differ."""
    nothing = Events(0, 0)
    found = {}
    for place in few.keys() | many.keys():
        first, second = few.get(place, nothing), many.get(place, nothing)
        found[place] = Events(
            (second.calls - first.calls) / records, (second.lines - first.lines) / records
        )
    return found
