"""One turn of a system: fresh members, a topic, producers and consumers, and what they found."""

import contextlib
import importlib
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from lognode.client.bench.report import spread_ms

from ..peers.system import Members, scratch
from ..processor import ProcessorWatch, children_seconds, own_seconds, resident
from ..programs import answer, program, tell
from .plan import TOPIC, Plan
from .systems import SYSTEMS

_TRIES: Final = 60
_LOOK_S: Final = 0.1
_QUIET_S: Final = 1.0
"""How long nothing more may come when all records have come: a record too many would be seen."""
_WAITS_S: Final = 20.0
"""How long fetches that wait are watched: less than the time for which they wait."""
_STILL_S: Final = 30.0
"""After which silence a turn ends with records missing."""


def run(system: str, plan: Plan, data: Path, cache: Path) -> dict[str, Any]:
    """Return the row of one turn. Raises RuntimeError for a program that ended early."""
    missing = SYSTEMS[system].missing(cache)
    if missing is not None:
        return {"refused": missing}
    with scratch(data) as directory, SYSTEMS[system].start(directory, cache) as members:
        plan = replace(plan, addresses=members.addresses)
        _create(plan)
        if plan.fetches:
            return _idle(plan, members)
        return _paced(plan, members) if plan.rate else _flat_out(plan, members)


def _flat_out(plan: Plan, members: Members) -> dict[str, Any]:
    """All records are there before they are consumed."""
    with program("door.produce", plan.to_text()) as producer, _watch(members, [producer]) as watch:
        produced = answer(producer)
    produced_us = watch.budget(produced["measured"], produced["acked"])["all us"]
    with _consumers(plan) as consumers, _watch(members, consumers) as watch:
        found = _consumed(plan, produced["produced"], consumers)
    interval = found["first_at"], found["last_at"]
    return {
        "produced/s": produced["acked/s"], **_spread("ack", produced["ack"]),
        "produced us": produced_us,
        "consumed/s": round(found["count"] / max(interval[1] - interval[0], 1e-9)),
        "consumed us": watch.budget(interval, found["count"])["all us"],
        **_verdict(produced, found),
    }  # fmt: skip


def _paced(plan: Plan, members: Members) -> dict[str, Any]:
    """Consumers wait for the records."""
    with _consumers(plan) as consumers:
        with program("door.produce", plan.to_text()) as producer, _watch(members, consumers) as cpu:
            produced = answer(producer)
            memory = resident(members.pids)
        found = _consumed(plan, produced["produced"], consumers)
    begin, end = produced["measured"]
    times = [took for due, took in found["times"] if begin <= due < end]
    return {
        **_spread("ack", produced["ack"]), **_spread("end to end", spread_ms(times)),
        "deliveries": len(times), "members MiB": memory >> 20,
        "busy %": cpu.budget((begin, end), 1)["busy %"], **_verdict(produced, found),
    }  # fmt: skip


def _idle(plan: Plan, members: Members) -> dict[str, Any]:
    """Fetches wait, and nothing is produced."""
    seconds = min(plan.seconds, _WAITS_S)
    with _watch(members, []) as watch:
        time.sleep(plan.warmup_s)
        alone, memory = _busy(watch, seconds), resident(members.pids)
        with program("door.wait", str(plan.fetches), plan.to_text()) as waiting:
            found = answer(waiting)
            more = resident(members.pids) - memory
            beside = _busy(watch, seconds)
            tell(waiting, "end")
            found |= answer(waiting)
    return {
        "waiting": found["waiting"], "came again": found["again"], "ended": found["ended"],
        "seconds": seconds, "alone %": alone, "with fetches %": beside,
        "KiB a fetch": round(more / plan.fetches / 1024, 1), "members MiB": memory >> 20,
    }  # fmt: skip


def _busy(watch: ProcessorWatch, seconds: float) -> float:
    """Return the share of a processor that the members use from now on, in percent."""
    begin = time.perf_counter()
    time.sleep(seconds)
    used = watch.seconds("members", (begin, time.perf_counter()))
    return round(100 * used / seconds, 1)


def _spread(name: str, found: dict[str, float] | None) -> dict[str, float | None]:
    return {f"{name} {at} ms": (found or {}).get(at) for at in ("p50", "p99")}


def _verdict(produced: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    failed = sum(produced["failed"].values())
    return {
        "missing": found["missing"], "repeated": found["repeated"], "failed": failed,
        "errors": [*found["errors"], *produced["failed"]],
    }  # fmt: skip


def _consumed(
    plan: Plan, produced: int, consumers: Sequence["subprocess.Popen[str]"]
) -> dict[str, Any]:
    """Wait until everything is consumed, or nothing more; return the sums of the reports."""
    wanted = produced * plan.readers
    seen, since = -1, time.monotonic()
    while time.monotonic() - since <= (_QUIET_S if seen >= wanted else _STILL_S):
        for each in consumers:
            tell(each, "count")
        count = sum(answer(each)["count"] for each in consumers)
        if count != seen:
            seen, since = count, time.monotonic()
        time.sleep(_LOOK_S)
    for each in consumers:
        tell(each, "end")
    reports = [answer(each) for each in consumers]
    return {
        "count": sum(each["count"] for each in reports),
        "missing": wanted - sum(each["count"] - each["repeated"] for each in reports),
        "repeated": sum(each["repeated"] for each in reports),
        "errors": [error for each in reports for error in each["errors"]],
        "first_at": min(each["first_at"] for each in reports if each["count"]),
        "last_at": max(each["last_at"] for each in reports),
        "times": [pair for each in reports for pair in each["times"]],
    }


@contextlib.contextmanager
def _consumers(plan: Plan) -> Iterator[list["subprocess.Popen[str]"]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(program("door.consume", str(number), plan.to_text()))
            for number in range(plan.processes)
        ]


def _watch(members: Members, clients: Sequence["subprocess.Popen[str]"]) -> ProcessorWatch:
    return ProcessorWatch({
        "clients": partial(own_seconds, [each.pid for each in clients]),
        "members": partial(own_seconds, members.pids),
        "children": partial(children_seconds, members.pids),
    })  # fmt: skip


def _create(plan: Plan) -> None:
    admin: Any = importlib.import_module("confluent_kafka.admin")
    client = admin.AdminClient(plan.client)
    topic = admin.NewTopic(
        TOPIC, num_partitions=plan.partitions, replication_factor=3, config=plan.settings
    )
    _at_last(lambda: client.create_topics([topic])[TOPIC].result(30))


def _at_last(call: Callable[[], Any]) -> None:
    for attempt in range(_TRIES):
        try:
            call()
            return
        except Exception:  # not all brokers are registered yet; the client has one class for all
            if attempt == _TRIES - 1:
                raise
            time.sleep(0.5)
