"""Decoders of bytes from the network, fed with damaged inputs: only the errors that they document.

`scripts/fuzz` runs the same targets for a given time; what it found is in the corpus.
"""

import gc
import os
import random
import re
import time
from pathlib import Path

import fuzz_targets as fuzz
import pytest

ROUNDS = 12_000
INPUT_S = 0.1
"""Processor time of one input, which has 64 KiB at most."""
MEMORY_KIB = 64 * 1024


def _peak_kib() -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.fixture
def _own_garbage() -> None:
    """The collector looks at what the inputs leave, and not at the objects of all tests before:
    these cost 0.2 s a pass, at whatever input the pass comes."""
    gc.collect()
    gc.freeze()


@pytest.mark.slow
@pytest.mark.usefixtures("_own_garbage")
@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_damaged_input_is_refused_as_documented_and_costs_little(name: str) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = random.Random(seed)
    target = fuzz.TARGETS[name]
    inputs = [*target.seeds(), *fuzz.kept(name)]
    for data in inputs:
        target.run(data)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what there is now
    before = _peak_kib()
    outcomes = set()
    for _ in range(ROUNDS):
        data = fuzz.mutated(rng.choice(inputs), inputs, rng)
        began = time.thread_time()
        try:
            outcomes.add(target.run(data))
        except BaseException:
            print("input", data.hex())
            raise
        assert time.thread_time() - began < INPUT_S, data.hex()
    assert _peak_kib() - before < MEMORY_KIB
    assert len(outcomes) > 1, "the inputs reach nothing"


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_valid_inputs_are_taken(name: str) -> None:
    target = fuzz.TARGETS[name]
    outcomes = list(map(target.run, target.seeds()))
    assert any(
        each.startswith(("taken", "kind", "2 nodes", "1 nodes", "Overloaded")) or "taken" in each
        for each in outcomes
    ), outcomes
