"""Handles to a log that was deleted and created again serve the new log."""

from collections.abc import Callable

import pytest

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("other", [False, True], ids=["by this client", "by another client"])
def test_old_handles_serve_a_log_that_was_created_again(
    three: testing.LocalCluster, other: bool
) -> None:
    """They raised Unavailable for ever: what was known of the log was no longer renewed."""
    name = f"again-{other}"
    with (
        lognode.Client(three.servers, timeout=20) as client,
        lognode.Client(three.servers, timeout=20) as stranger,
    ):
        log = client.create_log(name, split_at=["m"])
        for value in (b"1", b"2", b"3"):
            log.append("k", value)
        operator = stranger if other else client
        operator.delete_log(name)
        with pytest.raises(lognode.LogNotFound):
            log.append("k", b"nobody has it", timeout=5)
        operator.create_log(name, split_at=["d", "p"])
        uses: list[Callable[[], object]] = [
            lambda: log.append("k", b"4"),
            lambda: log.append_many([("k", b"5"), ("a", b"6")]),
            lambda: log.latest("k"),
        ]
        for use in uses:
            use()
        assert [entry.value for entry in log.scan("k")] == [b"4", b"5"]
        assert log.count("k") == 2
        with log.follow(start="earliest") as feed:
            assert len(next(feed)) > 0
        assert [entry.value for entry in client.log(name).scan("k")] == [b"4", b"5"]
