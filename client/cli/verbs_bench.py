"""`lognode bench append`, `poll`, `follow` and `mixed`: checked load on a cluster, with
measurements."""

import asyncio
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final

from ..bench import mixed
from ..bench.appending import Appender, Appending
from ..bench.contending import Contender, Contending
from ..bench.following import Followers
from ..bench.polling import Poller, Polling
from ..bench.shape import Shape, key_bytes_default, value_bytes_default
from ..protocol.errors import LogExists
from .parser import Parser, add_consistency, age_s, whole
from .progress import Step, watched
from .verb import Call, Verb, client_of

_BATCH: Final = 1_000
_FIGURES = ("workload", "what", "value")


def _common(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("--seconds", type=age_s, default=10.0, metavar="AGE",
                        help="duration of the measurement (default 10s)")  # fmt: skip
    parser.add_argument("--warmup", type=age_s, default=0.0, metavar="AGE",
                        help="duration of the load before the measurement (default 0)")  # fmt: skip
    parser.add_argument(
        "--keys", type=_some, default=100_000, metavar="N", help="number of keys (default 100000)"
    )
    parser.add_argument("--key-bytes", type=_some, default=key_bytes_default, metavar="N",
                        help=f"bytes of a key (default {key_bytes_default})")  # fmt: skip
    parser.add_argument("--value-bytes", type=_some, default=value_bytes_default, metavar="N",
                        help=f"bytes of a value (default {value_bytes_default})")  # fmt: skip
    parser.add_argument("--zipf", type=float, default=0.0, metavar="S",
                        help="exponent of a Zipf distribution over the keys")  # fmt: skip
    parser.add_argument(
        "--seed", type=whole, default=1, metavar="N", help="seed of the keys and values (default 1)"
    )
    parser.add_argument("--ranges", type=_some, metavar="N",
                        help="create a log that does not exist with this number of "
                             "ranges")  # fmt: skip
    parser.add_argument("--every", type=age_s, metavar="AGE",
                        help="also show the figures of each such interval")  # fmt: skip


def _append_arguments(parser: Parser) -> None:
    _common(parser)
    _add_batch(
        parser, rate="records per second; 0: no limit (default)", rate_default=0.0,
        batch="records per call (default 1000; with --conditional 1)", batch_default=None,
    )  # fmt: skip
    parser.add_argument("--window", type=_some, default=64, metavar="N",
                        help="calls in flight when no rate is given (default 64)")  # fmt: skip
    parser.add_argument(
        "--records", type=_some, metavar="N", help="end after this number of records"
    )
    parser.add_argument(
        "--in-order", action="store_true", help="write the keys in order instead of at random"
    )
    parser.add_argument("--conditional", action="store_true",
                        help="make each append conditional on the entry that the "
                             "client read before")  # fmt: skip
    parser.add_argument("--update", action="store_true",
                        help="update keys: compute each value from the last value of the "
                             "key")  # fmt: skip
    parser.add_argument("--clients", type=_some, default=1, metavar="N",
                        help="clients that share the callers of --conditional and --update "
                             "(default 1)")  # fmt: skip


def _poll_arguments(parser: Parser) -> None:
    _common(parser)
    _add_page(parser)
    parser.add_argument("--rate", type=float, default=0.0, metavar="R",
                        help="polls per second; 0: no limit (default)")  # fmt: skip
    parser.add_argument("--window", type=_some, default=1, metavar="N",
                        help="readers when no rate is given (default 1)")  # fmt: skip


def _follow_arguments(parser: Parser) -> None:
    _common(parser)
    parser.add_argument("--followers", type=_some, default=1_000, metavar="N",
                        help="number of followers, each with a key of its own "
                             "(default 1000)")  # fmt: skip
    _add_batch(parser, rate="records appended per second (default 10000)", rate_default=10_000.0)


def _mixed_arguments(parser: Parser) -> None:
    _common(parser)
    _add_page(parser)
    _add_batch(parser, rate="records appended per second (default 10000)", rate_default=10_000.0)
    parser.add_argument("--polls", type=float, default=100.0, metavar="R",
                        help="polls per second (default 100)")  # fmt: skip


def _add_batch(
    parser: Parser, *, rate: str, rate_default: float,
    batch: str = "records per call (default 1000)", batch_default: int | None = _BATCH,
) -> None:  # fmt: skip
    parser.add_argument("--rate", type=float, default=rate_default, metavar="R", help=rate)
    parser.add_argument("--batch", type=_some, default=batch_default, metavar="N", help=batch)


def _add_page(parser: Parser) -> None:
    parser.add_argument("--limit", type=_some, default=32, metavar="N",
                        help="entries per page (default 32)")  # fmt: skip
    add_consistency(parser)


def _some(text: str) -> int:
    number = whole(text)
    if number == 0:
        raise ArgumentTypeError("0 is too low; give 1 or more")
    return number


async def _append(call: Call) -> None:
    shape = await _begin(call)
    options = call.options
    log = call.client.log(options.log)
    if options.conditional or options.update:
        await _contend(call, shape)
        return
    load = Appending(
        options.seconds, rate=options.rate, batch=options.batch or _BATCH, window=options.window,
        records=options.records, in_order=options.in_order, warmup_s=options.warmup,
        every_s=options.every,
    )  # fmt: skip
    appender = Appender(log, shape, load)
    with _interruptible(call, appender):
        report = await watched("bench", appender.run(), _elapsed(call.options))
    _print(call, report)


def _elapsed(options: Namespace) -> Callable[[], Awaitable[Step]]:
    """Return what looks how much of the time of the bench is over."""
    began, whole_s = time.monotonic(), options.warmup + options.seconds

    async def look() -> Step:
        over_s = time.monotonic() - began
        return Step(over_s / whole_s, "warmup" if over_s < options.warmup else "measured")

    return look


@contextmanager
def _interruptible(call: Call, appender: Appender) -> Iterator[None]:
    """Say what the log has when the user ends the bench."""
    try:
        yield
    except asyncio.CancelledError:
        call.note(f"interrupted: log {call.options.log!r} has {appender.acknowledged} records of "
                  "this bench, and perhaps those of the calls under way")  # fmt: skip
        raise


async def _contend(call: Call, shape: Shape) -> None:
    options = call.options
    contending = Contending(
        options.seconds, rate=options.rate, window=options.window, warmup_s=options.warmup,
        update=options.update, batch=options.batch or 1,
    )  # fmt: skip
    async with AsyncExitStack() as opened:
        clients = [call.client]
        for _ in range(options.clients - 1):
            clients.append(await opened.enter_async_context(client_of(options)))
        logs = [client.log(options.log) for client in clients]
        run = Contender(logs, shape, contending).run()
        _print(call, await watched("bench", run, _elapsed(options)))


async def _poll(call: Call) -> None:
    shape = await _begin(call)
    load = _polling(call.options, call.options.rate, call.options.window)
    run = Poller(call.client.log(call.options.log), shape, load).run()
    _print(call, await watched("bench", run, _elapsed(call.options)))


async def _follow(call: Call) -> None:
    shape = await _begin(call)
    options = call.options
    log = call.client.log(options.log)
    followers = min(options.followers, shape.keys)
    run = Followers(log, shape, followers, _appending(options)).run()
    _print(call, await watched("bench", run, _elapsed(options)))


async def _mixed(call: Call) -> None:
    shape = await _begin(call)
    log = call.client.log(call.options.log)
    appender = Appender(log, shape, _appending(call.options))
    poller = Poller(log, shape, _polling(call.options, call.options.polls, 1))
    with _interruptible(call, appender):
        report = await watched("bench", mixed.run(appender, poller), _elapsed(call.options))
    _print(call, report)


def _appending(options: Namespace) -> Appending:
    """Return appends at a rate, for a workload beside another."""
    return Appending(
        options.seconds, rate=options.rate, batch=options.batch, warmup_s=options.warmup,
        every_s=options.every,
    )  # fmt: skip


def _polling(options: Namespace, rate: float, window: int) -> Polling:
    return Polling(
        options.seconds, rate=rate, window=window, limit=options.limit,
        consistency=options.consistency, warmup_s=options.warmup, every_s=options.every,
    )  # fmt: skip


async def _begin(call: Call) -> Shape:
    """Return the shape; create the log if requested."""
    options = call.options
    shape = Shape(
        options.keys, key_bytes=options.key_bytes, value_bytes=options.value_bytes,
        zipf=options.zipf, seed=options.seed,
    )  # fmt: skip
    if options.ranges is not None:
        try:
            await call.client.create_log(
                options.log, split_at=shape.splits(options.ranges), split_rate=None
            )
        except LogExists:
            call.note(f"log {options.log!r} exists already and is not changed")
    return shape


def _print(call: Call, report: Mapping[str, Any]) -> None:
    """Print one line per measurement for people, or the report itself for programs."""
    if not call.printer.tables:
        call.printer.document(report)
        return
    parts = [part for part in report.values() if isinstance(part, dict) and "workload" in part]
    for part in [report, *parts]:
        call.printer.rows(_rows(part), _FIGURES)


def _rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, value in report.items():
        if name in ("workload", "series", "measured_s") or value is None:
            continue
        if isinstance(value, dict):
            if "workload" not in value:
                rows += [(f"{name} {inner}", figure) for inner, figure in value.items()]
        else:
            rows.append((name, value))
    return [{"workload": report["workload"], "what": what, "value": value} for what, value in rows]


VERBS = (
    Verb("bench append", "append with or without a rate", _append, _append_arguments,
         writes=True),
    Verb("bench poll", "read pages of single keys", _poll, _poll_arguments),
    Verb("bench follow", "follow single keys while appends go on", _follow, _follow_arguments,
         writes=True),
    Verb("bench mixed", "append and poll at the same time", _mixed, _mixed_arguments, writes=True),
)  # fmt: skip
