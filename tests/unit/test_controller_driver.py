"""What the controller's leader does with the steps that follow from what it knows."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.errors import Conflict, LognodeError, NotLeader, Timeout
from lognode.node.control import controller_driver
from lognode.node.control.controller_driver import ControllerDriver
from lognode.partitions.facts import Facts
from lognode.partitions.metadata import Metadata

STEPS = [{"op": "first"}, {"op": "second"}, {"op": "third"}]


@pytest.mark.parametrize(
    ("error", "done"),
    [
        (Conflict("not now"), ["first", "second", "third"]),
        (NotLeader("any more"), ["first"]),
        (Timeout("no quorum"), ["first"]),
    ],
)
def test_L1_a_step_that_is_refused_puts_off_no_other(
    monkeypatch: pytest.MonkeyPatch, error: LognodeError, done: list[str]
) -> None:
    """One that was refused each time kept all behind it from ever being taken."""
    monkeypatch.setattr(controller_driver, "next_steps", lambda *_, **__: STEPS)
    asked: list[str] = []

    class Replica(SimpleNamespace):
        async def command(self, step: dict[str, Any]) -> None:
            asked.append(step["op"])
            self.stopped = step is STEPS[2] or len(done) == 1
            if step is STEPS[0]:
                raise error

    replica: Any = Replica(
        stopped=False, leads=True, is_sealed=False, leads_since=None, metadata=Metadata(),
        gid=(0, 1), group=SimpleNamespace(ready_to_lead=True, term=1),
    )  # fmt: skip
    asyncio.run(ControllerDriver(Facts(), lambda: 0, 0.0).run(replica))
    assert asked == done
