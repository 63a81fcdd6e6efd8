"""When a node is ready: a new node that is short of disk is not."""

import time
from types import SimpleNamespace
from typing import Any, cast

from lognode.node.directory.disk_room import DiskRoom
from lognode.node.joining.readiness import Readiness

MIB = 1 << 20


def lacking(free: int, *next_seqs: int, **changes: Any) -> str | None:
    """Why a node with so many free bytes, and replicas with these next seqs, is not ready."""
    room = DiskRoom(1, 512 * MIB)
    room.saw(free)
    replicas = [SimpleNamespace(state=SimpleNamespace(next_seq=seq)) for seq in next_seqs]
    parts: dict[str, Any] = {
        "shutdown": SimpleNamespace(is_asked=False),
        "membership": SimpleNamespace(registered=True),
        "entrance": SimpleNamespace(accesses=SimpleNamespace(is_ready=True)),
        "heartbeat": SimpleNamespace(last_answer_at=time.monotonic()),
        "host": SimpleNamespace(ranges=lambda: replicas),
        **changes,
    }
    return Readiness(room=room, **cast(Any, parts)).lacking()


def test_a_new_node_without_room_is_not_ready_and_says_why() -> None:
    for replicas in ((), (1, 1)):
        told = lacking(100 * MIB, *replicas)
        assert told is not None
        assert f"the disk has {100 * MIB} free bytes" in told
        assert "--disk-reserve-bytes" in told
    assert lacking(600 * MIB) is None


def test_a_node_with_entries_stays_ready_without_room() -> None:
    assert lacking(100 * MIB, 1, 7) is None


def test_a_node_that_is_not_registered_is_not_ready() -> None:
    told = lacking(600 * MIB, membership=SimpleNamespace(registered=False))
    assert told == "the node is not registered with the controller yet"
