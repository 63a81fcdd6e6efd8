"""Which process has a claim, and whether the process has ended.

Only the machine on which a process runs can tell that the process has ended. So a claim says on
which machine, in which boot of the machine and in which namespace of process ids its process runs,
and when the process began. Anywhere else nobody knows, and the time of the last renewal decides.
"""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = "/proc/self/ns/pid"
_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat, counted behind the name of the program."""
_DEAD: Final = {"Z", "X"}
_PID_MAX: Final = 1 << 30


class Owners:
    """The processes of this machine."""

    def told(self) -> dict[str, Any] | None:
        """Return what tells this process from all others, None where the system does not say."""
        with suppress(OSError, IndexError):
            pid = os.getpid()
            return {"machine": _machine(), "pid": pid, "started": _stat(pid)[_STARTED]}
        return None

    def has_ended(self, told: Any) -> bool:
        """Whether this process has surely ended. False for a process of another machine, and for
        anything that `told` never returned."""
        if not isinstance(told, Mapping):
            return False
        pid = told.get("pid")
        if type(pid) is not int or not 0 < pid < _PID_MAX:
            return False
        try:
            if told.get("machine") != _machine():
                return False
            os.kill(pid, 0)  # also finds a process that /proc hides from this user
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        except OSError:
            return False
        try:
            stat = _stat(pid)
            return stat[_STATE] in _DEAD or stat[_STARTED] != told.get("started")
        except (OSError, IndexError):
            return False


def _machine() -> str:
    """Return a name of the machine since its start, and of the namespace. Raises OSError."""
    place = f"{_BOOT.read_text('ascii').strip()} {os.readlink(_NAMESPACE)}"
    return hashlib.sha256(place.encode()).hexdigest()[:32]


def _stat(pid: int) -> list[str]:
    """Return the fields behind the name of the program. Raises OSError."""
    text = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    return text.rpartition(")")[2].split()
