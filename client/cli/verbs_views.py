"""`lognode view` and its actions: names that appends can wait for."""

from ..protocol.types import ViewInfo
from .parser import Parser, UsageError
from .verb import Call, Verb
from .verbs_logs import confirm
from .verbs_read import to_bytes

_LISTED = tuple(name for name in ViewInfo._fields if name != "separator")


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")


def _view_arguments(parser: Parser) -> None:
    _list_arguments(parser)
    parser.add_argument("view", metavar="VIEW")


def _register_arguments(parser: Parser) -> None:
    _view_arguments(parser)
    parser.add_argument("--group", metavar="GROUP", help="the consumer group of the view")
    parser.add_argument("--cursor", metavar="CURSOR", help="the cursor of the view")
    parser.add_argument("--prefix", default="", metavar="P",
                        help="the view of a cursor has the keys with this prefix")  # fmt: skip
    parser.add_argument("--live", action="store_true",
                        help="appends wait only while a consumer of the group lives")  # fmt: skip


async def _list(call: Call) -> None:
    found = await call.client.log(call.options.log).views()
    call.printer.rows([info._asdict() for info in found], _LISTED)


async def _register(call: Call) -> None:
    options = call.options
    if (options.group is None) == (options.cursor is None):
        raise UsageError("give --group or --cursor")
    info = await call.client.log(options.log).register_view(
        options.view, group=options.group, cursor=options.cursor, prefix=to_bytes(options.prefix),
        policy="live" if options.live else "wait",
    )  # fmt: skip
    call.printer.record(info._asdict(), _LISTED)


async def _delete(call: Call) -> None:
    options = call.options
    confirm(call, f"delete view {options.view} of log {options.log}? Appends cannot wait for it.")
    await call.client.log(options.log).delete_view(options.view)


VERBS = (
    Verb("view list", "list the views of a log", _list, _list_arguments),
    Verb("view register", "let appends wait for a group or a cursor", _register,
         _register_arguments, True),
    Verb("view delete", "delete a view", _delete, _view_arguments, True),
)  # fmt: skip
