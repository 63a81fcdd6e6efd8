"""Decisions of operators about keys of a group, whose first attempt has no answer (S11, x18)."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from group_leaders import GroupView, lost

from lognode.client.cluster import Body
from lognode.client.protocol import Operation
from lognode.client.protocol.errors import Conflict
from lognode.client.protocol.groups import GROUP_DECIDE, GROUP_KEYS
from lognode.client.routing import Range

PARKED_AT = 5


class View(GroupView):
    """The first decision is applied, and its answer is lost if `loses`. The next is refused."""

    def __init__(self, position: int, *, loses: bool) -> None:
        super().__init__()
        self.position = position
        self.loses = loses

    async def ask(
        self, known: Range, operation: Operation, body: Body, deadline: float, *, node: int
    ) -> Body:
        if operation is GROUP_KEYS:
            rows = [[b"a", PARKED_AT, 4, 0, True, "bad"]]
            return {"rows": rows, "after": None, "applied": 1, "generation": 1}
        if operation is GROUP_DECIDE:
            if self.loses:
                self.loses = False
                raise lost()
            return {"refused": [[b"a", self.position]]}
        return await super().ask(known, operation, body, deadline, node=node)


def run(view: View, what: str, *given: Any) -> Any:
    async def whole() -> Any:
        async with view.consumer():
            pass  # which creates the group
        call: Awaitable[Any] = getattr(view.group(), what)(b"a", *given)
        return await call

    return asyncio.run(whole())


@pytest.mark.parametrize("loses", [True, False])
def test_a_skip_of_entries_that_are_passed_is_done(loses: bool) -> None:
    """By an earlier attempt, or by a consumer: nobody gets them."""
    assert run(View(8, loses=loses), "skip", 7) == 7


@pytest.mark.parametrize("loses", [True, False])
def test_a_skip_of_a_key_that_has_moved_in_part_is_refused(loses: bool) -> None:
    with pytest.raises(Conflict) as caught:
        run(View(7, loses=loses), "skip", 7)
    assert caught.value.outcome == "not_applied"


@pytest.mark.parametrize(("loses", "outcome"), [(True, "unknown"), (False, "not_applied")])
def test_a_retry_that_is_refused_may_have_been_done_before(loses: bool, outcome: str) -> None:
    with pytest.raises(Conflict) as caught:
        run(View(PARKED_AT, loses=loses), "retry")
    assert caught.value.outcome == outcome
