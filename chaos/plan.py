"""The plan of a test: the options of one run, and their form in `test.json`."""

import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

WORKLOADS: Final = (
    "append", "follow", "register", "set", "exactly-once", "snapshot", "group", "view", "kafka",
)  # fmt: skip
KAFKA: Final = "kafka"
"""The workload of Kafka clients, of which the simulator has none."""
SIMULATED: Final = tuple(name for name in WORKLOADS if name != KAFKA)
"""The workloads that also run on virtual time."""
NEED_LEVEL: Final = frozenset({"group", "view", KAFKA})
"""Workloads that need a later feature level than that at which a cluster begins."""
STANDARD: Final = ("none", "partition", "kill+pause", "packet", "disk+corrupt", "range")
"""The sets of packages that `test-all` runs in turn; `+` joins several packages."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One test. `seed` decides all random draws; the timing depends on the machine."""

    workload: str = "append"
    nemesis: tuple[str, ...] = ()
    nodes: int = 3
    rate: float = 100.0
    """Operations a second of all clients together, without followers' deliveries; 1 to 10,000."""
    time_limit_s: float = 60.0
    nemesis_interval_s: float = 5.0
    """The length of an interval with one choice of faults."""
    seed: int = 0
    clients: int = 12
    """Client processes at the same time."""
    timeout_s: float = 5.0
    """Timeout of an operation; a longer operation ends its process."""
    source: Path | None = None
    """A folder with another build of the package `lognode`, which the nodes run."""
    earlier: Path | None = None
    """A folder with an earlier build, which the nodes run until they are upgraded."""
    flags: tuple[str, ...] = field(default=())
    """Additional flags of every node."""
    secure: bool = False
    """Whether the cluster has TLS and tokens, and strangers try to get in during the test."""
    tier: bool = False
    """Whether the nodes have a tier, from which the log is restored during the test."""
    local_retention_bytes: int | None = None
    """The rule of the logs under test, for a test with a tier."""

    @property
    def name(self) -> str:
        """The name: `append-kill+pause-3`, or `append-kill+pause-3-secure` with TLS and tokens, or
        `append-kill+pause-3-tier` with a tier, `append-kill+pause-3-tier-only` if old files
        are in the tier only."""
        more = ("-secure" if self.secure else "") + ("-tier" if self.tier else "")
        more += "" if self.local_retention_bytes is None else "-only"
        return f"{self.workload}-{'+'.join(self.nemesis) or 'none'}-{self.nodes}{more}"

    def described(self) -> dict[str, Any]:
        """Return the content of `test.json`."""
        own = asdict(self)
        own["nemesis"] = list(self.nemesis)
        own["flags"] = list(self.flags)
        for name in ("source", "earlier"):
            own[name] = None if own[name] is None else str(own[name])
        return own | {"commit": commit(self.source)}

    @classmethod
    def from_described(cls, described: Mapping[str, Any]) -> "Plan":
        """Read `described` back, as far as checkers need it."""
        own = {name: described[name] for name in cls.__slots__ if name in described}
        own["nemesis"] = tuple(own["nemesis"])
        own["flags"] = tuple(own.get("flags", ()))
        for name in ("source", "earlier"):
            own[name] = Path(own[name]) if own.get(name) else None
        return cls(**own)


def commit(source: Path | None) -> str:
    """Return the commit of the checkout that nodes run, with `+` if files differ from it.

    Without a checkout it is `unknown`.
    """
    folder = Path(__file__).resolve().parent if source is None else source
    try:
        head = _git(folder, "rev-parse", "--short", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True,
        timeout=10,
    )  # fmt: skip
    return done.stdout.strip()
