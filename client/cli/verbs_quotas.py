"""`lognode quota set`, `quota list`, `quota delete` and `usage`."""

from typing import Any, Final

from ..protocol.quotas import COUNTERS, KINDS, RATES, STORED
from ..protocol.types import UNCHANGED
from .parser import Parser, UsageError, rate, rule_bytes, whole
from .verb import Call, Verb
from .verbs_logs import confirm

_COLUMNS = ("name", *KINDS)
_FLAGS = {
    "append_bytes": ("RATE", "bytes appended per second, as 10MB/s"),
    "append_records": ("RATE", "records appended per second, as 20000/s"),
    "read_bytes": ("RATE", "bytes of answers to reads per second, as 50MB/s"),
    "read_records": ("RATE", "records read per second"),
    "requests": ("RATE", "requests of any kind per second"),
    "cpu_ms": ("RATE", "milliseconds of the node's event loop per second, as 300/s: 30 percent"),
    "connections": ("N", "connections of a principal to each node"),
    "follows": ("N", "follows at each node, of a principal or of a tenant's logs"),
    "producers": ("N", "producer names of a principal"),
    "logs": ("N", "number of logs of a tenant"),
    STORED: ("SIZE", "bytes that the logs of a tenant hold, as 100GiB"),
}


def _nothing(_: Parser) -> None:
    return None


def _count(text: str) -> int | None:
    return None if text == "none" else whole(text)


_TYPES: Final = {**dict.fromkeys(RATES, rate), STORED: rule_bytes}


def _name(parser: Parser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="a class of principals (`default`: every principal "
                                     "without another quota), or a tenant with a slash, as "
                                     "acme/",
    )  # fmt: skip


def _set_arguments(parser: Parser) -> None:
    _name(parser)
    for kind in KINDS:
        metavar, text = _FLAGS[kind]
        parser.add_argument(
            f"--{kind.replace('_', '-')}", type=_TYPES.get(kind, _count),
            default=UNCHANGED, metavar=metavar, help=f"{text}; none: no limit",
        )  # fmt: skip


async def _set(call: Call) -> None:
    given = {kind: getattr(call.options, kind) for kind in KINDS}
    changes = {kind: limit for kind, limit in given.items() if limit is not UNCHANGED}
    if not changes:
        flags = ", ".join(f"--{kind.replace('_', '-')}" for kind in KINDS)
        raise UsageError(f"no limit is given; give one of {flags}")
    quota = await call.client.admin.set_quota(call.options.name, changes)
    call.printer.record(_row(quota), _COLUMNS)


async def _list(call: Call) -> None:
    call.printer.rows([_row(quota) for quota in await call.client.admin.quotas()], _COLUMNS)


async def _delete(call: Call) -> None:
    name = call.options.name
    confirm(call, f"delete quota {name} and its limits?")
    await call.client.admin.delete_quota(name)


def _usage_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--principals",
        action="store_true",
        help="this limit is for a class of principals, not for a tenant",
    )


async def _usage(call: Call) -> None:
    used = await call.client.admin.usage()
    if used["silent"]:
        nodes = ", ".join(map(str, used["silent"]))
        call.note(f"note: the figures do not include nodes {nodes}, which do not answer")
    rows = used["principals" if call.options.principals else "tenants"]
    stored = () if call.options.principals else (STORED,)
    call.printer.rows(rows, ("name", *COUNTERS, *stored))


def _row(quota: dict[str, Any]) -> dict[str, Any]:
    return {"name": quota["name"]} | {kind: quota["limits"].get(kind) for kind in KINDS}


VERBS = (
    Verb("quota set", "limit what a class of principals or a tenant may use", _set, _set_arguments,
         writes=True),
    Verb("quota list", "list all quotas", _list, _nothing),
    Verb("quota delete", "delete a quota", _delete, _name, writes=True),
    Verb("usage", "show the use of tenants since their nodes started", _usage, _usage_arguments),
)  # fmt: skip
