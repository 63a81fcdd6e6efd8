"""`lognode range list`, with the place and state of ranges, and `split|merge|move`."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ..client import AsyncClient
from ..json_text import to_json
from ..protocol import key_partitions, limits
from ..status_rows import ranges_of
from .parser import Parser, UsageError, whole
from .progress import Step, watched
from .quantities import age, size
from .verb import Call, Verb
from .verbs_logs import RANGE

_WIDE = (*RANGE, "size", "entries", "appends", "reads", "last")
_FIELDS = (
    "segment_bytes", "memtable_bytes", "entries_held", "records_per_s", "bytes_per_s",
    "reads_per_s", "hot_key", "last_operation",
)  # fmt: skip
"""The columns that `--wide` adds, by their names in /status.json."""
_UNKNOWN = "unknown"

Row = dict[str, Any]


def _arguments(parser: Parser) -> None:
    parser.add_argument("log", nargs="?", metavar="LOG")
    parser.add_argument(
        "--wide", action="store_true",
        help="with sizes, rates over the last minute, and the last change of each range with its "
             "reason",
    )  # fmt: skip


async def _list(call: Call) -> None:
    rows = await call.client.admin.ranges(call.options.log)
    if not call.options.wide:
        call.printer.rows(rows, RANGE)
        return
    wide = widened(rows, await call.client.status())
    if call.printer.tables:
        now_ms = time.time_ns() // 1_000_000
        wide = [in_words(row, now_ms) for row in wide]
    call.printer.rows(wide, _WIDE)


def widened(rows: Sequence[Row], status: Mapping[str, Any]) -> list[Row]:
    """Add the status of each row's generation to the row, None where the status has none."""
    ranges = {(known["id"], known["generation"]): known for known in status["ranges"]}
    operations = {operation["id"]: operation for operation in status["operations"]}
    found = []
    for row in rows:
        known = ranges.get((row["id"], row["generation"]), {})
        more = {name: known.get(name) for name in _FIELDS}
        running = operations.get(known.get("operation"))
        found.append({**row, **more, "running_operation": running})
    return found


def in_words(row: Row, now_ms: int) -> Row:
    """Return the row of a table: quantities with their units, `unknown` for unknown values."""
    known = row["segment_bytes"] is not None
    told = row["records_per_s"] is not None
    return {
        **row,
        "state": _state(row),
        "size": size(row["segment_bytes"] + row["memtable_bytes"]) if known else _UNKNOWN,
        "entries": row["entries_held"] if known else _UNKNOWN,
        "appends": (
            f"{row['records_per_s']:.1f}/s {size(row['bytes_per_s'])}/s" if told else _UNKNOWN
        ),
        "reads": f"{row['reads_per_s']:.1f}/s" if told else _UNKNOWN,
        "last": _last(row, now_ms),
    }


def _state(row: Row) -> str:
    hot = row["hot_key"]
    if hot is None:
        return str(row["state"])
    return f"{row['state']}, hot key {to_json(hot['key'])} has {hot['share']:.0%} of the load"


def _last(row: Row, now_ms: int) -> str | None:
    """Return the operation that changes the range now, or the last one, and its reason."""
    running, last = row["running_operation"], row["last_operation"]
    if running is not None:
        return f"{running['kind']} is {running['phase']}: {running['reason']}"
    if last is None:
        return None
    at_ms = last["ended_at_ms"]
    when = "at an unknown time" if at_ms is None else f"{age(now_ms - at_ms)} ago"
    return f"{last['kind']} {last['outcome']} {when}: {last['reason']}"


def under_way(
    client: AsyncClient, *, range_id: int | None = None, log: str | None = None
) -> Callable[[], Awaitable[Step]]:
    """Return what looks at the operation that changes the range, or a range of the log, now."""

    async def look() -> Step:
        for row in ranges_of(await client.status(), log):
            running = row["running_operation"]
            if running is not None and range_id in (None, row["id"]):
                return Step(None, f"{running['kind']} is {running['phase']}: {running['reason']}")
        return Step(None, "no operation is under way")

    return look


def _move_arguments(parser: Parser) -> None:
    parser.add_argument("range", type=whole, metavar="RANGE", help="id of the range")
    parser.add_argument("--from", dest="from_node", type=whole, required=True, metavar="NODE",
                        help="member that gives its replica up")  # fmt: skip
    parser.add_argument("--to", dest="to_node", type=whole, required=True, metavar="NODE",
                        help="node that gets the replica")  # fmt: skip
    parser.add_argument("--no-wait", action="store_true", help="return when the move is planned")


async def _move(call: Call) -> None:
    options = call.options
    move = call.client.admin.move(
        options.range, from_node=options.from_node, to_node=options.to_node,
        wait=not options.no_wait,
    )  # fmt: skip
    look = under_way(call.client, range_id=options.range)
    answer = await watched(f"range {options.range}", move, look)
    if options.no_wait:
        call.note(
            f"note: operation {answer['operation']} goes on; `lognode status` shows the operation"
        )
    call.printer.record(
        {"range": options.range, **answer}, ("range", "generation", "members", "operation")
    )


def _at_arguments(parser: Parser, what: str) -> None:
    parser.add_argument("log", metavar="LOG")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--at", metavar="KEY", help=what)
    place.add_argument(
        "--at-partition", type=whole, metavar="N",
        help="the same, as the number of a Kafka partition",
    )  # fmt: skip


def _at(options: Any) -> str | bytes:
    """Return the key that the options give."""
    if options.at_partition is None:
        found: str = options.at
        return found
    if options.at_partition >= limits.kafka_partitions_max:
        raise UsageError(
            f"partition {options.at_partition}; 1 to {limits.kafka_partitions_max - 1} are allowed"
        )
    return key_partitions.prefix(options.at_partition)


def _split_arguments(parser: Parser) -> None:
    _at_arguments(parser, "first key of the new range")
    parser.add_argument("--no-wait", action="store_true", help="return when the split is planned")


async def _split(call: Call) -> None:
    options = call.options
    split = call.client.admin.split(options.log, at=_at(options), wait=not options.no_wait)
    answer = await watched("split", split, under_way(call.client, log=options.log))
    if options.no_wait:
        call.note(
            f"note: operation {answer['operation']} goes on; `lognode status` shows the operation"
        )
    call.printer.record(answer, ("range", "new_range", "generation", "operation"))


def _merge_arguments(parser: Parser) -> None:
    _at_arguments(parser, "first key of the right one of the two neighbour ranges")
    parser.add_argument("--no-wait", action="store_true", help="return when the merge is planned")


async def _merge(call: Call) -> None:
    options = call.options
    merge = call.client.admin.merge(options.log, at=_at(options), wait=not options.no_wait)
    answer = await watched("merge", merge, under_way(call.client, log=options.log))
    if options.no_wait:
        call.note(
            f"note: operation {answer['operation']} goes on; `lognode status` shows the operation"
        )
    call.printer.record(answer, ("range", "gone_range", "generation", "operation"))


VERBS = (
    Verb("range list", "list the ranges of one log, or of all logs", _list, _arguments),
    Verb("range split", "split a range in two ranges at a key", _split, _split_arguments, True),
    Verb(
        "range merge", "merge two neighbour ranges into one range", _merge, _merge_arguments, True
    ),
    Verb(
        "range move",
        "move the replica of a range from one node to another node",
        _move,
        _move_arguments,
        True,
    ),
)
