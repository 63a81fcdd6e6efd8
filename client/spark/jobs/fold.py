"""Apply a function to each key's history, and append the result as the key's logical snapshot.

This is logical compaction: in a log with `--snapshot-delay`, the entries before a key's newest
logical snapshot are removed. So a snapshot may only stand for folded entries: it is appended on the
condition that the last folded entry is still the last entry of its key. A key that got another
entry meanwhile waits for the next run, and a retried run adds nothing twice.

A run begins at a cursor, where the last run ended: see `histories`. The cursor moves when all keys
are done, so a run that was killed is done again from the same position.
"""

import argparse
import asyncio
import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from lognode.client._sync.client import Client
from lognode.client._sync.cursor import KeptCursor
from lognode.client._sync.log import Log
from lognode.client.client import AsyncClient
from lognode.client.cursor import checked_name
from lognode.client.log import AsyncLog
from lognode.client.protocol.errors import (
    InvalidArgument,
    LognodeError,
    SequenceMismatch,
    Unsupported,
)
from lognode.client.protocol.types import Cursor
from lognode.client.span_positions import overlay
from lognode.client.spark.jobs import cli, histories
from lognode.client.spark.options import ReadOptions, read_options
from lognode.client.vector import Vector

Fold = Callable[[bytes, pd.DataFrame], bytes | str | None]
"""Takes the key and its history, in the order of seq, from the newest logical snapshot on:
columns seq, timestamp, value, headers, snapshot. Returns the value of the key's snapshot; None:
no snapshot is written."""
appends_at_once: Final = 256
_FOLDED: Final = "key binary, seq long, value binary"
_OUTCOMES: Final = "folded long, changed long"


def main(arguments: Sequence[str]) -> int:
    """Parse the arguments and run; return the exit code."""
    parser = cli.parser(
        "fold", "Call a function with each key's history; the result becomes the logical snapshot "
                "of the key.",
        ["flights --server h1:4600 --function delays.py:total",
         "flights --server h1:4600 --function mypackage.folds:total --key-prefix N1"],
    )  # fmt: skip
    parser.add_argument(
        "--function", required=True, metavar="MODULE:NAME|FILE.py:NAME",
        help="function that takes a key and its history as a pandas frame (seq, timestamp, "
             "value, headers, snapshot) and returns bytes or text, or None to keep the key "
             "unchanged; all workers need a module, and the job sends them a file",
    )  # fmt: skip
    parser.add_argument("--key-prefix", metavar="PREFIX", help="fold only keys with this prefix")
    parser.add_argument(
        "--cursor", metavar="NAME",
        help="cursor of the log at which the run begins, and which moves when the run has ended "
             "(fold/ and the name of the function, with a prefix also / and the prefix)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-loss", action="store_true",
        help="continue although retention has removed entries since the last run",
    )  # fmt: skip
    return cli.run(parser.parse_args(arguments), _job, _check)


def function(text: str) -> Fold:
    """Return the function that `--function` names. Raises InvalidArgument."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise _wrong(text, "give module:function or file.py:function")
    try:
        module = _file(place) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:  # the module's own code may raise anything
        raise _wrong(text, f"the import failed: {type(error).__name__}: {error}") from None
    found = getattr(module, name, None)
    if not callable(found):
        raise _wrong(text, f"{place} has no function {name}")
    made: Fold = found
    return made


def _check(options: argparse.Namespace) -> None:
    function(options.function)
    _read_options(options)


def _cursor_name(options: argparse.Namespace) -> str:
    prefix = f"/{options.key_prefix}" if options.key_prefix else ""
    return options.cursor or f"fold/{options.function.rpartition(':')[2]}{prefix}"


def _read_options(options: argparse.Namespace) -> ReadOptions:
    """Return the options of a read from the cursor on. Raises InvalidArgument."""
    try:
        checked_name(_cursor_name(options))
    except InvalidArgument as error:
        raise InvalidArgument(f"--cursor: {error.message}", what="cursor") from None
    return read_options(cli.source_options(options) | _choice(options), streaming=False)


def _choice(options: argparse.Namespace) -> dict[str, str]:
    return {"keyPrefix": options.key_prefix} if options.key_prefix else {}


def _wrong(text: str, why: str) -> InvalidArgument:
    return InvalidArgument(f"--function {text}: {why}", what="function")


def _file(place: str) -> Any:
    """Return a file as a module, which is sent to the workers by value."""
    spec = importlib.util.spec_from_file_location(f"lognode_fold_{Path(place).stem}", place)
    if spec is None or spec.loader is None or not Path(place).is_file():
        raise FileNotFoundError(f"file {place} does not exist")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    pickles: Any = cloudpickle  # has no types
    pickles.register_pickle_by_value(module)
    return module


def _job(spark: SparkSession, options: argparse.Namespace) -> None:
    target = _read_options(options)
    with Client(target.servers, timeout=target.timeout_s) as client:
        log = client.log(target.log)
        cursor = _opened(log, target, _cursor_name(options))
        snapshot = log.snapshot(lease_s=target.lease_s)
        try:
            done, changed = _fold(spark, options, target, snapshot.vector, cursor)
            if cursor is not None:
                cursor.commit(_end(snapshot.vector, target))
        finally:
            with contextlib.suppress(LognodeError):  # otherwise the lease expires
                snapshot.release()
    sys.stdout.write(f"{done} keys have a new logical snapshot\n")
    if changed:
        cli.note(f"{changed} keys got entries during the fold; run the job again for these keys")


def _opened(log: Log, target: ReadOptions, name: str) -> KeptCursor | None:
    """Return the cursor, of which this run is the holder from now on; None below feature level
    4."""
    cursor = log.cursor(name, prefix=target.prefix)
    try:
        cursor.open()
    except Unsupported as error:
        cli.note(f"{error.message}; the fold reads all entries")
        return None
    return cursor


def _end(vector: Vector, target: ReadOptions) -> Cursor:
    """Return the position behind the vector, for the keys of the run."""
    parts = [(part.start, part.end, part.through_seq + 1) for part in vector.parts]
    own = ((*span, None) for span in target.spans)
    return Cursor(spans=tuple(row[:3] for row in overlay(parts, own)))


def _fold(
    spark: SparkSession, options: argparse.Namespace, target: ReadOptions, vector: Vector,
    cursor: KeptCursor | None,
) -> tuple[int, int]:  # fmt: skip
    """Fold the keys with entries in the vector from the cursor on; return how many have a new
    snapshot, and how many have got other entries."""
    folding = function(options.function)
    more = {
        "columns": ",".join(histories.COLUMNS), "asOf": vector.to_json(),
        "failOnDataLoss": str(not options.allow_loss).lower(),
    }  # fmt: skip
    is_first = cursor is None or all(seq == 1 for *_, seq in cursor.position().spans)
    if cursor is not None:
        more["cursor"] = cursor.name
    rows = cli.load(spark, options, more | _choice(options))
    if not is_first:
        rows = histories.whole(rows, target)

    def fold(history: pd.DataFrame) -> pd.DataFrame:
        return folded(folding, history)

    def append(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            done, changed = asyncio.run(_append(target, batch.to_pylist()))
            yield pa.RecordBatch.from_pydict({"folded": [done], "changed": [changed]})

    results = rows.groupBy("key").applyInPandas(fold, _FOLDED)
    outcomes = results.mapInArrow(append, _OUTCOMES).collect()
    return sum(row.folded for row in outcomes), sum(row.changed for row in outcomes)


def folded(folding: Fold, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the key, the seq of its last entry, and the value of its snapshot; or no row.

    Raises InvalidArgument when the function returns another type.
    """
    history = rows.sort_values("seq", ignore_index=True)
    key, last = bytes(history["key"].iloc[0]), int(history["seq"].iloc[-1])
    none = pd.DataFrame({"key": [], "seq": [], "value": []})
    marks = history.index[history["snapshot"]]
    if len(marks):
        history = history.loc[marks[-1] :].reset_index(drop=True)
        if len(history) == 1:
            return none  # no entry after the snapshot
    value = folding(key, history.drop(columns=["key"]))
    if value is None:
        return none
    if not isinstance(value, bytes | str):
        raise InvalidArgument(
            f"the function returned {type(value).__name__} for key {key!r}; return bytes, text or "
            "None",
            what="function",
        )
    text = value.encode() if isinstance(value, str) else value
    return pd.DataFrame({"key": [key], "seq": [last], "value": [text]})


async def _append(target: ReadOptions, rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Append the snapshots; return how many keys have theirs, and how many have got other
    entries."""
    done = 0
    async with AsyncClient(target.servers, timeout=target.timeout_s) as client:
        log = client.log(target.log)
        for at in range(0, len(rows), appends_at_once):
            some = rows[at : at + appends_at_once]
            done += sum(await asyncio.gather(*(_append_one(log, **row) for row in some)))
    return done, len(rows) - done


async def _append_one(log: AsyncLog, key: bytes, seq: int, value: bytes) -> bool:
    try:
        await log.append(key, value, expect=seq, snapshot=True)
    except SequenceMismatch:
        last = await log.latest(key)  # an earlier attempt of the task may have appended it
        return last is not None and last.snapshot and last.value == value
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
