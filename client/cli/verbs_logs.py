"""`lognode log ...`: create, list, describe, alter and delete logs."""

import sys
from typing import Any

from ..protocol import limits
from ..protocol.cleanups import CLEANUPS
from ..protocol.types import UNCHANGED
from .parser import Parser, UsageError, rule_bytes, rule_ms, rule_whole, whole
from .verb import Call, Verb
from .verbs_read import to_bytes

_LOG = ("id", "name", "hierarchy", "replicas", "retention_ms", "retention_bytes", "cleanup")
_POLICY = (
    *_LOG,
    "delete_retention_ms",
    "snapshot_delay_ms",
    "split_bytes",
    "split_rate",
    "local_retention_bytes",
    "kafka_partitions",
)
_FRAGILE = 2
"""Replicas whose majority needs each of them."""
RANGE = ("id", "log", "start", "end", "generation", "members", "leader", "state")
"""Columns of ranges in tables."""


def _name(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME")


def _nothing(_: Parser) -> None:
    return None


def _create_arguments(parser: Parser) -> None:
    _name(parser)
    spread = parser.add_mutually_exclusive_group()
    spread.add_argument(
        "--ranges",
        type=whole,
        metavar="N",
        help="number of ranges of equal width in bytes, for hashes "
        "and other binary keys; text keys lie in few of these: use --split-at",
    )
    spread.add_argument(
        "--split-at",
        metavar="K,...",
        help="first keys of the ranges after the first range, such as order-3,order-6",
    )
    parser.add_argument(
        "--replicas",
        type=whole,
        default=3,
        metavar="R",
        help="number of replicas of each range (default 3)",
    )
    _policy_arguments(parser, None, "delete")
    parser.add_argument(
        "--hierarchy", metavar="SEP",
        help="separator of the levels of keys, as /, by which patterns choose keys (default none)",
    )  # fmt: skip
    parser.add_argument(
        "--kafka-partitions", type=whole, metavar="P",
        help="fixed number of partitions that Kafka clients see (default: not a Kafka topic)",
    )  # fmt: skip
    parser.add_argument(
        "--exist-ok", action="store_true", help="succeed when the log exists already"
    )


def _policy_arguments(parser: Parser, unset: Any, cleanup: Any) -> None:
    """Add the rules for removal; `unset` is the value of rules that are not given."""
    for flag, type_, metavar, help_ in (
        ("--retention", rule_ms, "AGE", "remove entries above this age, as 7d; none: keep all"),
        ("--retention-bytes", rule_bytes, "SIZE",
         "keep at least this many bytes of each range, the newest, as 10GiB; none: keep all"),
        ("--local-retention-bytes", rule_bytes, "SIZE",
         "keep about this many bytes of each range on the disk of each node with --tier, and older "
         "segments in the tier only; none: all on the disks too"),
        ("--delete-retention", rule_ms, "AGE",
         "with compaction: keep tombstones this long (default 1d)"),
        ("--snapshot-delay", rule_ms, "AGE",
         "remove the entries of a key before its logical snapshot after this time; none: keep all"),
    ):  # fmt: skip
        parser.add_argument(flag, type=type_, default=unset, metavar=metavar, help=help_)
    parser.add_argument(
        "--split-bytes", type=rule_bytes, metavar="SIZE",
        default=limits.split_bytes_default if unset is None else unset,
        help="split a range that has more bytes (default 512MiB); none: never",
    )  # fmt: skip
    parser.add_argument(
        "--split-rate", type=rule_whole, metavar="N",
        default=limits.split_rate_default if unset is None else unset,
        help="split a range that has more appends and reads per second (default 20000); none: "
             "never",
    )  # fmt: skip
    parser.add_argument(
        "--cleanup", choices=CLEANUPS, default=cleanup,
        help="delete: remove old entries (default); compact: keep only the last entry of each key; "
             "compact,delete: both",
    )  # fmt: skip


def _policy(call: Call) -> dict[str, Any]:
    options = call.options
    return {
        "retention_ms": options.retention,
        "retention_bytes": options.retention_bytes,
        "cleanup": options.cleanup,
        "delete_retention_ms": options.delete_retention,
        "snapshot_delay_ms": options.snapshot_delay,
        "split_bytes": options.split_bytes,
        "split_rate": options.split_rate,
        "local_retention_bytes": options.local_retention_bytes,
    }


def _alter_arguments(parser: Parser) -> None:
    _name(parser)
    _policy_arguments(parser, UNCHANGED, UNCHANGED)
    parser.add_argument(
        "--replicas",
        metavar="R",
        help="the number of replicas cannot change after the creation of the log",
    )


async def _alter(call: Call) -> None:
    name = call.options.name
    if call.options.replicas is not None:
        raise UsageError(
            "the replicas of a log cannot change; create a log with --replicas "
            f"{call.options.replicas} and append to the new log"
        )
    changes = _policy(call)
    if all(value is UNCHANGED for value in changes.values()):
        raise UsageError(
            "no change is given; give --retention, --retention-bytes, --cleanup, "
            "--delete-retention, --snapshot-delay, --split-bytes, --split-rate or "
            "--local-retention-bytes"
        )
    await call.client.alter_log(name, **changes)
    call.printer.record(_row(await call.client.log(name).describe()), _POLICY)


async def _create(call: Call) -> None:
    options = call.options
    await call.client.create_log(
        options.name,
        ranges=options.ranges,
        split_at=None if options.split_at is None else options.split_at.split(","),
        replicas=options.replicas,
        **_policy(call),
        hierarchy=None if options.hierarchy is None else to_bytes(options.hierarchy),
        kafka_partitions=options.kafka_partitions,
        exist_ok=options.exist_ok,
    )
    answer = await call.client.metadata(options.name)
    nodes = sum(node["state"] == "ACTIVE" for node in answer["nodes"])
    log = _row(answer["logs"][0])
    if nodes < log["replicas"]:
        call.note(
            f"note: the cluster has {nodes} of the {log['replicas']} nodes that the log "
            f"needs; the log grows to {log['replicas']} replicas when more nodes join"
        )
    if log["replicas"] <= _FRAGILE:
        call.note(
            f"note: {log['replicas']} replicas of each range tolerate the failure of no node, "
            "because a majority of them must run; --replicas 3 tolerates one failure"
        )
    call.printer.record(log, _LOG)


async def _list(call: Call) -> None:
    call.printer.rows([_row(log) for log in await call.client.logs()], _LOG)


async def _describe(call: Call) -> None:
    described = await call.client.log(call.options.name).describe()
    log = _row(described)
    ranges = [{**row, "log": log["name"]} for row in described["ranges"]]
    if call.printer.tables:
        call.printer.record(log, _POLICY)
        call.printer.rows(ranges, RANGE)
    else:
        call.printer.document({**log, "ranges": ranges})


async def _delete(call: Call) -> None:
    name = call.options.name
    await call.client.metadata(name)  # fail for an unknown log before asking anybody
    confirm(call, f"delete log {name} and all its entries?")
    await call.client.delete_log(name)


def confirm(call: Call, question: str) -> None:
    """Ask before an irreversible action. Raises UsageError unless the answer is yes."""
    if call.options.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Give --yes when the command runs without a terminal")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("the answer is not yes; nothing changed")


def _row(log: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": log["id"], "name": log["name"], "hierarchy": log["hierarchy"],
        "kafka_partitions": None, "local_retention_bytes": None, **log["policy"],
    }  # fmt: skip


VERBS = (
    Verb("log create", "create a log", _create, _create_arguments, writes=True),
    Verb("log list", "list all logs", _list, _nothing),
    Verb("log describe", "show a log and its ranges", _describe, _name),
    Verb(
        "log alter",
        "change the retention, cleanup and split rules of a log",
        _alter,
        _alter_arguments,
        writes=True,
    ),
    Verb("log delete", "delete a log and all its entries", _delete, _name, writes=True),
)
