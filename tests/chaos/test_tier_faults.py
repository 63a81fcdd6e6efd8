"""The faults of an object store, on a real S3 server; a live test with a tier under faults."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from lognode.chaos import store, tier_server
from lognode.chaos.links import new_links
from lognode.chaos.nemeses import tier
from lognode.chaos.plan import Plan
from lognode.chaos.runner import run_test
from lognode.chaos.tier_proxy import FAULTS, TierProxy
from lognode.chaos.tier_server import TierServer

pytestmark = pytest.mark.cluster
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=chaos/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=none"
}
"""moto looks who asks, and checks no signature."""
Act = Callable[[aiohttp.ClientSession, str, TierProxy], Awaitable[None]]


def with_server(tmp_path: Path, act: Act) -> None:
    """Run something with a server, behind the proxy at the address."""

    async def run() -> None:
        server = TierServer(tmp_path / "server.log")
        endpoint = await server.start()
        proxy = TierProxy(endpoint, random.Random(1))
        timeout = aiohttp.ClientTimeout(total=10)
        try:
            address = f"{await proxy.start()}/chaos"
            async with aiohttp.ClientSession(timeout=timeout, headers=SIGNED) as session:
                await act(session, address, proxy)
        finally:
            await proxy.stop()
            await server.stop()

    asyncio.run(run())


async def status_of(session: aiohttp.ClientSession, url: str, method: str = "GET") -> int:
    """The status of an answer that came whole."""
    async with session.request(method, url, data=b"x" * 1_000 if method == "PUT" else None) as got:
        await got.read()
        return got.status


async def names(session: aiohttp.ClientSession, address: str) -> list[str]:
    async with session.get(f"{address}?list-type=2&prefix=a") as got:
        text = await got.text()
    return [part.split("</Key>")[0] for part in text.split("<Key>")[1:]]


def test_every_fault_of_the_proxy_has_words() -> None:
    assert set(tier.WORDS) == set(FAULTS)
    assert tier_server.missing() is None


def test_each_fault_does_what_it_says(tmp_path: Path) -> None:
    async def act(session: aiohttp.ClientSession, address: str, proxy: TierProxy) -> None:
        assert await status_of(session, f"{address}/a0", "PUT") == 200
        assert await names(session, address) == ["a0"]
        for fault, is_done in (("500", False), ("lost", True), ("cut", True), ("part", False),
                               ("away", False)):  # fmt: skip
            proxy.spoil(fault, 1.0)
            url = f"{address}/a-{fault}"
            try:
                status = await status_of(session, url, "PUT")
            except aiohttp.ClientError:
                status = 0
            assert status in ((500, 503) if fault == "500" else (0,)), fault
            proxy.heal()
            assert await status_of(session, url) == (200 if is_done else 404), fault
        proxy.spoil("old", 1.0)
        assert await names(session, address) == ["a0"]
        proxy.heal()
        assert await names(session, address) == ["a-cut", "a-lost", "a0"]
        assert proxy.spoiled >= 6, "aiohttp repeats a put without an answer once"

    with_server(tmp_path, act)


def test_a_late_request_arrives_though_its_sender_has_left(tmp_path: Path) -> None:
    async def act(session: aiohttp.ClientSession, address: str, proxy: TierProxy) -> None:
        for fault, code in (("silent", 404), ("late", 200)):
            url = f"{address}/a-{fault}"
            proxy.spoil(fault, 1.0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await status_of(session, url, "PUT")
            proxy.heal()
            deadline = time.monotonic() + 20.0
            while (found := await status_of(session, url)) != code:
                assert time.monotonic() < deadline, f"{fault}: the status is {found}"
                await asyncio.sleep(0.2)

    with_server(tmp_path, act)


def test_one_of_many_conditional_puts_at_once_succeeds(tmp_path: Path) -> None:
    """moto looks and puts in two steps: without the lock of the proxy several may succeed."""

    async def act(session: aiohttp.ClientSession, address: str, proxy: TierProxy) -> None:
        for at in range(5):

            async def put(url: str = f"{address}/once{at}") -> int:
                async with session.put(url, data=b"x", headers={"If-None-Match": "*"}) as got:
                    return got.status

            assert sorted(await asyncio.gather(*(put() for _ in range(12)))) == [200] + [412] * 11

    with_server(tmp_path, act)


@pytest.mark.by_hand
def test_restores_hold_while_the_store_fails_and_leaders_die(tmp_path: Path) -> None:
    plan = Plan(
        "append", ("kill", "tier"), rate=80, time_limit_s=9, nemesis_interval_s=3, seed=4,
        tier=True,
    )  # fmt: skip
    results = asyncio.run(run_test(plan, tmp_path, new_links(), lambda line: None))
    assert results["verdict"] == "valid", results["why"]
    counts = results["checkers"]["tier"]["counts"]
    assert counts["restores"] >= 1
    assert counts["entries of the last restore"] > 50
    told = store.read(tmp_path, store.TEST)
    assert (told["tier"], told["settled"]) == (True, "")


@pytest.mark.by_hand
def test_reads_and_restores_hold_while_files_leave_the_disks_and_leaders_die(
    tmp_path: Path,
) -> None:
    plan = Plan(
        "append", ("kill", "tier"), rate=80, time_limit_s=20, nemesis_interval_s=4, seed=4,
        tier=True, local_retention_bytes=60_000,
    )  # fmt: skip
    results = asyncio.run(run_test(plan, tmp_path, new_links(), lambda line: None))
    assert results["verdict"] == "valid", results["why"]
    counts = results["checkers"]["tier"]["counts"]
    assert counts["restores"] >= 1
    assert counts["files in the tier only"] > 0
    assert store.read(tmp_path, store.TEST)["settled"] == ""
