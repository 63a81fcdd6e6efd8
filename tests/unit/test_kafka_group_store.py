"""Which groups the log of consumer groups lists, and what a list asks of the cluster."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.key_partitions import prefix
from lognode.client.protocol.reads import KEYS, LATEST
from lognode.node.kafka import group_store
from lognode.node.kafka.group_store import GroupStore

LIVE, REMOVED = b"a head", None


class Log:
    """A log with the heads of groups in partition 3; None: a tombstone."""

    def __init__(self, heads: dict[bytes, bytes | None], page: int = 1_000) -> None:
        front = prefix(3) + b"g"
        self.heads = {front + name: value for name, value in sorted(heads.items())}
        self.page = page
        self.read: list[bytes] = []
        self._routes = SimpleNamespace(partitions=64)

    async def of_groups(self, _: float) -> Any:
        return SimpleNamespace(routes=self._routes)

    async def call(self, _: Any, key: bytes, operation: Any, body: Any, **__: Any) -> Any:
        if operation is LATEST:
            self.read.append(key)
            return {"seqs": [5], "values": [self.heads[key]]}, None
        assert operation is KEYS, "a list only reads"
        after = body["start_after"] or b""
        keys = [each for each in self.heads if each.startswith(body["prefix"]) and each > after]
        found = keys[: min(body["limit"], self.page)]
        more = len(keys) > len(found)
        return {"keys": found, "more": more, "after": found[-1] if more else None}, None


def listed(log: Log, *known: str) -> list[str]:
    store: Any = log
    return asyncio.run(GroupStore(store, store).groups([2, 3, 4], known, 1e9))


def test_a_list_has_no_removed_groups_and_leaves_no_floors() -> None:
    log = Log({b"gone": REMOVED, b"held": LIVE, b"here": LIVE})
    assert listed(log) == ["held", "here"]
    log.read.clear()
    assert listed(log, "held") == ["held", "here"]
    assert log.read == [prefix(3) + b"ggone", prefix(3) + b"ghere"], "a known group is not read"


def test_many_removed_groups_do_not_hide_those_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_store, "LISTED_MAX", 5)
    removed = {b"a%03d" % number: REMOVED for number in range(100)}
    living = {b"b%03d" % number: LIVE for number in range(4)}
    log = Log(removed | living, page=3)
    assert listed(log) == [f"b{number:03d}" for number in range(4)]
    assert len(listed(Log(removed | {b"b%03d" % number: LIVE for number in range(9)}))) == 5
