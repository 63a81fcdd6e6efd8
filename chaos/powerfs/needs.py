"""The requirements of the file system on the machine, checked before anything is mounted."""

import ctypes.util
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

DEVICE: Final = Path("/dev/fuse")
UNMOUNT: Final = "fusermount3"
LIBRARY: Final = "fuse3"
"""The value of FUSE_LIBRARY_NAME for mfusepy, which would choose libfuse 2 where both exist."""
_UNMOUNT_S: Final = 10.0


def missing() -> str | None:
    """Return what is missing, and what installs it; None: nothing."""
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"such disks need FUSE, but {DEVICE} is missing, or this user cannot use the device"
    if shutil.which(UNMOUNT) is None or ctypes.util.find_library(LIBRARY) is None:
        return "such disks need FUSE: install Debian's packages fuse3 and libfuse3-3"
    if importlib.util.find_spec("mfusepy") is None:
        return "such disks need FUSE: install mfusepy, as pip install 'lognode[chaos]' does"
    return None


def unmount(mount_point: Path) -> bool:
    """Unmount; return whether it was mounted and no longer is.

    A process with a file open there keeps the file.
    """
    done = subprocess.run(
        [UNMOUNT, "-u", "-z", str(mount_point)],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=_UNMOUNT_S,
    )  # fmt: skip
    return done.returncode == 0
