"""A broken invariant in apply ends the node; it is not tried again (hole 24)."""

import asyncio
from pathlib import Path

import pytest
from storage_node import StorageNode, descriptor, numbered_batch

from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.invariants import InvariantError
from lognode.raft.types import LogEntry
from lognode.statemachine.range_state import Base


def test_hole_24_a_broken_apply_ends_the_node_and_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        node = StorageNode(tmp_path)
        await node.start()
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        await replica.append(numbered_batch(1, [b"a"]))
        applied, tried = replica.applied_index, []

        def broken(entry: LogEntry) -> None:
            tried.append(entry.index)
            raise InvariantError("two entries with one seq")

        monkeypatch.setattr(replica, "apply", broken)
        waiting = replica.append(numbered_batch(2, [b"a"]))
        for _ in range(1_000):
            if node.failure is not None:
                break
            await asyncio.sleep(0.005)
        assert isinstance(node.failure, InvariantError)
        assert tried == [applied + 1]
        assert replica.applied_index == applied
        assert not waiting.done(), "it was acknowledged"
        node.stop()
        with pytest.raises(LognodeError) as caught:
            await waiting
        assert caught.value.outcome == "unknown"

    asyncio.run(main())
