"""What a record costs of the processor, and the measure of a system's own tool."""

import os
import re
import subprocess
import sys
import time
from functools import partial

import pytest
from benchmarks.memory import own_and_files, parts
from benchmarks.peers.own_tool import OwnTool, measure
from benchmarks.processor import ProcessorWatch, children_seconds, own_seconds

BUSY = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
LINE = re.compile(r"^(\d+) records sent$")


def test_a_budget_is_what_was_used_in_the_interval() -> None:
    used = 0.0
    watch = ProcessorWatch({"client": lambda: used, "nodes": lambda: 2 * used})
    watch._times, watch._seconds = [0.0, 10.0, 20.0], {"client": [5.0, 6.0, 16.0],
                                                      "nodes": [0.0, 0.0, 30.0]}  # fmt: skip
    assert watch.seconds("client", (5.0, 12.0)) == pytest.approx(0.5 + 2.0)
    assert watch.seconds("client", (-5.0, 30.0)) == pytest.approx(11.0)
    budget = watch.budget((10.0, 20.0), 1_000_000)
    assert (budget["client us"], budget["nodes us"], budget["all us"]) == (10.0, 30.0, 40.0)
    assert budget["busy %"] == pytest.approx(100 * 40 / 10 / (os.cpu_count() or 1))


def test_the_time_of_children_that_have_ended_counts() -> None:
    own = [os.getpid()]
    before, own_before = children_seconds(own), own_seconds(own)
    with subprocess.Popen([sys.executable, "-c", BUSY + "\ninput()"], stdin=subprocess.PIPE) as one:
        with ProcessorWatch({"child": partial(own_seconds, [one.pid])}, every_s=0.01) as watch:
            # The kernel rounds each of the two times of a process down to a tick, so that 0.3 s may
            # never be told.
            while children_seconds(own) < before + 0.2:
                time.sleep(0.01)
            alive = children_seconds(own)
        assert watch.seconds("child", (0.0, time.perf_counter())) > 0
        one.communicate(b"\n")
    assert round(children_seconds(own) - alive, 6) >= 0.0, "sums of hundredths are not exact"
    assert own_seconds(own) >= own_before
    assert own_seconds([one.pid]) == 0.0


def test_a_tool_is_measured_between_its_lines() -> None:
    program = (
        "import time\nprint('hello', flush=True)\n"
        "while True:\n time.sleep(0.05)\n print('100 records sent', flush=True)"
    )
    tool = OwnTool("own tool", [sys.executable, "-c", program], LINE)
    row = measure(tool, 0.2, 0.3, lambda pid: ProcessorWatch({"client": lambda: 0.0}))
    assert row["records"] == 100 * len(row["series"])
    assert row["seconds"] >= 0.3
    assert row["records_per_second"] == pytest.approx(row["records"] / row["seconds"], rel=0.01)
    assert row["series"][0]["at_s"] >= 0.2
    assert row["client us"] == 0.0


def test_a_tool_that_ends_is_an_error_with_its_output() -> None:
    tool = OwnTool("own tool", [sys.executable, "-c", "print('no such topic')"], LINE)
    with pytest.raises(RuntimeError, match="no such topic"):
        measure(tool, 0.0, 1.0, lambda pid: ProcessorWatch({}))


def test_the_parts_of_a_nodes_memory_are_read_from_its_metrics() -> None:
    text = (
        "# HELP lognode_memtable_bytes Bytes.\nlognode_memtable_bytes 1e+06\n"
        'lognode_cached_bytes{cache="log"} 10.0\nlognode_cached_bytes{cache="blocks"} 20.0\n'
        'lognode_cached_bytes{cache="columns"} 30.0\nlognode_request_bytes{level="node"} 1.0\n'
        'lognode_request_bytes{level="peers"} 2.0\nlognode_answer_bytes{level="node"} 3.0\n'
        'lognode_answer_bytes{level="peers"} 4.0\nlognode_answer_bytes{level="principal"} 9.0\n'
    )
    assert parts(text) == {
        "memtables": 1_000_000, "log cache": 10, "blocks": 20, "columns": 30,
        "requests and answers": 10,
    }  # fmt: skip
    assert set(own_and_files()) == {"own", "files"}
