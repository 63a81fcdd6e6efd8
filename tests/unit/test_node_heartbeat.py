"""What a node takes from the answers to its heartbeats."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lognode.client.protocol import Operation
from lognode.client.protocol.peers import HEARTBEAT
from lognode.node.heartbeat import Heartbeat
from lognode.node.sync_thread import SyncThread
from lognode.node.view import View
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import CONTROLLER_RANGE, NodeRecord
from lognode.statemachine.meta import LmdbMeta


class Leader:
    """The connection to the controller's leader, which has told everything before."""

    async def request(
        self, op: Operation, body: dict[str, Any], *, deadline: float
    ) -> dict[str, Any]:
        assert op is HEARTBEAT
        assert body["insecure"] is False
        answer = {"page": None, "leaders": [], "seen": [4, 7, 90], "insecure": [[2, True]]}
        return op.check_answer(answer)


def test_x29_who_answers_a_heartbeat_leads_also_where_that_was_forgotten(tmp_path: Path) -> None:
    """It is told once who leads; after a break only the hint of another node was known."""
    sync = SyncThread("files")
    meta = LmdbMeta(tmp_path / "meta", map_bytes=1 << 20)
    view = View(meta, sync, on_change=lambda: None, present=lambda _: True)
    metadata = Metadata()
    metadata.controller = replace(metadata.controller, generation=4, members=(2, 3, 5))
    for node in (1, 2, 3):
        metadata.nodes[node] = NodeRecord(node, "", "", "", node, 1, "ACTIVE")
    view.metadata = metadata
    parts: dict[str, Any] = {
        "node_id": 1, "view": view, "facts": None,
        "host": SimpleNamespace(controller=None, damaged={}), "connection": lambda _: Leader(),
        "room": SimpleNamespace(told_free=None, others={}),
        "draining": SimpleNamespace(leads_left=None),
        "large": SimpleNamespace(told=[], small=[]), "hot": SimpleNamespace(told=[]),
        "handover": SimpleNamespace(wishes=lambda _: []), "images": None,
        "exposure": SimpleNamespace(insecure=False),
        "stored": SimpleNamespace(told=dict, learn=lambda _: None),
    }  # fmt: skip
    heartbeat = Heartbeat(**parts)

    async def run() -> None:
        view.learn_leaders([(CONTROLLER_RANGE, 4, 0, 2)])
        assert view.elected(CONTROLLER_RANGE, 4) is None
        await heartbeat._ask()
        assert view.elected(CONTROLLER_RANGE, 4) == 2
        assert view.insecure == {1: False, 2: True}

    asyncio.run(run())
    sync.close()
    meta.close()
