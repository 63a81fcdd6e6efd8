"""`lognode status`, `health`, `range transfer` and `cluster finalize`."""

import asyncio
import time
from typing import Any

from ..protocol.errors import LognodeError, Unsupported
from .parser import Parser, age_s, whole
from .progress import Progress, Step
from .verb import Call, Verb
from .verbs_logs import RANGE, confirm
from .verbs_nodes import NODE

_HEALTH_EVERY_S = 0.2
_KAFKA = ("connections", "groups", "members", "topics")
_TIER = ("place", "waiting_files", "waiting_bytes", "waiting_s", "last_success_ms", "last_error")
_ASK = "start a node, or give the address of a running node with --server"


def _nothing(_: Parser) -> None:
    return None


def _health_arguments(parser: Parser) -> None:
    parser.add_argument("--wait", type=age_s, default=0.0, metavar="AGE",
                        help="wait until the cluster is healthy, at most this long")  # fmt: skip
    parser.add_argument("--nodes", type=whole, default=1, metavar="N",
                        help="number of ACTIVE nodes that the cluster must have "
                             "(default 1)")  # fmt: skip


async def _status(call: Call) -> None:
    status = await call.client.status()
    if not call.printer.tables:
        call.printer.document(status)
        return
    for name, columns in (
        ("cluster", None),
        ("nodes", (*NODE, "alive", "disk_short", "insecure", "version", "levels")),
        ("logs", ("id", "name", "replicas", "ranges", "retention_ms", "retention_bytes",
                  "cleanup")),
        ("ranges", RANGE), ("operations", ("id", "kind", "phase", "ranges", "reason")),
        ("damaged", ("node", "range", "generation", "reason")), ("tier", _TIER),
        ("kafka", _KAFKA),
    ):  # fmt: skip
        part: Any = status.get(name)
        if type(part) is dict:
            fits = columns is not None and part.keys() >= set(columns)
            call.printer.rows([part], columns if columns and fits else tuple(part))
        elif part and columns:
            call.printer.rows(part, columns)
    await _note_trouble(call)


async def _note_trouble(call: Call) -> None:
    """Say below the tables what is wrong and what to do next."""
    try:
        answer = await call.client.health()
    except LognodeError:
        return  # the status was the question
    reasons = answer["reasons"]
    if reasons:
        more = f" (and {len(reasons) - 1} more: `lognode health`)" if len(reasons) > 1 else ""
        call.note(f"not healthy: {reasons[0]}{more}")
    if answer.get("next"):
        call.note(f"next: {answer['next']}")


async def _health(call: Call) -> int:
    """Return 0 when the cluster becomes healthy within `--wait`, else print the reasons and
    return 3."""
    deadline = time.monotonic() + call.options.wait
    progress = Progress("health")
    while True:
        try:
            answer = await call.client.health(nodes=call.options.nodes)
        except Unsupported:
            raise
        except LognodeError as error:
            answer = {"ok": False, "reasons": [error.message], "next": _ASK}
        if answer["ok"] or time.monotonic() >= deadline:
            break
        progress.tell(Step(None, answer["reasons"][0]))
        await asyncio.sleep(_HEALTH_EVERY_S)
    progress.leave()
    if not call.printer.tables:
        call.printer.document(answer)
    elif answer["ok"]:
        call.printer.scalar("healthy")
    else:
        for reason in answer["reasons"]:
            call.printer.scalar(reason)
        if answer.get("next"):
            call.note(f"next: {answer['next']}")
    return 0 if answer["ok"] else 3


def _transfer_arguments(parser: Parser) -> None:
    parser.add_argument(
        "range", type=whole, metavar="RANGE", help="id of the range; 0: the controller"
    )
    parser.add_argument("node", type=whole, metavar="NODE", help="member that takes over the lead")


async def _transfer(call: Call) -> None:
    options = call.options
    answer = await call.client.admin.transfer(options.range, to_node=options.node)
    if not answer["changed"]:
        call.note(f"note: node {options.node} leads range {options.range} already")
    row = {"range": options.range, "leader": answer["leader"]}
    call.printer.record(row, ("range", "leader"))


def _finalize_arguments(parser: Parser) -> None:
    parser.add_argument("--level", type=whole, metavar="N",
                        help="to this level (default: as far as all nodes can)")  # fmt: skip


async def _finalize(call: Call) -> None:
    level = call.options.level
    told = "a higher feature level" if level is None else f"feature level {level}"
    confirm(call, f"raise the cluster to {told} for good? no earlier version can serve it then")
    call.printer.record(await call.client.admin.finalize(level), ("level",))


VERBS = (
    Verb("range transfer", "have another member lead a range", _transfer, _transfer_arguments),
    Verb(
        "cluster finalize",
        "raise the feature level after an upgrade",
        _finalize,
        _finalize_arguments,
        True,
    ),
    Verb("status", "show everything that a node knows of the cluster", _status, _nothing),
    Verb(
        "health",
        "say whether the cluster is healthy; exit code 3 when the cluster is not healthy",
        _health,
        _health_arguments,
    ),
)
