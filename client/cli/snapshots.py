"""Read a snapshot that `lognode snapshot --format json` wrote: the part of `scan`, `latest`,
`count` and `keys` with `--snapshot`."""

import sys
from argparse import Namespace
from collections import deque
from collections.abc import AsyncIterator
from typing import NamedTuple, TypeVar

from ..protocol.errors import InvalidArgument
from ..protocol.types import End, Entry, Start, Timestamp
from ..snapshot import AsyncSnapshot
from .parser import UsageError
from .verb import Call

Item = TypeVar("Item")


class Keys(NamedTuple):
    """The keys of a read: one key, those with a prefix, those that match patterns, or all."""

    key: bytes | None
    prefix: bytes | None
    patterns: list[bytes] | None


def opened(call: Call) -> AsyncSnapshot | None:
    """Return the snapshot of `--snapshot`, None without this flag.

    Raises UsageError for flags that a snapshot leaves no choice, InvalidArgument for a file that
    is not a snapshot of this log.
    """
    options = call.options
    if options.snapshot is None:
        return None
    _check(options)
    try:
        if options.snapshot == "-":
            saved = sys.stdin.read()
        else:
            with open(options.snapshot, encoding="utf-8") as file:
                saved = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"cannot read the snapshot {options.snapshot}: {error}", what="snapshot"
        ) from None
    return call.client.log(options.log).open_snapshot(saved)


def _check(options: Namespace) -> None:
    chosen = {
        "--node": options.node is not None,
        "--consistency": options.consistency != "linearizable",
        "--through": getattr(options, "through", None) is not None,
        f"--from {getattr(options, 'start', '')}": getattr(options, "start", 0)
        in ("latest", "snapshot"),
        "--reverse without -n": getattr(options, "reverse", False) and options.limit is None,
    }
    for flag, given in chosen.items():
        if given:
            raise UsageError(f"--snapshot does not go together with {flag}")


async def entries(
    snapshot: AsyncSnapshot, chosen: Keys, start: Start, end: End
) -> AsyncIterator[Entry]:
    """Yield the entries of the keys from `start` to `end`, each key's oldest first."""
    async for entry in snapshot.read(chosen.key, chosen.prefix, pattern=chosen.patterns):
        if _is_at_or_behind(entry, end):
            if chosen.key is not None:
                return
            continue
        if start == "earliest" or _is_at_or_behind(entry, start):
            yield entry


def _is_at_or_behind(entry: Entry, at: Start | End) -> bool:
    if isinstance(at, Timestamp):
        return entry.timestamp_ms >= at.ms
    return isinstance(at, int) and entry.seq >= at


async def newest(found: AsyncIterator[Entry], count: int | None) -> AsyncIterator[Entry]:
    """Yield the last `count` entries, newest first."""
    last: deque[Entry] = deque(maxlen=count)
    async for entry in found:
        last.append(entry)
    for entry in reversed(last):
        yield entry


async def keys(
    snapshot: AsyncSnapshot, prefix: bytes, patterns: list[bytes] | None, after: bytes | None
) -> AsyncIterator[bytes]:
    """Yield the keys with an entry in the snapshot, in order."""
    last = after
    async for columns in snapshot.read_columns(prefix=prefix or None, pattern=patterns):
        for key in columns.keys:
            if last is None or key > last:
                last = key
                yield key


async def first(found: AsyncIterator[Item], count: int | None) -> AsyncIterator[Item]:
    """Yield the first `count` items, all without a count."""
    if count == 0:
        return
    at = 0
    async for item in found:
        yield item
        at += 1
        if at == count:
            return
