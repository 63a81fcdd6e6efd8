"""`lognode node storage|settings|connections`, and `range hot`: what the console shows too."""

from typing import Any

from ..protocol.node_reports import CONNECTIONS, SETTINGS, STORAGE
from ..status_rows import hot_keys_of
from .parser import Parser, whole
from .verb import Call, Verb

_REPLICAS = ("log", "range", "generation", "role", "segments", "segment_bytes", "memtable_bytes",
             "entries")  # fmt: skip
_SETTINGS = ("name", "value", "source")
_CONNECTIONS = ("address", "principal", "role", "node", "private", "requests", "bytes_in",
                "bytes_out", "idle_s")  # fmt: skip
_HOT = ("log", "key", "share", "per_s", "range", "leader")


def _arguments(parser: Parser) -> None:
    parser.add_argument("node", type=whole, metavar="NODE", help="id of the node")


async def _storage(call: Call) -> None:
    await _show(call, STORAGE, _REPLICAS)


async def _settings(call: Call) -> None:
    await _show(call, SETTINGS, _SETTINGS)


async def _connections(call: Call) -> None:
    await _show(call, CONNECTIONS, _CONNECTIONS)


async def _show(call: Call, part: str, columns: tuple[str, ...]) -> None:
    """Print all rows of a report, and above them its facts."""
    node = call.options.node
    page = await call.client.admin.node_report(node, part)
    rows: list[dict[str, Any]] = page["rows"]
    while page["rows"] and len(rows) < page["total"]:
        page = await call.client.admin.node_report(node, part, offset=len(rows))
        rows = rows + page["rows"]
    if not call.printer.tables:
        call.printer.document({**page, "rows": rows})
        return
    facts = {name: value for name, value in page["facts"].items() if type(value) is not dict}
    if facts:
        call.printer.rows([facts], tuple(facts))
    call.printer.rows(rows, columns)


def _nothing(_: Parser) -> None:
    return None


async def _hot(call: Call) -> None:
    call.printer.rows(hot_keys_of(await call.client.status()), _HOT)


VERBS = (
    Verb("node storage", "show the disk, the WAL and the replicas of a node", _storage, _arguments),
    Verb("node settings", "show the settings of a running node and their sources", _settings,
         _arguments),
    Verb("node connections", "list the connections of clients to a node", _connections, _arguments),
    Verb("range hot", "list the keys that take a large part of the load of their ranges", _hot,
         _nothing),
)  # fmt: skip
