"""Wall clocks that jump and drift, by libfaketime; monotonic clocks are left alone.

libfaketime reads the time from a file, which is rewritten while the node runs. The first change of
its clock restarts a node, with the library before all others.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .package import Begun, Target
from .victims import in_words, leaders_of, pick

_LIBRARIES: Final = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)
TRUE_TIME: Final = "+0"


def library() -> Path | None:
    """Return libfaketime for programs with threads, if it is installed."""
    return next((path for path in map(Path, _LIBRARIES) if path.exists()), None)


def draw(rng: random.Random) -> tuple[str, str]:
    """Return a description, and the content of libfaketime's file: an offset and a rate."""
    offset_s = rng.choice((-1, 1)) * rng.choice((0.1, 1, 10, 100, 3_600, 2 * 86_400))
    if rng.random() < 0.3:
        rate = rng.choice((0.5, 0.9, 1.1, 2, 5))
        return f"wall clock {rate} times as fast", f"+0 x{rate}"
    return f"wall clock jumps {offset_s:+g} s", f"{offset_s:+g}"


def faked(environment: Mapping[str, str], preloaded: Path, file: Path) -> dict[str, str]:
    """Return the environment with the library, and with the file that sets the time."""
    before = environment.get("LD_PRELOAD")
    return {
        **environment,
        "LD_PRELOAD": f"{preloaded}:{before}" if before else str(preloaded),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


class Clock:
    """Sets the wall clocks of some nodes, each to a different time."""

    name = "clock"

    def __init__(self) -> None:
        self._wrong: list[int] = []

    def missing(self) -> str | None:
        """Return what installs libfaketime, if it is missing."""
        if library() is None:
            return "the clock nemesis needs libfaketime: install Debian's package faketime"
        return None

    async def begin(self, target: Target) -> Begun | None:
        """Change the clocks of one node, a minority, a majority, all or the leaders."""
        who = target.rng.choice(("one", "minority", "majority", "all", "leaders"))
        self._wrong = pick(target.rng, who, target.nodes.numbers, await leaders_of(target))
        said = []
        for number in self._wrong:
            await prepare(target, number)
            words, text = draw(target.rng)
            set_clock(target, number, text)
            said.append(f"{words} on node {number}")
        return f"clocks of {in_words(who)}: {', '.join(said)}", self._wrong.copy()

    async def end(self, target: Target) -> None:
        """Set the clocks to the true time at once."""
        for number in self._wrong:
            set_clock(target, number, TRUE_TIME)
        self._wrong = []


async def prepare(target: Target, number: int) -> None:
    """Make the node's clock settable; this restarts the node, unless it was done before."""
    node, preloaded = target.nodes[number], library()
    if preloaded is None or "FAKETIME_TIMESTAMP_FILE" in node.environment:
        return
    set_clock(target, number, TRUE_TIME)
    node.environment = faked(node.environment, preloaded, _file(target, number))
    await node.stop()
    await node.start()


def set_clock(target: Target, number: int, text: str) -> None:
    """Set the clock in libfaketime's words, such as `-10` or `+0 x2`.

    The file is replaced atomically, since a node may be reading it.
    """
    path = _file(target, number)
    new = path.with_suffix(".new")
    new.write_text(text + "\n")
    new.replace(path)


def _file(target: Target, number: int) -> Path:
    return target.nodes.root / f"node{number}.time"
