"""`lognode import`: append the rows of a file to a log, through one idempotent producer.

With `--producer NAME` a row's number is its position in the file, so rows that an earlier run of
the same file has appended are duplicates (docs/design/ranges.md#producers).
"""

import asyncio
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..producer import AsyncProducer
from ..protocol.errors import InvalidArgument, LognodeError
from ..window import Delivery
from .import_files import Row, Source
from .progress import Progress
from .verb import Call

_PORTION_ROWS: Final = 500
"""Rows between two pauses for the event loop, which lets the network proceed."""
_PROBLEMS_SHOWN_MAX: Final = 10


@dataclass(slots=True)
class Loaded:
    """The outcome of the import, in rows."""

    rows: int = 0
    skipped: int = 0
    acknowledged: int = 0
    duplicates: int = 0


async def load(call: Call) -> Loaded:
    """Import `options.file`. Raises InvalidArgument at a bad row unless `--on-error skip`."""
    options = call.options
    path = Path("/dev/stdin" if options.file == "-" else options.file)
    source = Source(path, key=options.key, key_missing=options.key_missing, kind=options.input)
    result = Loaded()
    log = call.client.log(options.log)
    progress = Progress(options.log)
    producer = log.producer(name=options.producer)
    try:
        async with producer:
            try:
                await _submit_all(call, source, producer, result, progress)
            except InvalidArgument as error:
                await producer.flush()
                done = producer.delivery.acknowledged
                error.message = (
                    f"{options.file}: {error.message}; the log has the {done} rows before "
                    "this row; --on-error skip leaves bad rows out"
                )
                raise
            await producer.flush()
            delivery = producer.delivery
            result.acknowledged = delivery.acknowledged
            result.duplicates = delivery.duplicates
    except asyncio.CancelledError:  # Ctrl-C; the producer has delivered what it could
        call.note(_interrupted(options.log, options.producer, producer.delivery))
        raise
    except LognodeError as error:
        if options.producer is not None and not isinstance(error, InvalidArgument):
            error.message += "; run the same command again to continue: the log stores no row twice"
        raise
    finally:
        progress.end(source.progress, result.rows)
        source.close()
    if result.skipped > _PROBLEMS_SHOWN_MAX:
        call.note(f"the import left out {result.skipped} rows")
    return result


def _interrupted(log: str, name: str | None, delivery: Delivery) -> str:
    """Return what an import that the user ends has stored."""
    told = f"interrupted: log {log!r} has {delivery.acknowledged} of the rows"
    if delivery.unknown:
        told += f", and perhaps {delivery.unknown} more"
    if name is None:
        return f"{told}; another import stores them again, unlike an import with --producer NAME"
    return f"{told}; run the same command again to continue"


async def _submit_all(
    call: Call, source: Source, producer: AsyncProducer, result: Loaded, progress: Progress
) -> None:
    rows = iter(source)
    while portion := list(itertools.islice(rows, _PORTION_ROWS)):
        for row in portion:
            result.rows += 1
            try:
                await _submit(producer, row)
            except InvalidArgument as error:
                if call.options.on_error == "stop":
                    raise
                result.skipped += 1
                if result.skipped <= _PROBLEMS_SHOWN_MAX:
                    call.note(f"left out: {error.message}")
        progress.update(source.progress, result.rows)
        await asyncio.sleep(0)  # `submit` does not wait while there is room
        if producer.delivery.undelivered:
            return  # leaving the producer reports what happened


async def _submit(producer: AsyncProducer, row: Row) -> None:
    if row.error is not None:
        raise InvalidArgument(row.error, what="row")
    number = row.number if producer.name is not None else None
    try:
        await producer.submit(row.key, row.value, number=number)
    except InvalidArgument as error:
        error.message = f"{row.place}: {error.message}"
        raise
