"""Damage in a tier that no leader mends, and rules that an earlier version would drop."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tier_model import MemoryObjects

from lognode.client.protocol.errors import CorruptData, Unsupported
from lognode.node.serving.cluster_service import ClusterService
from lognode.node.tier import restoring
from lognode.node.tier.manifest import LogFacts, Manifest
from lognode.node.tier.names import Chain
from lognode.node.tier.tier_store import TierStore


def test_a_restore_says_what_a_damaged_end_of_a_generation_takes_away() -> None:
    """The chain is closed, so no leader ever publishes the promised manifest."""
    store = TierStore(objects := MemoryObjects())
    store.begin("c")
    facts = LogFacts(1, "orders", {})
    old = Manifest(Chain(1, 1), 3, facts, (b"", b"m"), {}, base=b"b", closed=True)
    new = Manifest(Chain(1, 2), 1, facts, (b"", b"m"), {})
    assert store.publish(old)
    assert store.publish(new)
    assert store.publish(Manifest(Chain(2, 1), 1, facts, (b"m", None), {}, base=b"b"))
    assert not list(restoring.logs_of(store)[0].gaps)
    content = objects.found[old.name]
    objects.put(old.name, content[:-1] + bytes([content[-1] ^ 1]), replace=True)
    with pytest.raises(CorruptData) as told:
        restoring.logs_of(TierStore(objects))
    assert f"Without {old.name} a restore lacks log orders from key" in told.value.message
    assert "restore the object from a copy" in told.value.message


@pytest.mark.parametrize("level", [3, 4])
def test_a_controller_of_an_earlier_version_is_not_asked_for_local_retention(level: int) -> None:
    """The leader would drop the rule: the log had no bound, and nobody said so."""
    service: Any = object.__new__(ClusterService)
    service._view = SimpleNamespace(metadata=SimpleNamespace(feature_level=level))
    asked = []

    async def command(body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body)
        return {}

    async def refresh() -> None:
        return None

    service.command, service.refresh = command, refresh
    bodies = (
        service.create_log({"name": "l", "creation": b"", "local_retention_bytes": 5}),
        service.alter_log({"name": "l", "changes": {"local_retention_bytes": 5}}),
    )
    for call in bodies:
        if level < 4:
            with pytest.raises(Unsupported, match="needs level 4"):
                asyncio.run(call)
        else:
            asyncio.run(call)
    asyncio.run(service.create_log({"name": "l", "creation": b""}))
    asyncio.run(service.alter_log({"name": "l", "changes": {"retention_ms": 5}}))
    assert len(asked) == (2 if level < 4 else 4)
