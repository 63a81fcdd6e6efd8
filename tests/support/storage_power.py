"""Cut the power of a node's storage at its disk steps, and that of its recovery, and look at all.

The scenario and what it must leave behind are those of `storage_failpoints`; the disk is the file
system that loses power, with what it keeps drawn from a seed. Run as a program:
`storage_power.py DIRECTORY SEED COUNT` takes that many of the steps, by the same seed; 0 is all.
"""

import asyncio
import logging
import random
import shutil
import sys
import time
from pathlib import Path

from storage_failpoints import (
    Failpoint,
    enumerate_failpoints,
    forked,
    recover_and_check,
    recover_killed,
    run_scenario,
)

from lognode.chaos.power_disk import PowerDisk
from lognode.statemachine import merge_plan


def cut_at(runner: asyncio.Runner, root: Path, failpoint: Failpoint, seed: int) -> str:
    """Kill there and cut, cut the recovery somewhere too, recover, check; what was lost."""
    disk = PowerDisk(root)
    rng = random.Random(seed)
    try:
        runner.run(disk.mount())
        _, told = forked(lambda pipe: run_scenario(root, failpoint, pipe))
        lost = [runner.run(disk.cut(rng.getrandbits(32)))]
        runner.run(disk.mount())
        forked(lambda pipe: recover_killed(root, ("", rng.randrange(1, 40))))
        lost.append(runner.run(disk.cut(rng.getrandbits(32))))
        runner.run(disk.mount())
        forked(lambda pipe: recover_and_check(root, told))
    except AssertionError as error:
        raise AssertionError(f"cut at {failpoint} by seed {seed}:\n{error}") from None
    finally:
        runner.run(disk.close())
        shutil.rmtree(root)
    return ", ".join(f"{each.files} files and {each.names} names" for each in lost)


def main() -> None:
    setattr(merge_plan, "_JOINED", 2)  # noqa: B010  so that the scenario needs no more flushes
    logging.disable(logging.CRITICAL)
    directory, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    began = time.monotonic()
    failpoints = enumerate_failpoints(directory / "whole")
    if count:
        failpoints = random.Random(seed).sample(failpoints, min(count, len(failpoints)))
    with asyncio.Runner() as runner:
        for number, (label, nth) in enumerate(failpoints):
            lost = cut_at(runner, directory / "data", (label, nth), seed + number)
            print(f"{seed + number} {label} #{nth}: {lost}", flush=True)
    print(f"{len(failpoints)} cuts, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
