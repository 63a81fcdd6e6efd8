"""One principal cannot take all floors of a range, however often its leader changes."""

from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol.errors import Overloaded
from lognode.node.serving.floor_shares import _PASSED_MAX, FloorShares
from lognode.raft.types import GroupId
from lognode.statemachine import rules
from lognode.statemachine.removal import Removal

MOST = 1_000


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules.BY_LEVEL, 1, rules.BY_LEVEL[1]._replace(floors_max=MOST))


class Range:
    """The leader of a range, with the range's floors."""

    def __init__(self) -> None:
        self.gid = GroupId(7, 1)
        self.state = SimpleNamespace(removal=Removal())
        self.shares = FloorShares()
        self.before = 5

    @property
    def removal(self) -> Removal:
        found: Removal = self.state.removal
        return found

    def trim(self, owner: str, *keys: bytes) -> None:
        """As `data_service` does it."""
        replica: Any = self
        self.shares.take(replica, owner, keys)
        assert self.removal.raise_floors(dict.fromkeys(keys, self.before)) is None

    def fill(self, owner: str) -> int:
        """Trim keys until that is refused; how many there were."""
        for number in range(2 * MOST):
            try:
                self.trim(owner, b"%s %d" % (owner.encode(), number))
            except Overloaded:
                return number
        raise AssertionError("nothing was refused")


def test_a_principal_keeps_no_more_floors_than_it_leaves_for_others() -> None:
    range_ = Range()
    assert range_.fill("ann") == MOST // 2
    assert range_.fill("bob") == MOST // 4
    range_.trim("ann", b"ann 3")  # it has a floor already
    range_.trim("", b"somebody where nobody is known")
    with pytest.raises(Overloaded, match="the range can remember 249 more for all principals"):
        range_.trim("ann", b"one more")


def test_a_change_of_leader_lets_nobody_fill_the_range() -> None:
    range_ = Range()
    for leader in range(5):
        range_.shares = FloorShares()
        range_.fill(f"ann {leader}")
    left = MOST - range_.removal.rows
    assert left >= MOST // 64
    range_.trim("bob", b"bob's")


def test_floors_below_retention_no_longer_count() -> None:
    range_ = Range()
    assert range_.fill("ann") == MOST // 2
    range_.removal.trim_spans([(b"", None, 9)])
    assert range_.removal.floors == {}
    range_.before = 20
    assert range_.fill("bob") == MOST // 2
    range_.trim("ann", b"one more")


def test_a_repetition_counts_once_and_names_of_passed_floors_are_forgotten() -> None:
    range_ = Range()
    replica: Any = range_
    for _ in range(3 * MOST):
        range_.shares.take(replica, "ann", [b"one", b"two"])
    assert range_.shares._kept[replica]["ann"] == {b"one", b"two"}
    for number in range(4 * _PASSED_MAX):
        range_.shares.take(replica, f"principal {number % 400}", [b"%d" % number])
    held = range_.shares._kept[replica]
    assert sum(map(len, held.values())) <= _PASSED_MAX + 1
