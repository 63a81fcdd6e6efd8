"""`lognode producer list` and `delete`: the producer names that the cluster knows."""

import time

from .parser import Parser
from .quantities import age
from .verb import Call, Verb
from .verbs_logs import confirm

_COLUMNS = ("name", "id", "epoch", "opened", "owner")


def _nothing(_: Parser) -> None:
    return None


def _name(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME")


async def _list(call: Call) -> None:
    rows = await call.client.admin.producers()
    if call.printer.tables:
        now_ms = time.time_ns() // 1_000_000
        rows = [{**row, "opened": _ago(row["opened_ms"], now_ms)} for row in rows]
    call.printer.rows(rows, _COLUMNS)


def _ago(at_ms: int | None, now_ms: int) -> str | None:
    return None if at_ms is None else f"{age(now_ms - at_ms)} ago"


async def _delete(call: Call) -> None:
    name = call.options.name
    confirm(
        call, f"forget the producer name {name}? The next opening of the name gets the same id."
    )
    answer = await call.client.admin.delete_producer(name)
    call.printer.record({"name": name, **answer}, ("name", "id", "epoch"))


VERBS = (
    Verb("producer list", "list the named producers", _list,
         _nothing),
    Verb("producer delete", "forget the name of a producer", _delete, _name,
         True),
)  # fmt: skip
