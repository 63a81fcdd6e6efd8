"""The payloads of `tests/support/hostile_payloads.py`, for programs that run by themselves."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))
from hostile_payloads import BATCHES, FRAMES, batch, framed

__all__ = ["BATCHES", "FRAMES", "batch", "framed"]
