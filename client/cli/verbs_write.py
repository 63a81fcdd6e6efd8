"""`lognode append`, `import`, `trim` and `delete-key`: the verbs that write and remove entries."""

import asyncio
import sys
import time
from collections import deque
from typing import Any

from ..appends import AsyncTicket
from ..protocol.errors import InvalidArgument
from ..protocol.limits import value_bytes_max
from ..protocol.types import ABSENT, ANY, Headers
from .load import load
from .parser import Parser, UsageError, expectation, whole
from .verb import Call, Verb
from .verbs_logs import confirm
from .verbs_read import to_bytes

_ACK = ("key", "seq", "timestamp_ms", "duplicate")
_IMPORT = ("rows", "acknowledged", "duplicates", "skipped", "seconds")


def _append_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("key", metavar="KEY")
    parser.add_argument(
        "value", nargs="?", metavar="VALUE", help="value of the entry; - reads values, one per line"
    )
    parser.add_argument(
        "--expect", type=expectation, default="any", metavar="any|absent|SEQ",
        help="append only if SEQ is the last seq of the key; absent: only if the key has no entry",
    )  # fmt: skip
    parser.add_argument("--tombstone", action="store_true", help="append an entry without a value")
    parser.add_argument(
        "--header", action="append", default=[], dest="headers", metavar="NAME=VALUE",
        help="header of the entry, or of each line's entry; may be repeated",
    )  # fmt: skip


async def _append(call: Call) -> None:
    options = call.options
    if options.tombstone == (options.value is not None):
        raise UsageError(
            "no value is given; give VALUE, - for lines of standard input, or --tombstone"
        )
    headers = _headers(options.headers)
    if options.value == "-":
        if options.expect != "any":
            raise UsageError("--expect and - are both given; --expect needs a single VALUE")
        await _append_lines(call, headers)
        return
    expect = {"any": ANY, "absent": ABSENT}.get(options.expect, options.expect)
    value = None if options.tombstone else to_bytes(options.value)
    log = call.client.log(options.log)
    key = to_bytes(options.key)
    ack = await log.append(key, value, headers=headers, expect=expect)
    call.printer.record(_ack_row(key, ack), _ACK)


async def _append_lines(call: Call, headers: Headers) -> None:
    """Append values from stdin as they arrive, and print an ack for each, in their order."""
    key = to_bytes(call.options.key)
    waiting: deque[AsyncTicket] = deque()
    log = call.client.log(call.options.log)
    async with log.producer(linger_ms=1, timeout=call.options.timeout) as producer:
        number = 0
        while line := await asyncio.to_thread(sys.stdin.buffer.readline, value_bytes_max + 2):
            number += 1
            try:
                value = line.removesuffix(b"\n")
                waiting.append(await producer.submit(key, value, headers=headers))
            except InvalidArgument as error:
                error.message = f"line {number}: {error.message}"
                raise
            while waiting and waiting[0].done:
                call.printer.line(_ack_row(key, await waiting.popleft()), _ACK)
        for ticket in waiting:
            call.printer.line(_ack_row(key, await ticket), _ACK)


def _headers(given: list[str]) -> Headers:
    """Return the headers of `--header` flags. Raises UsageError."""
    found: dict[bytes, bytes] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or to_bytes(name) in found:
            raise UsageError(f"--header is {text!r}; give NAME=VALUE, and each NAME once")
        found[to_bytes(name)] = to_bytes(value)
    return found


def _ack_row(key: bytes, ack: Any) -> dict[str, Any]:
    return {
        "key": key,
        "seq": ack.seq,
        "timestamp_ms": ack.timestamp_ms,
        "duplicate": ack.duplicate,
    }


def _import_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")
    parser.add_argument(
        "file",
        metavar="FILE",
        help="file to import: .csv, .jsonl or .parquet, also .gz or .zip; -: standard input",
    )
    parser.add_argument("--key", required=True, metavar="COLUMN", help="column of the key")
    parser.add_argument("--input", choices=("csv", "jsonl", "parquet"), metavar="KIND",
                        help="format of FILE, when its name does not tell: csv, jsonl "
                             "or parquet")  # fmt: skip
    parser.add_argument("--key-missing", metavar="K",
                        help="key of the rows whose key column is empty or NA")  # fmt: skip
    parser.add_argument("--on-error", choices=("stop", "skip"), default="stop",
                        help="action on a bad row (default stop)")  # fmt: skip
    parser.add_argument("--producer", metavar="NAME",
                        help="name of the import: a second import of the same file "
                             "under this name adds nothing")  # fmt: skip


async def _import(call: Call) -> None:
    started = time.monotonic()
    result = await load(call)
    row = {
        "rows": result.rows,
        "acknowledged": result.acknowledged,
        "duplicates": result.duplicates,
        "skipped": result.skipped,
        "seconds": round(time.monotonic() - started, 2),
    }
    call.printer.record(row, _IMPORT)


def _trim_arguments(parser: Parser) -> None:
    _key_arguments(parser)
    parser.add_argument("--before", type=whole, required=True, metavar="SEQ",
                        help="remove all entries below this seq")  # fmt: skip


def _key_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("key", metavar="KEY")


async def _trim(call: Call) -> None:
    options = call.options
    log, key = call.client.log(options.log), to_bytes(options.key)
    await log.describe()  # fail for an unknown log before asking anybody
    confirm(call, f"remove the entries of key {options.key} below seq {options.before}?")
    await log.trim(key, options.before)
    call.printer.record({"key": key, "before": options.before}, ("key", "before"))


async def _delete_key(call: Call) -> None:
    options = call.options
    log, key = call.client.log(options.log), to_bytes(options.key)
    await log.describe()
    confirm(call, f"remove all entries of key {options.key}?")
    await log.delete_key(key)
    call.printer.record({"key": key, "deleted": True}, ("key", "deleted"))


VERBS = (
    Verb("append", "append to a key", _append, _append_arguments, writes=True),
    Verb("import", "append the rows of a file", _import, _import_arguments, writes=True),
    Verb("trim", "remove the entries of a key below a seq", _trim, _trim_arguments, writes=True),
    Verb("delete-key", "remove all entries of a key", _delete_key, _key_arguments, writes=True),
)
