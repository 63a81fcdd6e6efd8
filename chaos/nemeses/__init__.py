"""Nemeses: packages of faults, by the names that the command line takes.

A package draws a fault from the test's random source, begins the fault, and later ends exactly that
fault. Every choice of a package (victims, links, schedule) is a pure function of the random source
and of facts about the cluster, and is tested as a pure function. `begin` and `end` only carry out
the choice.

- `package`: the interface of a package, and the parts of a test that it may break;
- `victims`: the choice of victims; `damage`: the rules that keep damage of disks fair;
- one file a package, or two of a kind.
"""

from collections.abc import Callable, Mapping
from typing import Final

from .client import Client
from .clock import Clock
from .corrupt import Corrupt
from .disk import Disk
from .package import Begun, Package, Pair, Target
from .packet import Packet
from .partition import Partition
from .power import PartKill, PauseKill, Power
from .processes import Kill, Pause
from .ranges import Range
from .slow_disk import SlowDisk
from .tier import Tier
from .upgrade import Upgrade

__all__ = ["MOUNTED", "PACKAGES", "Begun", "Package", "Pair", "Target"]

PACKAGES: Final[Mapping[str, Callable[[], Package]]] = {
    "client": Client,
    "clock": Clock,
    "corrupt": Corrupt,
    "disk": Disk,
    "kill": Kill,
    "packet": Packet,
    "part-kill": PartKill,
    "partition": Partition,
    "pause": Pause,
    "pause-kill": PauseKill,
    "power": Power,
    "range": Range,
    "slow-disk": SlowDisk,
    "tier": Tier,
    "upgrade": Upgrade,
}

MOUNTED: Final = frozenset({"power", "part-kill", "pause-kill", "slow-disk"})
"""Packages that need nodes whose disks can lose power, or be slow: mounts of `powerfs`."""
