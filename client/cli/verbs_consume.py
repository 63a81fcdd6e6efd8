"""`lognode consume`: a consumer of a group, which prints batches or runs a command for each."""

import asyncio
import os
from argparse import Namespace
from typing import Any, Final

from ..consumer import AsyncConsumer
from ..group_batch import AsyncGroupBatch
from ..json_text import printable, to_json
from ..protocol.errors import Fenced
from ..protocol.types import GroupStart
from .parser import (
    Parser,
    UsageError,
    When,
    add_limit,
    add_pattern,
    age_ms,
    position,
    timestamp,
    whole,
)
from .verb import Call, Verb
from .verbs_read import entry_row, patterns, to_bytes

_ENTRY: Final = ("key", "seq", "timestamp_ms", "value")
_KILL_S: Final = 2.0
"""How long an interrupted command has to end by itself."""


def _arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("group", metavar="GROUP", help="the group; created unless it exists")
    parser.add_argument("--exec", dest="command", metavar="CMD",
                        help="run this shell command for each batch, with the entries as JSON "
                             "lines on stdin; exit code 0 acknowledges the batch")  # fmt: skip
    add_limit(parser, "end after N batches")
    parser.add_argument("--jobs", type=whole, default=1, metavar="N",
                        help="commands that run at a time (default 1)")  # fmt: skip
    parser.add_argument("--retry-after", type=age_ms, default=1_000, metavar="AGE",
                        help="time before a failed batch comes again (default 1s)")  # fmt: skip
    parser.add_argument("--prefix", metavar="P", help="the group has the keys with this prefix")
    add_pattern(parser, "consume")
    parser.add_argument("--from", dest="start", type=position, metavar="S",
                        help="begin of a new group: earliest (default), latest, -10m, "
                             "or a time in ISO 8601")  # fmt: skip
    parser.add_argument("--max-deliveries", type=whole, metavar="N",
                        help="failures of an entry before --on-dead (default 5)")  # fmt: skip
    parser.add_argument("--on-dead", metavar="HOW",
                        help="after that: park the key (default), or dead_letter:LOG, which copies "
                             "the entry to LOG")  # fmt: skip
    parser.add_argument("--ordering", choices=("key", "none"),
                        help="key (default): a key is with one consumer, in order; none: an entry "
                             "is, in any order")  # fmt: skip
    parser.add_argument("--lease", type=age_ms, metavar="AGE",
                        help="time a silent consumer keeps its keys (default 30s)")  # fmt: skip


async def _consume(call: Call) -> None:
    options = call.options
    if options.prefix is not None and options.pattern is not None:
        raise UsageError("give only one of --prefix and --pattern")
    if not options.jobs:
        raise UsageError("--jobs is 0; give at least 1")
    if options.limit == 0:
        return
    consumer = call.client.log(options.log).consume(
        options.group,
        prefix=None if options.prefix is None else to_bytes(options.prefix),
        pattern=patterns(options),
        start=_start(options.start),
        max_deliveries=options.max_deliveries,
        on_dead=options.on_dead,
        ordering=options.ordering,
        lease_ms=options.lease,
    )
    async with consumer:
        try:
            async with asyncio.TaskGroup() as tasks:
                await _spread(call, consumer, tasks)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None


async def _spread(call: Call, consumer: AsyncConsumer, tasks: asyncio.TaskGroup) -> None:
    """Begin the work on batches, a few at a time."""
    turns = asyncio.Semaphore(call.options.jobs)
    count = 0
    while count != call.options.limit:
        await turns.acquire()
        try:
            batch = await anext(consumer)
        except StopAsyncIteration:
            return
        count += 1
        task = tasks.create_task(_work(call, batch))
        task.add_done_callback(lambda _: turns.release())


async def _work(call: Call, batch: AsyncGroupBatch) -> None:
    """Print a batch or run its command, and settle it."""
    options = call.options
    try:
        if options.command is None:
            for entry in batch.entries:
                call.printer.line(entry_row(entry), _ENTRY)
            await batch.ack()
            return
        code = await _run(options, batch)
        if code == 0:
            await batch.ack()
            return
        call.note(f"note: the command ended with {code} for key {_text(batch.key)}, delivery "
                  f"{batch.deliveries}")  # fmt: skip
        await batch.release(delay_ms=options.retry_after, error=f"the command ended with {code}")
    except Fenced as error:
        call.note(f"note: {error.message}")


async def _run(options: Namespace, batch: AsyncGroupBatch) -> int:
    """Run the command with the entries of a batch; return its exit code."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", options.command, stdin=asyncio.subprocess.PIPE,
        env={**os.environ, "LOGNODE_LOG": options.log, "LOGNODE_GROUP": options.group,
             "LOGNODE_KEY": _text(batch.key), "LOGNODE_DELIVERIES": str(batch.deliveries)},
    )  # fmt: skip
    lines = "".join(to_json(entry_row(entry)) + "\n" for entry in batch.entries)
    try:
        await process.communicate(lines.encode())  # a command need not read its stdin
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _KILL_S)
            except TimeoutError:
                process.kill()
    return process.returncode or 0


def _text(key: bytes) -> str:
    """Return a key as text; in base64 unless it is UTF-8 without a NUL."""
    shown: Any = printable(key)
    text = shown if isinstance(shown, str) else shown["b64"]
    return text.replace("\0", "\\0")


def _start(given: int | str | When | None) -> GroupStart | None:
    if isinstance(given, tuple):
        return timestamp(given)
    if given is None:
        return None
    if given == "earliest":
        return "earliest"
    if given == "latest":
        return "latest"
    raise UsageError(f"--from is {given}; a group begins at earliest, latest, or a time")


VERBS = (Verb("consume", "consume a log with a group of consumers", _consume, _arguments, True),)
