"""L1: a caller that waits at a member that is cut off is told, and only for that."""

import asyncio
import time
from collections.abc import Sequence

from lognode.node.replicas.contact_watch import ContactWatch

TIMEOUT_S = 0.15


async def some(things: Sequence[object], at_least: int = 1) -> None:
    async with asyncio.timeout(20):
        while len(things) < at_least:  # noqa: ASYNC110  a list that grows
            await asyncio.sleep(0.01)


class Contact:
    """A group as the watch sees it."""

    def __init__(self) -> None:
        self.heard_at = time.monotonic()

    @property
    def contact_age_s(self) -> float:
        return time.monotonic() - self.heard_at

    @property
    def in_contact(self) -> bool:
        return self.contact_age_s <= TIMEOUT_S


def watch(contact: Contact, lost: list[float], broken: list[BaseException]) -> ContactWatch:
    return ContactWatch(
        contact, timeout_s=TIMEOUT_S, on_lost=lambda: lost.append(contact.contact_age_s),
        on_broken=broken.append,
    )  # fmt: skip


def test_a_lost_contact_is_told_once_and_not_before_the_timeout() -> None:
    async def run() -> None:
        contact, lost, broken = Contact(), list[float](), list[BaseException]()
        watched = watch(contact, lost, broken)
        watched.begin()
        watched.begin()
        for _ in range(20):
            await asyncio.sleep(0.02)
            contact.heard_at = time.monotonic()
        assert not lost
        await some(lost)
        assert lost[0] > TIMEOUT_S
        await asyncio.sleep(3 * TIMEOUT_S)
        assert len(lost) == 1
        watched.begin()
        await some(lost, 2)
        assert not broken

    asyncio.run(run())


def test_nobody_is_told_after_the_watch_has_ended() -> None:
    async def run() -> None:
        contact, lost, broken = Contact(), list[float](), list[BaseException]()
        watched = watch(contact, lost, broken)
        watched.begin()
        watched.end()
        watched.end()
        await asyncio.sleep(2 * TIMEOUT_S)
        assert not lost

    asyncio.run(run())


def test_a_node_that_was_away_reads_first_what_came_meanwhile() -> None:
    async def run() -> None:
        contact, lost, broken = Contact(), list[float](), list[BaseException]()
        watched = watch(contact, lost, broken)
        watched.begin()
        await asyncio.sleep(0)
        time.sleep(4 * TIMEOUT_S)  # noqa: ASYNC251  the loop is held up
        await asyncio.sleep(0.01)
        assert not lost, "the timer came late"
        contact.heard_at = time.monotonic()
        await asyncio.sleep(TIMEOUT_S / 2)
        assert not lost
        await some(lost)

    asyncio.run(run())


def test_a_bug_in_a_look_ends_the_node() -> None:
    async def run() -> None:
        broken = list[BaseException]()

        def fail() -> None:
            raise RuntimeError("a bug")

        watched = ContactWatch(
            Contact(), timeout_s=TIMEOUT_S, on_lost=fail, on_broken=broken.append
        )
        watched.begin()
        await some(broken)

    asyncio.run(run())
