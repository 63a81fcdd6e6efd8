"""Quotas of stored bytes: who is told what, and what is refused."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.errors import Overloaded
from lognode.node.load import stored
from lognode.node.load.stored import Stored
from lognode.node.quota.quotas import Quotas
from lognode.partitions.facts import Facts
from lognode.partitions.model import LogRecord

QUOTAS = {"acme/": {"stored_bytes": 1_000}, "other/": {"requests": 5}}


def test_stored_bytes_of_led_ranges_are_summed_up_by_tenant() -> None:
    quotas = Quotas(lambda: 0.0)
    quotas.learn(QUOTAS)

    def replica(log_id: int, memtable: int, segments: int | None, leads: bool = True) -> Any:
        return SimpleNamespace(
            descriptor=SimpleNamespace(log_id=log_id), leads=leads,
            state=SimpleNamespace(memtable_bytes=memtable, segment_bytes=segments),
        )  # fmt: skip

    logs = {
        number: LogRecord(number, name)
        for number, name in ((1, "acme/a"), (2, "acme/b"), (3, "other/a"), (4, "alone"))
    }
    host: Any = SimpleNamespace(
        ranges=lambda: [
            replica(1, 5, 100), replica(1, 5, 100, leads=False), replica(2, 1, None),
            replica(3, 7, 0), replica(4, 9, 0), replica(99, 1, 1),
        ]
    )  # fmt: skip
    view: Any = SimpleNamespace(metadata=SimpleNamespace(logs=logs))
    sums = Stored(host, view, lambda: quotas)
    asyncio.run(sums.look())
    assert {name: tenant.held for name, tenant in quotas.tenants.items()} == {
        "acme/": 106, "other/": 7, "": 9,
    }  # fmt: skip
    assert sums.told() == {"acme/": 106}, "others have no such quota"
    host.ranges = list
    asyncio.run(sums.look())
    assert sums.told() == {}
    assert quotas.tenants["acme/"].held == 0


def test_sums_that_no_quota_limits_are_made_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_EVERY_S", 0.001)
    monkeypatch.setattr(stored, "_SHARE", 0)
    monkeypatch.setattr(stored, "_UNLIMITED_EVERY_S", 3600.0)
    quotas, looks = Quotas(lambda: 0.0), []

    def ranges() -> list[Any]:
        looks.append(asyncio.get_running_loop().time())
        return []

    async def main() -> None:
        host: Any = SimpleNamespace(ranges=ranges)
        view: Any = SimpleNamespace(metadata=SimpleNamespace(logs={}))
        running = asyncio.ensure_future(Stored(host, view, lambda: quotas).run())
        await asyncio.sleep(0.05)
        assert len(looks) == 1, "the first sums are made at once"
        quotas.learn({"other/": {"requests": 5}})
        await asyncio.sleep(0.05)
        assert len(looks) == 1
        quotas.learn(QUOTAS)
        async with asyncio.timeout(20):
            while len(looks) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        running.cancel()

    asyncio.run(main())


def test_reports_of_stored_bytes_are_summed_up_without_silent_nodes() -> None:
    facts = Facts()
    for node, at in ((1, 10.0), (2, 9.0), (3, 5.0)):
        facts.heard[node] = at
        facts.stored[node] = {"acme/": 100 * node, f"only{node}/": 1}
    assert facts.stored_in_all(10.0, 2.0) == {"acme/": 300, "only1/": 1, "only2/": 1}


def test_a_tenant_that_stores_too_much_is_refused_until_it_stores_less() -> None:
    now = [0.0]
    quotas = Quotas(lambda: now[0])
    quotas.learn(QUOTAS)
    tenant = quotas.tenant("acme/")
    quotas.learn_held({"acme/": 999, "other/": 10**9})
    tenant.check_full()
    quotas.learn_held({"acme/": 1_000})
    with pytest.raises(
        Overloaded, match=r"acme/ stores 1,000 bytes, .* allows 1,000: trim"
    ) as told:
        tenant.check_full()
    assert told.value.fields["quota"] == "stored_bytes"
    quotas.tenant("other/").check_full()
    for now[0] in (1.0, 5.0, 10.5):
        quotas.learn_held({})  # leaders change: nobody counts its ranges
        assert tenant.is_full
    for now[0] in (20.0, 31.0):
        quotas.learn_held({"acme/": 10})
    tenant.check_full()
    quotas.learn_held({"acme/": 1_000})
    quotas.learn({"acme/": {"stored_bytes": 2_000}})
    tenant.check_full()
    quotas.learn_held({"acme/": 3_000})
    assert tenant.is_full
    quotas.learn({})
    tenant.check_full()


def test_a_tenant_of_whom_nothing_was_heard_here_is_full_too() -> None:
    quotas = Quotas(lambda: 0.0)
    quotas.learn(QUOTAS)
    quotas.learn_held({"acme/": 5_000})
    with pytest.raises(Overloaded):
        quotas.tenant("acme/").check_full()
