"""What the file system takes of a machine, asked before anything is mounted."""

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
"""As FUSE_LIBRARY_NAME, which mfusepy goes by: it would take libfuse 2 where both are."""
_UNMOUNT_S: Final = 10.0


def missing() -> str | None:
    """What there is not, and what installs that; None: nothing."""
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"such disks are made by FUSE, and {DEVICE} is not there, or not for this user"
    if shutil.which(UNMOUNT) is None or ctypes.util.find_library(LIBRARY) is None:
        return "such disks are made by FUSE: install Debian's packages fuse3 and libfuse3-3"
    if importlib.util.find_spec("mfusepy") is None:
        return "such disks are made by FUSE: install mfusepy, as pip install 'lognode[chaos]' does"
    return None


def unmount(mount_point: Path) -> bool:
    """Whether it was mounted and is not any more; who has a file open there keeps it."""
    done = subprocess.run(
        [UNMOUNT, "-u", "-z", str(mount_point)],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=_UNMOUNT_S,
    )  # fmt: skip
    return done.returncode == 0
