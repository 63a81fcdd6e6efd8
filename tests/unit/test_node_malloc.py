"""A node's blocks of memory: batches reuse pages, large blocks return to the system."""

import subprocess
import sys

import pytest

_BATCHES = """
import resource
from lognode.node.runtime.interpreter import _tune

_tune()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def batch():
    blocks = [bytearray(b"x") * (640 << 10) for _ in range(4)]
    return len(blocks)

for _ in range(20):
    batch()
before = faults()
for _ in range(200):
    batch()
print(faults() - before)
"""
_LARGE = """
from lognode.node.runtime.interpreter import _tune

_tune()
def resident_mib():
    return int(open("/proc/self/statm").read().split()[1]) >> 8

before = resident_mib()
kept = []
large = []
for _ in range(100):
    large.append(b"x" * (2 << 20))
    kept.append(b"y" * (64 << 10))
print(resident_mib() - before)
del large
print(resident_mib() - before)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the settings are those of glibc")


def run(code: str) -> list[int]:
    """Return the numbers that a process of its own prints."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return list(map(int, done.stdout.split()))


def test_batches_use_memory_that_is_there_already() -> None:
    """200 times four blocks of 640 KiB are 128,000 pages, if the system clears them anew."""
    (faults,) = run(_BATCHES)
    assert faults < 4_000


def test_large_blocks_return_to_the_system_although_small_ones_stay() -> None:
    held, left = run(_LARGE)
    assert held > 190
    assert left < 40
