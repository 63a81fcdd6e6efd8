"""`lognode cursor list`, `set` and `delete`: the positions of readers that a log keeps."""

from ..cursor import AsyncKeptCursor
from ..protocol.types import CursorInfo, CursorStart
from .parser import Parser, UsageError, When, position, timestamp
from .verb import Call, Verb
from .verbs_logs import confirm
from .verbs_read import patterns, to_bytes


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("--prefix", default="", metavar="P",
                        help="list only cursors of keys with this prefix")  # fmt: skip


def _cursor_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("cursor", metavar="CURSOR")
    parser.add_argument("--prefix", metavar="P", help="only the positions of keys with this prefix")
    parser.add_argument("--pattern", action="append", metavar="P",
                        help="only the positions of keys that begin as this pattern begins, up to "
                             "the first wildcard; may be repeated")  # fmt: skip


def _set_arguments(parser: Parser) -> None:
    _cursor_arguments(parser)
    parser.add_argument("--to", dest="start", type=position, required=True, metavar="S",
                        help="position: earliest, latest, a seq, -10m, or a time in ISO "
                             "8601")  # fmt: skip


async def _list(call: Call) -> None:
    options = call.options
    found = await call.client.log(options.log).cursors(prefix=to_bytes(options.prefix))
    call.printer.rows([info._asdict() for info in found], CursorInfo._fields)


async def _set(call: Call) -> None:
    options = call.options
    start, cursor = _start(options.start), _named(call)
    confirm(
        call, f"set cursor {options.cursor} of log {options.log}? Its reader is refused from then "
        "on, and may read entries again or pass over entries.",
    )  # fmt: skip
    await cursor.set(start)


async def _delete(call: Call) -> None:
    options, cursor = call.options, _named(call)
    confirm(call, f"delete cursor {options.cursor} of log {options.log}? Its position is lost.")
    await cursor.delete()


def _named(call: Call) -> AsyncKeptCursor:
    """Return the cursor that the arguments name. Raises UsageError for two choices of keys."""
    options = call.options
    if options.prefix is not None and options.pattern is not None:
        raise UsageError("give only one of --prefix and --pattern")
    prefix = None if options.prefix is None else to_bytes(options.prefix)
    log = call.client.log(options.log)
    return log.cursor(options.cursor, prefix=prefix, pattern=patterns(options))


def _start(given: int | str | When) -> CursorStart:
    if isinstance(given, tuple):
        return timestamp(given)
    if given == "earliest":
        return "earliest"
    if given == "latest":
        return "latest"
    if isinstance(given, int):
        return given
    raise UsageError(f"--to is {given}; a cursor has a seq, earliest, latest, or a time")


VERBS = (
    Verb("cursor list", "list the cursors that a log keeps", _list, _list_arguments),
    Verb("cursor set", "set a cursor to a position, forwards or back", _set, _set_arguments, True),
    Verb("cursor delete", "forget a cursor", _delete, _cursor_arguments, True),
)
