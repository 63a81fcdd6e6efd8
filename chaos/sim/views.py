"""Waits for views in the simulator: who waits, the leader that tells, and the check of its answers.

After some acknowledged appends the client asks the leader of the range to wait until the group, or
the cursor of the keys, has acknowledged the entry. The leader looks at its applied state by the
rules of a node (`node.serving.view_service`). At the moment at which a leader says `seen`, a
majority must have the acknowledgement of the entry (G7): `deliveries` knows the applied ones of the
group. What a cursor has seen is a position that no later read may show lower (`cursors`).
"""

import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...node.serving.view_service import seen_by_cursor, seen_by_group
from ...statemachine.groups.selection import Selection
from .clients import BACKOFF_S, TIMEOUT_S, Door, Reply
from .clock import Scheduler
from .cursors import CursorHistory
from .deliveries import Deliveries
from .group_leader import GROUP
from .options import Options
from .violation import Violation

if TYPE_CHECKING:
    from .replica import Answer, RangeReplica

_ASKS: Final = 0.5
"""The share of the acknowledged records that somebody waits for."""
_WAITS_S: Final = (0.0, 0.3, 1.0, 3.0)
_LOOK_S: Final = 0.02
"""How often a leader looks at its waits while nothing is applied."""


@dataclass(slots=True)
class ViewHistory:
    """What leaders have said of views."""

    deliveries: Deliveries
    cursors: CursorHistory
    seen: int = 0
    unseen: int = 0

    def told(self, cursor: str, key: bytes, seq: int) -> None:
        """Check that a view has acknowledged the entry; without a cursor the view is the group."""
        self.seen += 1
        if cursor and self.cursors.tried(cursor, key) <= seq:
            raise Violation("G7", "a cursor has seen an entry that nobody committed",
                            cursor=cursor, key=key, seq=seq)  # fmt: skip
        if cursor:
            self.cursors.owes(cursor, key, seq + 1)
        elif (key, seq) not in self.deliveries.acked:
            raise Violation("G7", "a group has seen an entry whose acknowledgement no majority has",
                            key=key, seq=seq)  # fmt: skip


@dataclass(slots=True)
class _Wait:
    """One request: `cursor` is empty for the group."""

    cursor: str
    key: bytes
    seq: int
    until: float
    answer: "Answer"


class ViewLeader:
    """The waits at one member of a range."""

    def __init__(self, replica: "RangeReplica") -> None:
        self._replica = replica
        self._waits: list[_Wait] = []
        self._nothing_until = (-1, 0.0)
        """No wait is over while this index is the applied index, until this time."""

    def request(self, body: dict[str, Any], answer: "Answer") -> None:
        """Answer when the view has seen the entry, or after the time, as leader."""
        until = self._now + body["wait_s"]
        self._waits.append(_Wait(body["cursor"], body["key"], body["seq"], until, answer))
        self._nothing_until = (-1, 0.0)
        self.look()
        if len(self._waits) == 1:
            self._replica.host.later(_LOOK_S, self._look_again)

    def look(self) -> None:
        """Answer the waits that are over; all of them, when this member tells nothing any more."""
        if not self._waits:
            return
        replica, waits = self._replica, self._waits
        tells = replica.leads and not replica.is_sealed
        applied, until = self._nothing_until
        if tells and replica.applied_index == applied and self._now < until:
            return
        self._waits = []
        for wait in waits:
            if not tells:
                wait.answer({"status": "error", "hint": replica.group.leader})
            elif self._has_seen(wait):
                replica.host.world.views.told(wait.cursor, wait.key, wait.seq)
                wait.answer({"status": "ok", "seen": True})
            elif self._now >= wait.until:
                wait.answer({"status": "ok", "seen": False})
            else:
                self._waits.append(wait)
        first_s = min((wait.until for wait in self._waits), default=0.0)
        self._nothing_until = (replica.applied_index, first_s)

    @property
    def _now(self) -> float:
        return self._replica.host.world.clock.now

    def _look_again(self) -> None:
        self.look()
        self._replica.host.pump()
        if self._waits:
            self._replica.host.later(_LOOK_S, self._look_again)

    def _has_seen(self, wait: _Wait) -> bool:
        state = self._replica.store.state
        if wait.cursor:
            return seen_by_cursor(state, wait.cursor, Selection(), wait.key, wait.seq)
        return seen_by_group(state, GROUP, Selection(), wait.key, wait.seq)


@dataclass(slots=True)
class ViewAskers:
    """Waits for entries that clients have appended: each asks until its time is over."""

    options: Options
    door: Door
    scheduler: Scheduler
    rng: random.Random
    history: ViewHistory
    _hints: dict[bytes, int] = field(default_factory=dict)

    def appended(self, key: bytes, seq: int) -> None:
        """Wait for the entry, as its client, sometimes."""
        if self.rng.random() >= _ASKS:
            return
        kinds = ["group"] * bool(self.options.consumers) + ["cursor"] * self.options.cursors
        cursor = "" if self.rng.choice(kinds) == "group" else f"cursor{key.split(b'/')[0].decode()}"
        body = {"op": "views", "key": key, "seq": seq, "cursor": cursor}
        self._ask(body, self.scheduler.clock.now + self.rng.choice(_WAITS_S))

    def _ask(self, body: dict[str, Any], until: float) -> None:
        key, is_open = body["key"], [True]
        node = self._hints.get(key) or self.rng.randint(1, self.options.nodes)
        left_s = max(0.0, until - self.scheduler.clock.now)

        def ended(hint: int | None) -> None:
            is_open[0] = False
            self._hints.pop(key, None)
            if hint is not None:
                self._hints[key] = hint
            if self.scheduler.clock.now < until:
                self.scheduler.after(self.rng.uniform(*BACKOFF_S), partial(self._ask, body, until))
            else:
                self.history.unseen += 1

        def answered(reply: Reply) -> None:
            if not is_open[0]:
                return
            if reply["status"] != "ok":
                ended(reply.get("hint"))
                return
            is_open[0] = False
            self._hints[key] = node
            self.history.unseen += not reply["seen"]

        def timed_out() -> None:
            if is_open[0]:
                ended(None)

        self.door.request(node, {**body, "wait_s": left_s}, answered)
        self.scheduler.after(left_s + TIMEOUT_S, timed_out)
