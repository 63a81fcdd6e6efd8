"""The simulator with consumers that append outputs: runs get along, and the check sees a defect."""

from dataclasses import replace

import pytest

from lognode.chaos.sim.deliveries import Deliveries
from lognode.chaos.sim.history import History
from lognode.chaos.sim.letters import LetterHistory
from lognode.chaos.sim.options import Options
from lognode.chaos.sim.violation import Violation
from lognode.chaos.sim.world import run_seed
from lognode.client.protocol.records import encode_batch
from lognode.raft.types import GroupId
from lognode.statemachine import commands
from lognode.statemachine.commands import Command

KEY, GID = b"0/k0", GroupId(1, 1)
BUSY = replace(
    Options(), consumers=3, outputs=True, keys=3, think_seconds=0.3,
    faults=("kill", "partition", "client", "change"), churn_seconds=1.2, groups=2, client_loss=0.2,
)  # fmt: skip


def applied(deliveries: Deliveries, index: int, begin: int, through: int, output: bytes) -> None:
    data = encode_batch([KEY], [output], producer=9, epoch=1, low=index, numbers=index, atomic=True)
    deliveries.proposed(1, KEY, 7, through)
    reply = {"status": "ok", "first_seq": 50 + index}
    payload = [1, 1, [[KEY, begin, through]], data]
    deliveries.appended(GID, index, Command(commands.GROUP_APPEND, 1, payload), reply)


@pytest.fixture
def deliveries() -> Deliveries:
    """Token 7 was given for the entries 3 and 5, of which a consumer has made an output."""
    found = Deliveries(LetterHistory(History()))
    found.chose(KEY, 7, [3, 5])
    found.gave(KEY, 7, was_acked=False)
    found.makes(b"out", [3, 5])
    return found


def test_S8_an_output_comes_with_the_acknowledgement_of_its_entries(deliveries: Deliveries) -> None:
    applied(deliveries, 1, 2, 6, b"out")
    assert deliveries.acked == {(KEY, 3), (KEY, 5)}
    assert deliveries.outputs == 1
    applied(deliveries, 1, 2, 6, b"out")  # as another member applies the entry
    assert deliveries.outputs == 1


@pytest.mark.parametrize(("begin", "through"), [(4, 6), (2, 5)])
def test_S8_an_output_of_entries_that_are_done_without_it_is_found(
    deliveries: Deliveries, begin: int, through: int
) -> None:
    with pytest.raises(Violation, match="done without it"):
        applied(deliveries, 1, begin, through, b"out")


def test_consumers_append_outputs_through_faults_alike_in_each_run() -> None:
    first = run_seed(3, BUSY)
    assert first.violation is None, first.detail
    assert first.outputs > 0
    assert run_seed(3, BUSY).trace == first.trace
