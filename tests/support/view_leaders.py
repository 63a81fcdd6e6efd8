"""A client's view of a log whose leaders wait for views, in this process; see `group_leaders`."""

import asyncio
from collections.abc import Callable
from typing import Any

from lognode.client.cluster import Body, Cluster, LogRoutes
from lognode.client.protocol import Operation
from lognode.client.protocol.errors import GenerationMismatch, LognodeError, NotFound, NotLeader
from lognode.client.protocol.views import VIEW_DELETE, VIEW_LIST, VIEWS_WAIT
from lognode.client.routing import Range
from lognode.client.view_waits import Views


class ViewLeaders(Cluster):
    """Two ranges, cut at `m`, and the views `search` and `cache`. `asked` has the requests, and
    `lists` counts the requests for the names."""

    def __init__(self) -> None:
        super().__init__([])
        self.ranges = [self._range(1, 1, b"", b"m"), self._range(2, 1, b"m", None)]
        self.routes: LogRoutes = self.log("orders")
        self.routes.begin(1)
        self.views = Views(self, self.routes)
        self.rows = [_row(1, "search", group="g"), _row(2, "cache", cursor="c", prefix=b"a")]
        """The views that are registered."""
        self.positions: dict[int, dict[bytes, int]] = {1: {}, 2: {}}
        """Of each view, by its id."""
        self.lists = 0
        self.faults: list[Callable[[Body], LognodeError | None]] = []
        self.asked: list[Body] = []
        self.moved = asyncio.Event()
        self.learn()

    def _range(self, id_: int, generation: int, start: bytes, end: bytes | None) -> Range:
        return Range(id_, generation, 1, start, end, (1, 2, 3), 1)

    def learn(self) -> None:
        self.routes.table.insert_all(self.ranges)

    def split(self, at: bytes) -> None:
        old = next(each for each in self.ranges if each.contains(at))
        place = self.ranges.index(old)
        self.ranges[place : place + 1] = [
            self._range(old.range_id, 2, old.start, at), self._range(9, 2, at, old.end),
        ]  # fmt: skip
        self.move()

    def move(self, view: int = 0, **positions: int) -> None:
        """Move positions of a view, and wake the waits."""
        self.positions[view + 1].update({key.encode(): at for key, at in positions.items()})
        self.wake()

    def wake(self) -> None:
        """Wake the waits."""
        self.moved.set()
        self.moved = asyncio.Event()

    # What the SDK uses.

    async def refresh(self, name: str, deadline: float, *, key: bytes | None = None) -> Body:
        self.learn()
        return {"ranges": [], "logs": []}

    async def call_any(
        self, operation: Operation, body: Body, *, deadline: float, waits: bool = True
    ) -> Body:
        if operation is VIEW_DELETE:
            gone = next(row for row in self.rows if row["name"] == body["name"])
            self.rows.remove(gone)
            return operation.check_answer({"id": gone["id"]})
        assert operation is VIEW_LIST
        self.lists += 1
        rows = list(self.rows)
        await asyncio.sleep(0.01)
        return operation.check_answer({"views": rows})

    def register(self, id_: int, name: str, prefix: bytes = b"") -> None:
        """Register a view, as another client would."""
        self.rows = [row for row in self.rows if row["name"] != name]
        self.rows.append(_row(id_, name, group="g", prefix=prefix))
        self.positions[id_] = {}

    async def ask(
        self, known: Range, operation: Operation, body: Body, deadline: float, *, node: int
    ) -> Body:
        assert operation is VIEWS_WAIT
        full = {"range": known.range_id, "generation": known.generation, **body}
        checked = operation.request.check(full)
        self.asked.append(checked)
        await asyncio.sleep(0)
        until = self.now() + checked["wait_ms"] / 1000
        while True:
            if self._present(known) is None:
                raise GenerationMismatch("another generation", ranges=[])
            if not {row["id"] for row in self.rows} >= set(checked["views"]):
                raise NotFound("a view of the request was deleted")
            for fault in list(self.faults):
                error = fault(checked)
                if error is not None:
                    raise error
            seen = [
                sum(
                    (self.positions[view].get(key, 0) > seq) << bit
                    for bit, view in enumerate(checked["views"])
                )
                for key, seq in checked["keys"]
            ]
            if self._is_enough(checked, seen) or self.now() >= until:
                return operation.check_answer({"seen": seen})
            try:
                async with asyncio.timeout_at(until):
                    await self.moved.wait()
            except TimeoutError:
                continue

    @staticmethod
    def _is_enough(checked: Body, seen: list[int]) -> bool:
        if not checked["together"]:
            return all(mask.bit_count() >= checked["enough"] for mask in seen)
        both = (1 << len(checked["views"])) - 1
        for mask in seen:
            both &= mask
        return both.bit_count() >= checked["enough"]

    def _present(self, known: Range) -> Range | None:
        for each in self.ranges:
            if (each.range_id, each.generation) == (known.range_id, known.generation):
                return each
        return None


def _row(id_: int, name: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": id_, "name": name, "group": None, "cursor": None, "patterns": None, "policy": "wait",
        "created_ms": 1, "prefix": b"", **fields,
    }  # fmt: skip


def no_leader(times: int) -> Callable[[Body], LognodeError | None]:
    """A fault: the first requests come to members that do not lead."""
    left = [times]

    def fault(_: Body) -> LognodeError | None:
        left[0] -= 1
        return NotLeader("another node leads", hint=None) if left[0] >= 0 else None

    return fault
