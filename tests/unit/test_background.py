"""What works behind the node's back gives way to it."""

import os
import time
from pathlib import Path

import pytest

from lognode.client.protocol.records import encode_batch
from lognode.statemachine import background
from lognode.statemachine.builder import Builder
from lognode.statemachine.segment_writer import Source


def worked_by_niceness(builder: Builder, path: Path, *, gives_way: bool) -> dict[int, int]:
    """Nanoseconds of a build, by how nice a thread is above this process."""
    keys = [b"%016d" % (n * 7_919 % 100_000) for n in range(100_000)]
    records = encode_batch(keys, keys, producer=1, epoch=1, low=1, numbers=1)
    builder.build(path, 1, [Source(records, None, 1_000)], gives_way=gives_way)
    process = builder._process
    assert process is not None
    own = os.getpriority(os.PRIO_PROCESS, 0)
    found: dict[int, int] = {}
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        nice = os.getpriority(os.PRIO_PROCESS, int(task.name)) - own
        worked_ns = int((task / "schedstat").read_text("ascii").split()[0])
        found[nice] = found.get(nice, 0) + worked_ns
    return found


@pytest.mark.slow
def test_the_builder_gives_way_to_the_node_but_where_appends_wait_for_it(tmp_path: Path) -> None:
    """The one that there was went on giving way at the seal of a range: 1.4 s for 800 KB."""
    builder = Builder()
    try:
        calm = worked_by_niceness(builder, tmp_path / "1", gives_way=True)
        assert calm[10] > 20_000_000
        first = builder._process
        eager = worked_by_niceness(builder, tmp_path / "2", gives_way=False)
        assert eager[0] - calm[0] > 20_000_000
        assert eager[10] - calm[10] < 5_000_000
        again = worked_by_niceness(builder, tmp_path / "3", gives_way=True)
        assert again[10] - eager[10] > 20_000_000
        assert builder._process is first
    finally:
        builder.stop()


def test_a_child_hears_no_ctrl_c_and_its_session_gives_way() -> None:
    """Where the kernel weighs sessions against each other, niceness counts within one only."""
    child = background.spawn("lognode.statemachine.builder", gives_way=True)
    try:
        assert os.getsid(child.pid) == child.pid != os.getsid(0)
        assert weight_of_session(child.pid) in (None, 10)
    finally:
        child.kill()
        child.communicate()


def test_the_weight_of_its_session_follows_what_it_builds(tmp_path: Path) -> None:
    builder = Builder()
    record = encode_batch([b"k"], [b"v"], producer=1, epoch=1, low=1, numbers=1)
    try:
        for n, gives_way in enumerate((True, False, True)):
            builder.build(tmp_path / str(n), 1, [Source(record, None, 1)], gives_way=gives_way)
            assert builder._process is not None
            expected = 10 if gives_way else 0
            assert weight_of_session(builder._process.pid) in (None, expected)
            time.sleep(0.2)  # the kernel takes no more than ten changes a second
    finally:
        builder.stop()


def weight_of_session(pid: int) -> int | None:
    """None where sessions are not weighed."""
    weight = Path(f"/proc/{pid}/autogroup")
    return int(weight.read_text("ascii").split()[-1]) if weight.exists() else None
