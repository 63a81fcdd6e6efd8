"""What works behind the node's back gives way to it."""

import os
from pathlib import Path

from lognode.client.records import encode_batch
from lognode.statemachine import background
from lognode.statemachine.builder import Builder
from lognode.statemachine.segment_writer import Source


def niceness_of_a_build(builder: Builder, path: Path) -> int:
    """Above that of this process."""
    record = encode_batch([b"k"], [b"v"], producer=1, epoch=1, low=1, numbers=1)
    builder.build(path, 1, [Source(record, None, 1_000)])
    process = builder._process
    assert process is not None
    return os.getpriority(os.PRIO_PROCESS, process.pid) - os.getpriority(os.PRIO_PROCESS, 0)


def test_the_builder_gives_way_to_the_node_until_memory_is_scarce(tmp_path: Path) -> None:
    builder = Builder()
    try:
        assert niceness_of_a_build(builder, tmp_path / "1") > 0
        builder.urgent = True
        assert niceness_of_a_build(builder, tmp_path / "2") == 0
        assert niceness_of_a_build(builder, tmp_path / "3") == 0
        builder.urgent = False
        assert niceness_of_a_build(builder, tmp_path / "4") > 0
    finally:
        builder.stop()


def test_a_builder_that_appends_wait_for_gives_way_to_nobody_or_is_the_one_there_is(
    tmp_path: Path,
) -> None:
    """At the seal of a range on a busy machine: it took 4.5 s to begin, for 190 KB."""
    builder = Builder()
    try:
        builder.hurried = True
        assert niceness_of_a_build(builder, tmp_path / "1") == 0
        first = builder._process
        builder.hurried = False
        assert niceness_of_a_build(builder, tmp_path / "2") > 0
        assert builder._process is not first
        second = builder._process
        builder.hurried = True
        assert niceness_of_a_build(builder, tmp_path / "3") > 0
        assert builder._process is second
        builder.urgent = True
        assert niceness_of_a_build(builder, tmp_path / "4") == 0
    finally:
        builder.stop()


def test_a_child_hears_no_ctrl_c_and_its_session_gives_way() -> None:
    """Where the kernel weighs sessions against each other, niceness counts within one only."""
    child = background.spawn("lognode.statemachine.builder", gives_way=True)
    try:
        assert os.getsid(child.pid) == child.pid != os.getsid(0)
        weight = Path(f"/proc/{child.pid}/autogroup")
        if weight.exists():
            assert weight.read_text("ascii").split()[-1] == "10"
    finally:
        child.kill()
        child.communicate()
