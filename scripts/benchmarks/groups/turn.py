"""One turn of a part: fresh members, appends, consumers, and the verdict on what they did."""

import asyncio
import contextlib
import subprocess
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..peers.registry import SYSTEMS as PEERS
from ..peers.system import Members, scratch
from ..processor import ProcessorWatch, children_seconds, own_seconds
from ..programs import answer, program, tell
from .growth import Growth
from .plan import POISON, Plan
from .systems import SYSTEMS
from .verdict import Verdict
from .work import Tally, read

_JOINED_S: Final = 10.0
"""How long consumers have to join before appends at a rate begin."""
_LOOK_S: Final = 0.1
_QUIET_S: Final = 2.0
"""How long nothing more is acknowledged at the end of a turn."""
_STILL_S: Final = 40.0
"""After which silence a turn ends with items missing: longer than a lease of any system."""


def run(plan: Plan, data: Path, cache: Path, *, grows: bool = False) -> dict[str, Any]:
    """Return the row of one turn. `grows`: with the growth of the members."""
    missing = PEERS[plan.system].missing(cache)
    if missing is not None:
        return {"refused": missing}
    with scratch(data) as directory, PEERS[plan.system].start(directory, cache) as members:
        plan = replace(plan, addresses=members.addresses, directory=str(directory))
        Tally.create(plan.tally, plan.processes)
        asyncio.run(SYSTEMS[plan.system].create(plan))
        growth = Growth(members.pids, directory) if grows else None
        return _Turn(plan, members, growth).run()


class _Turn:
    def __init__(self, plan: Plan, members: Members, growth: Growth | None) -> None:
        self._plan = plan
        self._members = members
        self._growth = growth

    def run(self) -> dict[str, Any]:
        plan = self._plan
        if not plan.rate:
            with program("groups.appends", plan.to_text()) as appender:
                appended = answer(appender)
        if self._growth is not None:
            self._growth.mark("appended")
        with contextlib.ExitStack() as stack:
            consumers = [
                stack.enter_context(program("groups.consume", str(number), plan.to_text()))
                for number in range(plan.processes)
            ]
            watch = stack.enter_context(self._watch(consumers))
            growing = self._growth.while_it_grows() if self._growth else contextlib.nullcontext()
            with growing:
                if plan.rate:
                    time.sleep(_JOINED_S)
                    with program("groups.appends", plan.to_text()) as appender:
                        appended = answer(appender)
                self._await_all(consumers)
            for each in consumers:
                tell(each, "end")
            reports = [answer(each) for each in consumers]
        if self._growth is not None:
            self._growth.mark("done")
        return self._row(appended, reports, watch)

    def _row(
        self, appended: dict[str, Any], reports: Sequence[dict[str, Any]], watch: ProcessorWatch
    ) -> dict[str, Any]:
        plan = self._plan
        done = (row for number in range(plan.processes) for row in read(plan.done(number)))
        without = (POISON,) if plan.fails else ()
        verdict = Verdict(done, self._counts(), plan.warmup_s, without)
        begun, ended = verdict.interval
        row = {**verdict.report(), "refused acks": sum(each["refused"] for each in reports)}
        if plan.fails:
            row["failures"] = sum(each["failed"] for each in reports)
        if plan.life_s:
            row["joins"] = sum(each["joined"] for each in reports)
        if plan.rate:
            row |= verdict.times()
        else:
            row["acked/s"] = round(verdict.acknowledged / max(ended - begun, 1e-9))
        append_ms = appended["latency_ms"] or {}
        return {
            **row,
            **{f"append {at} ms": append_ms.get(at) for at in ("p50", "p99")},
            **(self._growth.report(plan.keys) if self._growth is not None else {}),
            **watch.budget((begun, ended), verdict.acknowledged),
        }

    @contextlib.contextmanager
    def _watch(self, consumers: "Sequence[subprocess.Popen[str]]") -> Iterator[ProcessorWatch]:
        pids = self._members.pids
        watch = ProcessorWatch({
            "consumers": partial(own_seconds, [each.pid for each in consumers]),
            "members": partial(own_seconds, pids),
            "children": partial(children_seconds, pids),
        })  # fmt: skip
        with watch:
            yield watch

    def _counts(self) -> "array[int]":
        counts = array("I")
        counts.frombytes(self._plan.appended.read_bytes())
        return counts

    def _await_all(self, consumers: "Sequence[subprocess.Popen[str]]") -> None:
        """Return when everything is acknowledged, or nothing more. Raises RuntimeError when a
        process of consumers ends."""
        tally, counts = Tally(self._plan.tally, 0), self._counts()
        wanted = sum(counts) - (counts[POISON] if self._plan.fails else 0)
        seen, since = -1, time.monotonic()
        while True:
            if any(each.poll() is not None for each in consumers):
                raise RuntimeError("a process of consumers ended before the others")
            count, now = tally.sum(), time.monotonic()
            if count != seen:
                seen, since = count, now
            if now - since > (_QUIET_S if count >= wanted else _STILL_S):
                return
            time.sleep(_LOOK_S)
