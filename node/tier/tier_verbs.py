"""`lognode tier list`, `tier verify` and `tier restore`: what the object store of a cluster has."""

import asyncio
from pathlib import Path
from typing import Final

from ...client.cli import object_stores
from ...client.cli.parser import Parser
from ...client.cli.progress import Progress
from ...client.cli.quantities import moment
from ...client.cli.verb import Call, Verb
from ...partitions.spans import printable
from . import restoring
from .coverage import LogPieces
from .restoring import logs_of, needed_files
from .tier_store import TierStore

_LISTED: Final = ("log", "ranges", "files", "bytes", "written")
_VERIFIED: Final = ("logs", "files", "bytes")
_RESTORED: Final = ("logs", "entries")


def _arguments(parser: Parser) -> None:
    parser.add_argument(
        "tier", metavar="TIER", help="directory or s3://BUCKET/PREFIX that nodes have as --tier"
    )
    object_stores.arguments(parser)


def _fetch_arguments(parser: Parser) -> None:
    _arguments(parser)
    parser.add_argument("--log", action="append", default=[], metavar="LOG",
                        help="only this log, may be repeated (default: all)")  # fmt: skip
    parser.add_argument("--directory", type=Path, metavar="DIR",
                        help="where the files of one range at a time have room (default: the "
                             "directory for temporary files)")  # fmt: skip


def _opened(call: Call) -> TierStore:
    return TierStore(object_stores.opened(call.options.tier, call.options))


def _note_gaps(call: Call, logs: list[LogPieces]) -> None:
    for log in logs:
        for start, end in log.gaps:
            until = "the last key" if end is None else printable(end)
            call.note(
                f"note: the tier has nothing yet of log {log.newest.log.name} from key "
                f"{printable(start)} to {until}"
            )


async def _list(call: Call) -> None:
    logs = await asyncio.to_thread(logs_of, _opened(call))
    rows = []
    for log in logs:
        files = list(needed_files([log]))
        written = min((head.written_ms for _, head in log.pieces), default=0)
        rows.append(
            {
                "log": log.newest.log.name, "ranges": len(log.pieces), "files": len(files),
                "bytes": sum(held.size for held in files), "written": moment(written),
            }
        )  # fmt: skip
    call.printer.rows(rows, _LISTED)
    _note_gaps(call, logs)


async def _verify(call: Call) -> None:
    options, progress = call.options, Progress("verify, files")
    store = _opened(call)
    count, size = await restoring.verify(store, options.log, options.directory, progress.update)
    progress.leave()
    logs = await asyncio.to_thread(logs_of, store, options.log)
    call.printer.record({"logs": len(logs), "files": count, "bytes": size}, _VERIFIED)
    _note_gaps(call, logs)


async def _restore(call: Call) -> None:
    options, progress = call.options, Progress("restore")
    store = _opened(call)
    _note_gaps(call, await asyncio.to_thread(logs_of, store, options.log))
    result = await restoring.restore(
        call.client, store, options.log, options.directory, progress.update
    )
    progress.end(1.0, result.entries)
    if result.own_logs:
        call.note(
            f"note: not restored, because each cluster writes these logs itself: "
            f"{', '.join(result.own_logs)}"
        )
    call.printer.record({"logs": result.logs, "entries": result.entries}, _RESTORED)


VERBS: Final = {
    verb.name: verb
    for verb in (
        Verb("tier list", "list the logs that a tier can restore", _list, _arguments),
        Verb("tier verify", "fetch all files that a restore from a tier needs, and check them",
             _verify, _fetch_arguments),
        Verb("tier restore", "restore logs from a tier into a cluster, with their seqs", _restore,
             _fetch_arguments, True),
    )
}  # fmt: skip
