"""`lognode range recover`: a range that lost its majority for good continues from one member.

Without `--accept-loss` the verb reports the possible loss and changes nothing.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..protocol.errors import Conflict
from .parser import Parser, UsageError, whole
from .progress import watched
from .quantities import age
from .verb import Call, Verb
from .verbs_ranges import under_way

_MEMBER = ("node", "state", "answers", "last_term", "last_index", "applied", "last_seq", "damaged")
_GONE = (
    "S2: acknowledged entries that only the lost members had are lost",
    (
        "S3, S5, S6: readers may have seen entries that are absent now or, where the logs of "
        "members differ, other entries under the same seq; new appends get far higher seqs"
    ),
    "S7, S9: reads and conditions see only the entries that are left, and may see an older state",
)
"""The promises that no longer hold for the earlier entries of the range."""


def _arguments(parser: Parser) -> None:
    parser.add_argument("range", type=whole, metavar="RANGE", help="id of the range")
    parser.add_argument("--from", dest="from_node", type=whole, metavar="NODE",
                        help="member whose replica the range keeps")  # fmt: skip
    parser.add_argument(
        "--accept-loss", action="store_true",
        help="recover the range; without this flag the verb only reports the possible loss",
    )  # fmt: skip
    parser.add_argument("--no-wait", action="store_true", help="return when the recovery begins")


async def _recover(call: Call) -> None:
    options = call.options
    if not options.accept_loss:
        await _tell(call)
        return
    if options.from_node is None:
        raise UsageError(
            "--accept-loss needs --from NODE; run the verb without --accept-loss to see "
            "which member has most"
        )
    recover = call.client.admin.recover(
        options.range, from_node=options.from_node, accept_loss=True, wait=not options.no_wait
    )
    look = under_way(call.client, range_id=options.range)
    answer = await watched(f"range {options.range}", recover, look)
    if options.no_wait:
        call.note(
            f"note: operation {answer['operation']} goes on; `lognode status` shows the operation"
        )
    row = {"range": options.range, "members": [options.from_node], **answer}
    call.printer.record(row, ("range", "generation", "members", "operation"))


async def _tell(call: Call) -> None:
    """Report the members, the possible loss, and how to continue. Always ends with Conflict."""
    options = call.options
    told = await call.client.admin.recovery(options.range)
    survivor = told["proposed"] if options.from_node is None else options.from_node
    lines = list(warnings(told, survivor, time.time_ns() // 1_000_000))
    if call.printer.tables:
        call.printer.rows(told["members"], _MEMBER)
        for line in lines:
            call.printer.scalar(line)
    else:
        call.printer.document({**told, "warnings": lines})
    if told["refused"] is not None:
        raise Conflict(f"nothing changed; the cluster would refuse the recovery: {told['refused']}")
    raise Conflict(
        f"nothing changed; to recover the range: lognode range recover {options.range} "
        f"--from {survivor} --accept-loss"
    )


def warnings(told: Mapping[str, Any], survivor: int | None, now_ms: int) -> Iterator[str]:
    """Yield the consequences of continuing from the survivor, one per line."""
    members = told["members"]
    there = [member["node"] for member in members if member["answers"]]
    yield (
        f"range {told['range']} of log {told['log']}, generation {told['generation']}: "
        f"{len(there)} of its {len(members)} members answer"
    )
    if told["proposed"] is not None:
        yield (
            f"node {told['proposed']} has the longest log of the members that answer: recover "
            f"from node {told['proposed']}"
        )
    if told["refused"] is not None:
        return
    others = ", ".join(str(member["node"]) for member in members if member["node"] != survivor)
    chosen = next((member for member in members if member["node"] == survivor), None)
    if chosen is None or not chosen["answers"]:
        yield f"node {survivor} does not report the end of its log"
        return
    last = "the log has no record"
    if chosen["last_seq"]:
        when = age(now_ms - chosen["last_timestamp_ms"])
        last = f"the last known record has seq {chosen['last_seq']} and is {when} old"
    yield (
        f"possible loss: every entry acknowledged after entry {chosen['last_index']} of "
        f"term {chosen['last_term']} of node {survivor}, where only nodes {others} had the "
        f"entry; {last}"
    )
    for promise in _GONE:
        yield f"this promise ends: {promise}"
    yield f"nodes {others} delete their data of the range when they return"


VERBS = (
    Verb("range recover", "recover a range from one member after most members are lost for ever",
         _recover, _arguments, True),
)  # fmt: skip
