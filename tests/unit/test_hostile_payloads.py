"""What a stranger sends costs the stranger before it costs the node: memory and time of the worst
payloads, legal or not.

The bounds are several times what is measured on an idle machine, and a tenth of what the same
payloads took before they were checked.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import hostile_payloads as payloads
import pytest

STEP_S = 0.03
"""Processor time of a step: 2 to 5 ms on an idle machine."""


def measured(kind: str, table: dict[str, Callable[[], bytes]], name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, payloads.__file__, kind],
        input=table[name](), capture_output=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    print(name, found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", payloads.BATCHES)
def test_a_batch_that_would_take_much_memory_or_time_is_refused_before(name: str) -> None:
    found = measured("batch", payloads.BATCHES, name)
    assert found["outcome"] == "corrupt"
    assert found["kib"] < 16 * 1024
    assert found["longest_s"] < STEP_S


@pytest.mark.parametrize("name", payloads.LEGAL_BATCHES)
def test_the_longest_legal_batch_is_checked_in_short_steps(name: str) -> None:
    found = measured("batch", payloads.LEGAL_BATCHES, name)
    assert found["outcome"] == "taken"
    assert found["longest_s"] < STEP_S


@pytest.mark.slow
@pytest.mark.parametrize("name", payloads.FRAMES)
def test_a_frame_that_would_take_much_memory_or_time_breaks_the_stream(name: str) -> None:
    found = measured("frame", payloads.FRAMES, name)
    assert found["outcome"] == "broken"
    assert found["kib"] < 96 * 1024
    assert found["longest_s"] < STEP_S


@pytest.mark.parametrize("name", payloads.LEGAL_FRAMES)
def test_the_longest_legal_frame_is_unpacked_in_short_steps(name: str) -> None:
    found = measured("frame", payloads.LEGAL_FRAMES, name)
    assert found["outcome"] == "taken"
    assert found["longest_s"] < STEP_S
