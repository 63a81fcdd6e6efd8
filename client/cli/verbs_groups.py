"""`lognode group` and its actions: the consumer groups of a log."""

from ..group import AsyncGroup
from ..protocol.types import (
    CursorStart,
    GroupDecision,
    GroupInfo,
    GroupKey,
    GroupLag,
)
from .parser import Parser, UsageError, When, position, timestamp, whole
from .verb import Call, Verb
from .verbs_logs import confirm
from .verbs_read import to_bytes

_LISTED = ("name", "id", "prefix", "patterns", "max_deliveries", "on_dead", "lease_ms", "begin")


def _log_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")


def _group_arguments(parser: Parser) -> None:
    _log_arguments(parser)
    parser.add_argument("group", metavar="GROUP")


def _parked_arguments(parser: Parser) -> None:
    _group_arguments(parser)
    parser.add_argument("--in-flight", action="store_true",
                        help="list keys that consumers have, not parked keys")  # fmt: skip


def _key_arguments(parser: Parser) -> None:
    _group_arguments(parser)
    parser.add_argument("key", metavar="KEY")


def _skip_arguments(parser: Parser) -> None:
    _key_arguments(parser)
    parser.add_argument("--through", type=whole, metavar="SEQ",
                        help="pass the entries up to this seq, inclusive (default: the next entry "
                             "alone)")  # fmt: skip
    parser.add_argument("--why", default="", metavar="TEXT", help="a reason, for the history")


def _reset_arguments(parser: Parser) -> None:
    _group_arguments(parser)
    parser.add_argument("--to", dest="start", type=position, required=True, metavar="S",
                        help="position: earliest, latest, a seq, -10m, or a time in ISO "
                             "8601")  # fmt: skip
    parser.add_argument("--key", metavar="KEY", help="only this key")


async def _list(call: Call) -> None:
    found = await call.client.log(call.options.log).groups()
    call.printer.rows([info._asdict() for info in found], _LISTED)


async def _describe(call: Call) -> None:
    info = await _group(call).describe()
    call.printer.record(info._asdict(), GroupInfo._fields)


async def _lag(call: Call) -> None:
    found = await _group(call).lag()
    call.printer.record(found._asdict(), GroupLag._fields)


async def _parked(call: Call) -> None:
    group = _group(call)
    rows = await (group.in_flight() if call.options.in_flight else group.parked())
    call.printer.rows([row._asdict() for row in rows], GroupKey._fields)


async def _history(call: Call) -> None:
    rows = await _group(call).history()
    call.printer.rows([row._asdict() for row in rows], GroupDecision._fields)


async def _retry(call: Call) -> None:
    await _group(call).retry(to_bytes(call.options.key))


async def _skip(call: Call) -> None:
    options = call.options
    confirm(
        call, f"skip entries of key {options.key} for group {options.group} of log {options.log}? "
        "No consumer of the group gets them.",
    )  # fmt: skip
    through = await _group(call).skip(to_bytes(options.key), options.through, why=options.why)
    call.printer.record({"key": options.key, "through": through}, ("key", "through"))


async def _reset(call: Call) -> None:
    options = call.options
    start = start_of(options.start)
    confirm(
        call, f"reset group {options.group} of log {options.log}? Its consumers lose what they "
        "have, and get entries again or never.",
    )  # fmt: skip
    key = None if options.key is None else to_bytes(options.key)
    await _group(call).reset(start, key=key)


async def _delete(call: Call) -> None:
    options = call.options
    confirm(call, f"delete group {options.group} of log {options.log}? Its positions are lost.")
    await _group(call).delete()


def _group(call: Call) -> AsyncGroup:
    return call.client.log(call.options.log).group(call.options.group)


def start_of(given: int | str | When) -> CursorStart:
    """Return the position of a reset. Raises UsageError."""
    if isinstance(given, tuple):
        return timestamp(given)
    if given == "earliest":
        return "earliest"
    if given == "latest":
        return "latest"
    if isinstance(given, int):
        return given
    raise UsageError(f"--to is {given}; give a seq, earliest, latest, or a time")


VERBS = (
    Verb("group list", "list the consumer groups of a log", _list, _log_arguments),
    Verb("group describe", "show the options of a consumer group", _describe, _group_arguments),
    Verb("group lag", "count what a consumer group has not done", _lag, _group_arguments),
    Verb("group parked", "list the keys that wait for retry or skip", _parked, _parked_arguments),
    Verb("group history", "list what was decided about keys", _history, _group_arguments),
    Verb("group retry", "let a parked key go on", _retry, _key_arguments, True),
    Verb("group skip", "pass entries of a key", _skip, _skip_arguments, True),
    Verb("group reset", "set the position of a group, forwards or back", _reset,
         _reset_arguments, True),
    Verb("group delete", "delete a consumer group", _delete, _group_arguments, True),
)  # fmt: skip
