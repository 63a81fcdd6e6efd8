"""When a leader knows without a question that it has led lately (G3)."""

import math
import time
from dataclasses import replace
from pathlib import Path

from storage_node import StorageNode, descriptor, numbered_batch, one_life

from lognode.statemachine.range_state import Base


def test_G3_a_committed_entry_shows_that_the_leader_led(tmp_path: Path) -> None:
    """To a request that came before the proposal, at the entry's term, and not for long."""

    async def life(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        options = replica.services.options
        replica.services.options = replace(
            options, election_timeout_min_s=60.0, election_timeout_max_s=90.0
        )
        before = time.monotonic()
        assert not replica.surely_led_since(before)
        await replica.append(numbered_batch(1, [b"a"]))
        assert replica.surely_led_since(before)
        assert not replica.surely_led_since(time.monotonic())
        term, _ = replica._confirmed
        replica._confirmed = term - 1, time.monotonic()
        assert not replica.surely_led_since(before), "an entry of another term shows nothing"
        replica._confirmed = term, time.monotonic() - 29
        assert replica.surely_led_since(-math.inf)
        replica._confirmed = term, time.monotonic() - 31
        assert not replica.surely_led_since(-math.inf), "the entry is old"

    one_life(tmp_path, life)
