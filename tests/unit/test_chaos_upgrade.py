"""The nemesis `upgrade`: which build a node gets, and that nothing else of a node changes."""

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.chaos.nemeses import PACKAGES
from lognode.chaos.nodes import Nodes
from lognode.chaos.plan import Plan


class Started:
    """In place of the processes: notes starts and stops."""

    def __init__(self, nodes: Nodes) -> None:
        self.events: list[tuple[str, int]] = []
        for node in nodes:
            node.stop = self._noted("stop", node.number)  # type: ignore[method-assign]
            node.start = self._noted("start", node.number)  # type: ignore[method-assign]

    def _noted(self, what: str, number: int) -> Any:
        async def done() -> int:
            self.events.append((what, number))
            return 0

        return done


@pytest.mark.parametrize("source", [None, Path("/other")])
def test_nodes_begin_with_the_earlier_build_and_change_it(
    tmp_path: Path, source: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    links: Any = None
    nodes = Nodes(tmp_path, 3, links, source=source, earlier=Path("/earlier"))
    nodes[2].environment["FAKE"] = "clock"  # of another package
    assert nodes.earlier == [1, 2, 3]
    target: Any = SimpleNamespace(nodes=nodes, rng=random.Random(5))
    started, package = Started(nodes), PACKAGES["upgrade"]()
    builds, said = [], []
    for _ in range(6):
        told = asyncio.run(package.begin(target))
        assert told is not None
        said.append(told[0])
        builds.append(len(nodes.earlier))
        (number,) = told[1]
        assert started.events[-2:] == [("stop", number), ("start", number)]
        asyncio.run(package.end(target))
    changes = [after - before for before, after in zip([3, *builds], builds, strict=False)]
    assert said == ["upgrade of a node" if by < 0 else "rollback of a node" for by in changes]
    assert set(said) == {"upgrade of a node", "rollback of a node"}
    nodes.set_build(2, earlier=False)
    own = {"FAKE": "clock"} if source is None else {"FAKE": "clock", "PYTHONPATH": "/other"}
    found = nodes[2].environment
    assert {name: found[name] for name in ("FAKE", "PYTHONPATH") if name in found} == own


def test_a_plan_keeps_the_earlier_build() -> None:
    plan = Plan(nemesis=("upgrade",), earlier=Path("/earlier"))
    assert Plan.from_described(plan.described()).earlier == plan.earlier
    assert Plan.from_described(Plan().described()).earlier is None
