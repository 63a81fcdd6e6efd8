"""Files of a base stay for as long as somebody fetches them (executions 2.18)."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.node import base_transfer
from lognode.node.base_transfer import BaseServer


def test_x2_18_progress_renews_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_transfer, "_PIN_S", 0.2)
    (tmp_path / "abc").write_bytes(b"segment")
    host: Any = SimpleNamespace(pinned={}, store=SimpleNamespace(path=lambda name: tmp_path / name))

    async def fetch_slowly() -> None:
        server = BaseServer(host)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while loop.time() - begun < 0.5:
            assert server.piece({"id": "abc", "offset": 0}) == {"data": b"segment"}
            await asyncio.sleep(0.05)
            assert host.pinned == {"abc": ["abc"]}, f"gone after {loop.time() - begun} s"
        for _ in range(200):
            if not host.pinned:
                break
            await asyncio.sleep(0.01)
        assert not host.pinned

    asyncio.run(fetch_slowly())
