"""`lognode log ...`: create, list, describe and delete logs."""

import sys
from typing import Any

from .parser import Parser, UsageError, age_ms, whole
from .verb import Call, Verb

_LOG = ("id", "name", "replicas", "retention_ms", "cleanup")
RANGE = ("id", "log", "start", "end", "generation", "members", "leader", "state")
"""Columns of ranges in tables."""


def _name(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME")


def _nothing(_: Parser) -> None:
    return None


def _create_arguments(parser: Parser) -> None:
    _name(parser)
    spread = parser.add_mutually_exclusive_group()
    spread.add_argument("--ranges", type=whole, metavar="N", help="even ranges over all bytes")
    spread.add_argument("--split-at", metavar="K,...", help="keys at which ranges begin")
    parser.add_argument("--replicas", type=whole, default=3, metavar="R", help="default 3")
    parser.add_argument(
        "--retention", type=age_ms, metavar="AGE", help="entries older than this may go; as 7d"
    )
    parser.add_argument("--cleanup", choices=("delete", "compact"), default="delete")
    parser.add_argument("--exist-ok", action="store_true", help="no error when it is there")


async def _create(call: Call) -> None:
    options = call.options
    await call.client.create_log(
        options.name,
        ranges=options.ranges,
        split_at=None if options.split_at is None else options.split_at.split(","),
        replicas=options.replicas,
        retention_ms=options.retention,
        cleanup=options.cleanup,
        exist_ok=options.exist_ok,
    )
    answer = await call.client.metadata(options.name)
    nodes = sum(node["state"] == "ACTIVE" for node in answer["nodes"])
    log = _row(answer["logs"][0])
    if nodes < log["replicas"]:
        call.note(
            f"note: {nodes} of {log['replicas']} nodes are there; the log grows to "
            f"{log['replicas']} replicas as nodes join"
        )
    call.printer.record(log, _LOG)


async def _list(call: Call) -> None:
    call.printer.rows([_row(log) for log in await call.client.logs()], _LOG)


async def _describe(call: Call) -> None:
    answer = await call.client.metadata(call.options.name)
    log = _row(answer["logs"][0])
    ranges = ranges_of(answer)
    if call.printer.tables:
        call.printer.record(log, _LOG)
        call.printer.rows(ranges, RANGE)
    else:
        call.printer.document({**log, "ranges": ranges})


async def _delete(call: Call) -> None:
    name = call.options.name
    await call.client.metadata(name)  # whether it is there, before anybody is asked
    confirm(call, f"delete log {name} and all its entries?")
    await call.client.delete_log(name)


def confirm(call: Call, question: str) -> None:
    """Ask before what cannot be undone. Raises UsageError unless the answer is yes."""
    if call.options.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Give --yes where nobody can be asked")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("not confirmed; nothing was done")


def _row(log: dict[str, Any]) -> dict[str, Any]:
    return {"id": log["id"], "name": log["name"], **log["policy"]}


def ranges_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The ranges of a metadata answer, with the name of their log, in order of log and start."""
    names = {log["id"]: log["name"] for log in answer["logs"]}
    rows = [
        {
            "id": body["id"],
            "log": names.get(body["log"], ""),
            "start": body["start"],
            "end": body["end"],
            "generation": body["generation"],
            "members": body["members"],
            "leader": body["leader"],
            "state": body["state"],
        }
        for body in answer["ranges"]
    ]
    return sorted(rows, key=lambda row: (row["log"], row["start"]))


VERBS = (
    Verb("log create", "create a log", _create, _create_arguments, writes=True),
    Verb("log list", "all logs", _list, _nothing),
    Verb("log describe", "one log and its ranges", _describe, _name),
    Verb("log delete", "delete a log and all its entries", _delete, _name, writes=True),
)
