"""An attempt to join is durable before the node asks, and the same until the answer is stored."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lognode.client.protocol.errors import Conflict, CorruptData
from lognode.node.config import Config
from lognode.node.directory import meta_keys
from lognode.node.joining import attempt, newcomer
from lognode.node.joining.attempt import Attempt
from lognode.statemachine.meta import LmdbMeta

ONE, OTHER = "1" * 16, "2" * 16


def begun(path: Path, invitation: str) -> Attempt:
    """What a process makes of the directory that begins, and is killed then."""
    meta = LmdbMeta(path)

    async def store(puts: dict[str, Any]) -> None:
        meta.commit(puts)

    try:
        return asyncio.run(attempt.begin(meta, store, invitation))
    finally:
        meta.close()


def test_a_directory_asks_again_as_the_same(tmp_path: Path) -> None:
    path = tmp_path / "meta.mdb"
    for shown in ("", ONE):
        first = begun(path, shown)
        assert first.invitation == shown
        assert begun(path, shown) == first


def test_another_invitation_is_another_attempt_and_another_directory_too(tmp_path: Path) -> None:
    found = [
        begun(tmp_path / name, shown)
        for name, shown in (("a", ONE), ("a", OTHER), ("a", ""), ("b", ONE))
    ]
    assert len({each.incarnation for each in found}) == 4
    assert len({each.process for each in found}) == 4


def test_the_attempt_is_stored_before_the_node_asks(tmp_path: Path) -> None:
    meta = LmdbMeta(tmp_path / "meta.mdb")

    async def full(_: dict[str, Any]) -> None:
        raise OSError("the disk is full")

    try:
        with pytest.raises(OSError, match="full"):
            asyncio.run(attempt.begin(meta, full, ""))
        meta.commit({meta_keys.ATTEMPT: {"incarnation": 5}})
        with pytest.raises(CorruptData, match="attempt row"):
            asyncio.run(attempt.begin(meta, full, ""))
    finally:
        meta.close()


def test_a_directory_that_has_asked_to_join_founds_nothing(tmp_path: Path) -> None:
    """The cluster may have registered the directory as one of its nodes."""
    begun(tmp_path / "meta.mdb", "")
    meta = LmdbMeta(tmp_path / "meta.mdb")

    async def store(puts: dict[str, Any]) -> None:
        meta.commit(puts)

    try:
        config = Config(data=tmp_path)
        with pytest.raises(Conflict, match="with --join as before"):
            asyncio.run(newcomer.founded(config, meta, store))
        meta.commit({meta_keys.ATTEMPT: None})
        assert asyncio.run(newcomer.founded(config, meta, store)).node_id == 1
    finally:
        meta.close()
