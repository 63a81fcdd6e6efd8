"""A view is only seen by metadata as new as the request: a client may remember an id too long."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.errors import NotFound
from lognode.client.protocol.views import VIEWS_WAIT
from lognode.node.replicas.view_waits import ViewWaits
from lognode.node.serving.fresh_metadata import FreshMetadata
from lognode.node.serving.view_service import ViewService
from lognode.partitions.views import ViewRecord


class Controller:
    """Answers after a while, or not at all; `change` is what an answer brings."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = True
        self.change: Callable[[], None] = lambda: None

    async def confirmed(self) -> bool:
        self.asked += 1
        await asyncio.sleep(0.01)
        if self.answers:
            self.change()
        return self.answers


def run(test: Callable[[Controller], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(20):
            await test(Controller())

    asyncio.run(whole())


def test_a_question_serves_all_requests_that_came_before_it() -> None:
    async def test(controller: Controller) -> None:
        fresh = FreshMetadata(controller.confirmed)
        now = asyncio.get_running_loop().time
        await asyncio.gather(*(fresh.since(now()) for _ in range(50)))
        asked = controller.asked
        assert asked <= 2, "the first question may have begun before some of them came"
        await fresh.since(now() - 60)
        assert controller.asked == asked, "the metadata are newer than this"
        first = asyncio.create_task(fresh.since(now()))
        await asyncio.sleep(0.005)
        later = [asyncio.create_task(fresh.since(now())) for _ in range(50)]
        await first
        assert not any(task.done() for task in later), "the question began before these came"
        await asyncio.gather(*later)
        assert controller.asked == asked + 2

    run(test)


def test_a_question_without_an_answer_is_asked_again() -> None:
    async def test(controller: Controller) -> None:
        fresh = FreshMetadata(controller.confirmed)
        controller.answers = False
        wait = asyncio.create_task(fresh.since(asyncio.get_running_loop().time()))
        await asyncio.sleep(0.3)
        assert not wait.done()
        assert controller.asked >= 2
        controller.answers = True
        await wait

    run(test)


class Service:
    """A service of waits on a leader whose cursor `c` has passed every entry."""

    def __init__(self, controller: Controller) -> None:
        record = ViewRecord(
            view_id=1, log_id=1, name="search", group_id=0, cursor="c", prefix=b"", policy="wait",
            created_ms=0,
        )  # fmt: skip
        self.views = {1: record}
        nowhere = SimpleNamespace(at=lambda _: SimpleNamespace(before=0))
        marks = SimpleNamespace(compactions=nowhere, snapshots=SimpleNamespace(at=lambda _: 0))
        state = SimpleNamespace(
            cursors=SimpleNamespace(found={"c": SimpleNamespace(position=lambda _: 100)}),
            removal=SimpleNamespace(view=SimpleNamespace(floor=lambda _: 0), marks=marks),
        )

        def broke(error: BaseException) -> None:
            raise AssertionError from error

        replica = SimpleNamespace(
            descriptor=SimpleNamespace(span={b"k"}, log_id=1), state=state,
            view_waits=ViewWaits(broke), check_tells_views=lambda: None, count_read=lambda: None,
        )  # fmt: skip
        data: Any = SimpleNamespace(find=lambda _: replica)
        metadata: Any = SimpleNamespace(views=self.views, groups={})
        self.service = ViewService(
            data=data, metadata=lambda: metadata, confirmed=controller.confirmed,
            has_consumers=lambda *_: False,
        )  # fmt: skip

    async def wait(self, wait_ms: int) -> list[int]:
        body = VIEWS_WAIT.request.check(
            {"range": 1, "generation": 1, "keys": [[b"k", 5]], "views": [1], "wait_ms": wait_ms}
        )

        async def room() -> None:
            return None

        answer = await self.service.paid_handlers[VIEWS_WAIT](body, room)  # type: ignore[arg-type]
        found: list[int] = answer["seen"]
        return found


def test_G7_a_view_is_seen_once_the_controller_says_that_it_exists() -> None:
    async def test(controller: Controller) -> None:
        service = Service(controller)
        assert await service.wait(1_000) == [1]
        assert controller.asked == 1

    run(test)


def test_G7_a_view_that_only_this_node_takes_for_existing_is_not_seen() -> None:
    """A client that remembered the id was told of the earlier view of the name, for as long as the
    leader had not heard of its end."""

    async def test(controller: Controller) -> None:
        service = Service(controller)
        controller.change = service.views.clear
        with pytest.raises(NotFound, match="was deleted"):
            await service.wait(1_000)

    run(test)


def test_G7_no_view_is_seen_while_the_controller_does_not_answer() -> None:
    async def test(controller: Controller) -> None:
        service = Service(controller)
        controller.answers = False
        began = asyncio.get_running_loop().time()
        assert await service.wait(100) == [0]
        assert 0.1 < asyncio.get_running_loop().time() - began < 5
        wait = asyncio.create_task(service.wait(10_000))
        await asyncio.sleep(0.2)
        controller.answers = True
        assert await wait == [1]

    run(test)
