"""Apply a function to each key's history, and append the result as the key's logical snapshot.

This is logical compaction: in a log with `--snapshot-delay`, the entries before a key's newest
logical snapshot are removed. So a snapshot may only stand for folded entries: it is appended on the
condition that the last folded entry is still the last entry of its key. A key that got another
entry meanwhile waits for the next run, and a retried run adds nothing twice.
"""

import argparse
import asyncio
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

from lognode.client.client import AsyncClient
from lognode.client.log import AsyncLog
from lognode.client.protocol.errors import InvalidArgument, SequenceMismatch
from lognode.client.spark.jobs import cli
from lognode.client.spark.options import ReadOptions, read_options

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
    return cli.run(parser.parse_args(arguments), _job, lambda given: _check(given.function))


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


def _check(text: str) -> None:
    function(text)


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
    folding = function(options.function)
    more = {"columns": "key,value,seq,timestamp,headers,snapshot"}
    if options.key_prefix:
        more["keyPrefix"] = options.key_prefix
    target = read_options(cli.source_options(options), streaming=False)

    def fold(rows: pd.DataFrame) -> pd.DataFrame:
        return folded(folding, rows)

    def append(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            done, changed = asyncio.run(_append(target, batch.to_pylist()))
            yield pa.RecordBatch.from_pydict({"folded": [done], "changed": [changed]})

    results = cli.load(spark, options, more).groupBy("key").applyInPandas(fold, _FOLDED)
    rows = results.mapInArrow(append, _OUTCOMES).collect()
    done, changed = sum(row.folded for row in rows), sum(row.changed for row in rows)
    sys.stdout.write(f"{done} keys have a new logical snapshot\n")
    if changed:
        cli.note(f"{changed} keys got entries during the fold; run the job again for these keys")


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
