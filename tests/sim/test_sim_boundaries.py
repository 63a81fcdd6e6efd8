"""A node dies before each of its disk operations in turn, and nothing is lost and all converges."""

import pytest

from lognode.chaos.sim import boundaries


@pytest.mark.slow
def test_S1_S2_S8_x2_x6_L2_a_node_dies_at_every_boundary() -> None:
    """All three ways at each boundary, by hand: `lognode-chaos sim --boundaries`."""
    whole = boundaries.whole()
    assert whole.violation is None, whole.violation
    # All that can go wrong half-way is in the scenario.
    assert min(whole.checkpoints, whole.bases, whole.splits, whole.joins) >= 1
    assert whole.acked >= 20
    points = list(boundaries.points(sampled=True))
    failed = [str(point) for point in points if point.outcome.violation is not None]
    print(f"{points[-1].operation} boundaries, {len(points)} runs")
    assert not failed, "\n".join(failed)
    assert points[-1].operation >= 100
    for how in boundaries.PASSES:
        assert sum(point.how == how for point in points) >= points[-1].operation // 3
    # Each of them did die where it should, and some of them again in the recovery.
    assert any(point.outcome.crashes == 2 for point in points)
