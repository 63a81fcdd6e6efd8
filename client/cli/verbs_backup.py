"""`lognode backup` and its actions: backups of logs in a directory or in a bucket of S3."""

import argparse
import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..backup.create import create
from ..backup.pace import Pace
from ..backup.restore import chosen, restore
from ..backup.store import Store
from ..backup.sweep import Removal
from ..backup.verify import manifest_of, verify
from ..protocol.errors import InvalidArgument, NotFound
from . import object_stores
from .parser import Parser, UsageError, age_ms, rate, time_ms, whole
from .progress import Progress
from .quantities import age, moment
from .verb import Call, Verb
from .verbs_logs import confirm

_SECRET_BYTES_MIN = 8
_TERMINATED = 128 + signal.SIGTERM
_AT_ONCE = 8
"""How many manifests are read together."""
_CREATED = ("backup", "logs", "entries", "objects", "new_objects", "new_bytes")
_LISTED = ("backup", "created", "cluster", "log", "entries", "objects")
_REMOVED = ("removed", "left", "objects", "freed_bytes")
_RESTORED = ("backup", "logs", "entries", "left_out")


def _store_arguments(parser: Parser) -> None:
    parser.add_argument(
        "store", metavar="STORE", help="directory of the backups, or s3://BUCKET/PREFIX"
    )
    parser.add_argument(
        "--key-file", metavar="FILE", help="file with the secret by which backups are encrypted"
    )
    object_stores.arguments(parser)


def _pace_arguments(parser: Parser) -> None:
    _store_arguments(parser)
    parser.add_argument("--limit-rate", type=rate, metavar="RATE",
                        help="stored bytes a second, as 10MB/s (default: no limit)")  # fmt: skip


def _create_arguments(parser: Parser) -> None:
    _pace_arguments(parser)
    parser.add_argument("--log", action="append", default=[], metavar="LOG",
                        help="log to back up, may be repeated (default: all)")  # fmt: skip


def _verify_arguments(parser: Parser) -> None:
    _pace_arguments(parser)
    parser.add_argument("--backup", metavar="ID", help="backup to read (default: the newest)")


def _restore_arguments(parser: Parser) -> None:
    _verify_arguments(parser)
    parser.add_argument("--log", action="append", default=[], metavar="LOG",
                        help="log to restore, may be repeated (default: all)")  # fmt: skip
    parser.add_argument("--at", type=time_ms, metavar="TIME",
                        help="leave out entries later than this time, as "
                             "2026-11-28T16:00:00Z; without --backup, use the first backup "
                             "that was begun at this time or later")  # fmt: skip


def _removal_arguments(parser: Parser) -> None:
    _store_arguments(parser)
    parser.add_argument("--dry-run", action="store_true",
                        help="say what would be removed, and remove nothing")  # fmt: skip


def _delete_arguments(parser: Parser) -> None:
    _removal_arguments(parser)
    parser.add_argument("backups", nargs="+", metavar="ID", help="backup to remove")


def _prune_arguments(parser: Parser) -> None:
    _removal_arguments(parser)
    parser.add_argument("--keep", type=_positive, metavar="N",
                        help="keep the newest N backups of each log")  # fmt: skip
    parser.add_argument("--keep-within", type=age_ms, metavar="AGE",
                        help="keep the backups of each log that were begun at most so long "
                             "before its newest, as 30d")  # fmt: skip


def _positive(text: str) -> int:
    found = whole(text)
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is below 1; keep 1 backup or more")
    return found


async def _opened(call: Call, *, create_store: bool = False) -> Store:
    """Open the store that the arguments name. Raises the errors of `object_stores.opened` and
    of `Store.opened`."""
    options = call.options
    secret = None
    if options.key_file is not None:
        try:
            secret = await asyncio.to_thread(Path(options.key_file).read_bytes)
        except OSError as error:
            raise InvalidArgument(
                f"the key file {options.key_file} is not readable: {error.strerror}",
                what="key_file",
            ) from None
        secret = secret.rstrip(b"\r\n")
        if len(secret) < _SECRET_BYTES_MIN:
            raise InvalidArgument(
                f"the secret in {options.key_file} has {len(secret)} bytes; at least "
                f"{_SECRET_BYTES_MIN} are allowed. Write a longer secret",
                what="key_file",
            )

    def opened() -> Store:
        objects = object_stores.opened(options.store, options)
        return Store.opened(objects, secret, create=create_store)

    return await asyncio.to_thread(opened)


async def _create(call: Call) -> int | None:
    store, progress = await _opened(call, create_store=True), Progress("backup")
    pace = Pace(call.options.limit_rate)
    work = asyncio.create_task(
        create(call.client, store, call.options.log, pace, progress.update)
    )  # fmt: skip
    with _cancelled_by_sigterm(work) as sent:
        try:
            result = await work
        except asyncio.CancelledError:
            if not sent:
                raise
            progress.leave()
            call.note("ended by SIGTERM; the next `create` uses the objects that are stored")
            return _TERMINATED
    progress.end(1.0, result.entries)
    call.printer.record(asdict(result), _CREATED)
    return None


@contextmanager
def _cancelled_by_sigterm(work: "asyncio.Task[Any]") -> Iterator[list[int]]:
    """Cancel the work at the first SIGTERM, so that the work gives its claim and its lease back;
    the second ends the process at once. Yield a list that has the signal from then on."""
    loop, sent = asyncio.get_running_loop(), list[int]()

    def cancel() -> None:
        sent.append(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGTERM)
        work.cancel()

    try:
        loop.add_signal_handler(signal.SIGTERM, cancel)
    except (NotImplementedError, RuntimeError, ValueError):  # not the main thread
        yield sent
        return
    try:
        yield sent
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def _list(call: Call) -> None:
    store = await _opened(call)
    backups = await asyncio.to_thread(store.backups)
    rows = []
    for some in (backups[at : at + _AT_ONCE] for at in range(0, len(backups), _AT_ONCE)):
        for listed in await asyncio.gather(*(_listed(store, backup) for backup in some)):
            rows += listed
    call.printer.rows(rows, _LISTED)


async def _listed(store: Store, backup: str) -> list[dict[str, Any]]:
    try:
        manifest = await manifest_of(store, backup)
    except NotFound:  # removed since the listing
        return []
    return [
        {
            "backup": backup, "created": moment(manifest.created_ms),
            "cluster": manifest.cluster, "log": log.name, "entries": log.entries,
            "objects": sum(len(part.objects) for part in log.parts),
        }
        for log in manifest.logs
    ]  # fmt: skip


async def _delete(call: Call) -> None:
    store = await _opened(call)
    await _remove(call, await asyncio.to_thread(Removal.of_names, store, call.options.backups))


async def _prune(call: Call) -> None:
    options = call.options
    if options.keep is None and options.keep_within is None:
        raise UsageError(
            "neither --keep nor --keep-within was given; say which backups stay, as --keep 7"
        )
    store = await _opened(call)
    if not await asyncio.to_thread(store.backups):
        raise _without_backups(store)
    await _remove(
        call,
        await asyncio.to_thread(Removal.of_rule, store, options.keep or 0, options.keep_within),
    )


async def _remove(call: Call, removal: Removal) -> None:
    if call.options.dry_run:
        result = await asyncio.to_thread(removal.preview)
        call.note("note: dry run; nothing was removed")
    else:
        if removal.doomed:
            confirm(call, f"remove the backups {', '.join(removal.doomed)}?")
        progress = Progress("removal")
        result = await asyncio.to_thread(removal.run, progress.update)
        progress.end(1.0, result.objects)
    for claimed in result.creating:
        call.note(
            f"note: no object is removed while `create` makes backup {claimed.backup} "
            f"({claimed.owner}; last seen {age(claimed.age_ms)} ago). Repeat the command later"
        )
    call.printer.record(
        asdict(result) | {"creating": [each._asdict() for each in result.creating]}, _REMOVED
    )


async def _verify(call: Call) -> None:
    store, progress = await _opened(call), Progress("verify")
    backup = call.options.backup or await _newest(store)
    manifest = await manifest_of(store, backup)
    entries = await verify(store, manifest, Pace(call.options.limit_rate), progress.update)
    progress.end(1.0, entries)
    row = {"backup": backup, "logs": len(manifest.logs), "entries": entries}
    call.printer.record(row, ("backup", "logs", "entries"))


async def _newest(store: Store) -> str:
    backups = await asyncio.to_thread(store.backups)
    if not backups:
        raise _without_backups(store)
    return backups[-1]


def _without_backups(store: Store) -> NotFound:
    return NotFound(f"{store.place} has no whole backup; `lognode backup create` makes one")


async def _restore(call: Call) -> None:
    options = call.options
    store, progress = await _opened(call), Progress("restore")
    if options.backup is not None:
        manifest = await manifest_of(store, options.backup)
    else:
        newest = await _newest(store)
        names = [newest] if options.at is None else await asyncio.to_thread(store.backups)
        found = chosen([await manifest_of(store, name) for name in names], options.at)
        manifest = found or await manifest_of(store, newest)
    result = await restore(
        call.client, store, manifest, options.log, options.at, Pace(options.limit_rate),
        progress.update,
    )  # fmt: skip
    progress.end(1.0, result.entries)
    if options.at is not None and manifest.created_ms < options.at:
        call.note(
            f"note: backup {manifest.backup} was begun before {moment(options.at)}; entries after "
            "the backup are not in the logs"
        )
    if result.own_logs:
        call.note(
            f"note: not restored, because each cluster writes these logs itself: "
            f"{', '.join(result.own_logs)}"
        )
    call.printer.record(asdict(result), _RESTORED)


VERBS = (
    Verb("backup create", "back up logs into a directory or into S3", _create, _create_arguments),
    Verb("backup list", "list the backups of a store", _list, _store_arguments),
    Verb("backup verify", "read a backup and check all of it", _verify, _verify_arguments),
    Verb("backup restore", "restore logs of a backup with their seqs", _restore,
         _restore_arguments, True),
    Verb("backup delete", "remove backups, and the objects that no other backup has", _delete,
         _delete_arguments),
    Verb("backup prune", "remove all backups but the newest, and the objects that no other "
         "backup has", _prune, _prune_arguments),
    Verb("restore", "restore logs, as `lognode backup restore` does", _restore,
         _restore_arguments, True),
)  # fmt: skip
