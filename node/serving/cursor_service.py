"""Serve the operations of cursors on a range. The leader changes them; any member reads them.

A change is a command of the range, so that every member has the same positions at the same entry
of the Raft log. A request may have rows of keys beyond the range, which was split since: the range
takes its own, and the answer says where the others begin.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from ...client.protocol import Operation, limits
from ...client.protocol.cursors import (
    CURSOR_COMMIT,
    CURSOR_DELETE,
    CURSOR_LIST,
    CURSOR_OPEN,
    CURSOR_READ,
    CURSOR_SET,
)
from ...client.protocol.errors import (
    GenerationMismatch,
    InvalidArgument,
    Overloaded,
    Unavailable,
    Unsupported,
    from_wire,
)
from ...client.protocol.levels import CURSORS_FROM
from ...statemachine import commands
from ...statemachine.spans import Span, common, has
from ..replicas.range_replica import RangeReplica

Body = dict[str, Any]
Change = Callable[[RangeReplica, Body], Awaitable[Body]]
Read = Callable[[RangeReplica, Body], Awaitable[Body]]


class CursorChanges:
    """Changes of cursors, on the leader. `level` returns the feature level of the cluster."""

    def __init__(self, level: Callable[[], int]) -> None:
        self._level = level
        self.changes: Mapping[Operation, Change] = {
            CURSOR_OPEN: partial(self._move, commands.OPEN_CURSOR),
            CURSOR_COMMIT: partial(self._move, commands.COMMIT_CURSOR),
            CURSOR_SET: partial(self._move, commands.SET_CURSOR),
            CURSOR_DELETE: self._delete,
        }

    async def _move(self, kind: int, replica: RangeReplica, body: Body) -> Body:
        """Open, commit or set a cursor. A repetition has no further effect."""
        own = _span(replica)
        rows = [tuple(row) for row in body["spans"]]
        keys = [tuple(row) for row in body.get("keys", ())]
        begins = [row[0] for row in (*rows, *keys)]
        if not begins:
            raise InvalidArgument(
                "the request names no span and no key; give at least one of these", what="spans"
            )
        _check_first(replica, min(begins))
        payload: list[Any] = [body["cursor"], body["holder"]]
        payload.append(
            [[*part, next_] for start, end, next_ in rows if (part := common((start, end), own))]
        )
        if kind == commands.COMMIT_CURSOR:
            payload.append([[key, next_] for key, next_ in keys if has(own, key)])
        await self._propose(replica, kind, payload)
        end = own[1]
        beyond = end is not None and (
            any(until is None or until > end for _, until, _ in rows)
            or any(key >= end for key, _ in keys)
        )
        return {"end_key": end if beyond else None}

    async def _delete(self, replica: RangeReplica, body: Body) -> Body:
        """Forget a cursor. A repetition has no further effect."""
        own = _span(replica)
        _check_first(replica, body["start_key"])
        part = common((body["start_key"], body["end_key"]), own)
        if part is None:
            return {"end_key": None}
        await self._propose(replica, commands.DELETE_CURSOR, [body["cursor"], *part])
        return {"end_key": part[1] if part[1] != body["end_key"] else None}

    async def _propose(self, replica: RangeReplica, kind: int, payload: list[Any]) -> None:
        self._check_level(replica)
        if replica.proposed_bytes > limits.append_queue_bytes_max:
            raise Overloaded("the range's append queue is full", retry_after=0.05)
        reply = await replica.propose_and_wait(kind, payload)
        if reply.get("status") == "error":
            raise from_wire(reply["error"])

    def _check_level(self, replica: RangeReplica) -> None:
        """Raise an error while a member of the range may not know the commands of cursors."""
        if replica.state.level >= CURSORS_FROM:
            return
        if self._level() >= CURSORS_FROM:
            raise Unavailable(
                f"range {replica.gid.range_id} is at feature level {replica.state.level} and "
                f"follows the cluster to level {self._level()}; try again in a second",
                reason="level",
            )
        raise Unsupported(
            f"the cluster is at feature level {self._level()}; cursors need level "
            f"{CURSORS_FROM}. Run `lognode cluster finalize` when all nodes run this version"
        )


async def read(replica: RangeReplica, body: Body) -> Body:
    """Return a page of the positions of a cursor."""
    span = _asked(replica, body)
    spans, keys, after = replica.state.cursors.page(body["cursor"], span, limits.cursor_page_rows)
    return {
        "spans": [list(row) for row in spans],
        "keys": [list(row) for row in keys],
        "end_key": after if after is not None else _rest(span, body),
    }


async def list_(replica: RangeReplica, body: Body) -> Body:
    """Return a page of the names of cursors."""
    span = _asked(replica, body)
    found = replica.state.cursors.listed(span, body["after"], limits.cursors_max + 1)
    page = found[: limits.cursors_max]
    return {
        "cursors": [list(row) for row in page],
        "after": page[-1][0] if len(found) > len(page) else None,
        "end_key": _rest(span, body),
    }


READS: Final[Mapping[Operation, Read]] = {CURSOR_READ: read, CURSOR_LIST: list_}


def _span(replica: RangeReplica) -> Span:
    return replica.descriptor.span.start, replica.descriptor.span.end


def _check_first(replica: RangeReplica, key: bytes) -> None:
    if not has(_span(replica), key):
        raise GenerationMismatch(
            f"the first key is outside of range {replica.gid.range_id}",
            ranges=[replica.descriptor.to_wire()],
        )


def _asked(replica: RangeReplica, body: Body) -> Span:
    """Return the part of the span that the request names and that is the range's."""
    _check_first(replica, body["start_key"])
    asked = body["start_key"], body["end_key"]
    return common(asked, _span(replica)) or (asked[0], asked[0])


def _rest(span: Span, body: Body) -> bytes | None:
    """Return where the keys begin that were asked for and are not the range's."""
    return span[1] if span[1] != body["end_key"] else None
