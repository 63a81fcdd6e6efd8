"""What no part of a node handles ends it, and is not passed over in silence."""

import asyncio
from pathlib import Path

import pytest
from storage_node import StorageNode, descriptor, numbered_batch

from lognode.client.invariants import InvariantError
from lognode.node import daemon
from lognode.node.config import Config
from lognode.node.daemon import Node
from lognode.statemachine.range_state import Base


def test_L4_a_round_that_cannot_be_made_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop logged it; the appends of the round were never answered."""

    async def main() -> None:
        node = StorageNode(tmp_path)
        await node.start()
        try:
            replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
            assert replica is not None
            await node.leading(replica)
            broken = RuntimeError("a bug")

            def propose_gathered() -> None:
                raise broken

            monkeypatch.setattr(replica, "propose_gathered", propose_gathered)
            replica.append(numbered_batch(1, [b"a"]))
            async with asyncio.timeout(10):
                while node.failure is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            assert node.failure is broken
        finally:
            node.stop()

    asyncio.run(main())


@pytest.mark.parametrize("error", [InvariantError("a bug"), ConnectionError("a peer")])
def test_a_broken_invariant_that_nobody_waits_for_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(daemon, "_end", codes.append)
    monkeypatch.setattr(daemon, "LmdbMeta", _stop_here)

    async def main() -> None:
        node = Node(Config(data=tmp_path))
        with pytest.raises(_StopHere):
            await node._start()

        def broken() -> None:
            raise error

        asyncio.get_running_loop().call_soon(broken)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert codes == ([1] if isinstance(error, InvariantError) else [])


class _StopHere(Exception):
    """The start goes no further."""


def _stop_here(path: Path) -> None:
    raise _StopHere
