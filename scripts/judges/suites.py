"""What a suite is, and the outcome of a run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


class Outcome(NamedTuple):
    """The tests of a run by their outcome; each failed test with what its log says."""

    passed: list[str]
    failed: dict[str, str]
    skipped: list[str]


class Suite(NamedTuple):
    """A suite of tests. `prepare` installs the suite into a folder, from `source` where no
    registry has the tests; `run` gets the folder, and the addresses of the brokers."""

    version: str
    prepare: Callable[[Path, Path | None], None]
    run: Callable[[Path, str, Mapping[str, str]], Outcome]
    left_out: Mapping[str, str]
    """The tests that are known not to pass, or that do not fit, each with the reason."""
    partitions: int = 4
    """Partitions of topics that the suite names before they exist; 0: there are no such topics."""
    nodes: int = 3
    addresses: tuple[str, ...] = ()
    """The addresses at which the suite looks for the nodes, if it takes no others."""
    advertised: tuple[str, ...] = ()
    """The addresses that the nodes give to clients, if not their own."""
