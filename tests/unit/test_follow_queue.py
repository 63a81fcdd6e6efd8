"""The queue of a follow: in order, bounded, and no waiting task is forgotten."""

import asyncio

from lognode.client.follow_queue import PushQueue, queued_pushes_max
from lognode.client.follow_span import FollowSpan, Push

SPAN = FollowSpan(b"", None)


def push(number: int) -> Push:
    return Push(SPAN, 0, [], number, True)


async def take(queue: PushQueue) -> int:
    while not queue.qsize():
        await queue.news()
    item = queue.get_nowait()
    assert isinstance(item, Push)
    return item.next


def test_pushes_of_several_writers_come_in_the_order_of_each_and_never_fill_the_memory() -> None:
    async def run() -> None:
        queue = PushQueue()
        most = 0

        async def write(begin: int) -> None:
            for number in range(begin, begin + 50):
                await queue.put(push(number))

        writers = [asyncio.create_task(write(begin)) for begin in (0, 100, 200)]
        found = []
        for _ in range(150):
            most = max(most, queue.qsize())
            found.append(await take(queue))
        await asyncio.gather(*writers)
        assert most <= queued_pushes_max
        for begin in (0, 100, 200):
            assert [n for n in found if begin <= n < begin + 100] == [*range(begin, begin + 50)]
        assert queue._items is None, "an empty queue keeps no list"

    asyncio.run(run())


def test_a_cancelled_task_leaves_its_item_and_its_room_to_the_others() -> None:
    async def run() -> None:
        queue = PushQueue()
        readers = [asyncio.create_task(take(queue)) for _ in range(2)]
        await asyncio.sleep(0)
        queue.put_nowait(push(1))
        readers[0].cancel()
        assert await readers[1] == 1
        for number in range(queued_pushes_max):
            queue.put_nowait(push(number))
        writers = [asyncio.create_task(queue.put(push(10 + n))) for n in range(2)]
        await asyncio.sleep(0)
        await take(queue)
        writers[0].cancel()
        await writers[1]
        assert queue.full()

    asyncio.run(run())
