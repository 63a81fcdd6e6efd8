"""What a read waits for before it is answered."""

from lognode.node.serving.read_wait import BARRIER, wait_before


def test_S7_a_linearizable_read_waits_for_a_leader_whatever_is_applied() -> None:
    assert wait_before("linearizable", 0, 9) == BARRIER
    assert wait_before("linearizable", 12, 9) == BARRIER


def test_S7_a_prefix_read_waits_for_what_its_session_has_seen() -> None:
    assert wait_before("prefix", 10, 9) == 10
    assert wait_before("prefix", 9, 9) == 0
    assert wait_before("prefix", 0, 9) == 0
