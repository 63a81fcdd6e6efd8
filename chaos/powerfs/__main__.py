"""`python -m lognode.chaos.powerfs FOLDER MOUNT_POINT`: one mount, until standard input ends.

The process writes `mounted`. It answers a line `cut SEED` with the losses, as `FILES NAMES`, and
ends. A line `slow HOW`, with a `Slowness` in JSON, makes the disk slow, and `fast` ends that;
neither line is answered.
"""

import argparse
import os
import random
import sys
import threading
import traceback
from pathlib import Path

from .backing import Backing
from .mount import serve
from .needs import unmount
from .pace import Slowness


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _obey(backing: Backing, mount_point: Path) -> None:
    """Obey the orders until the end of the process.

    This function has to end the process: libfuse's loop may wait for the last call of a process
    that still has a file open.
    """
    code = 1
    try:
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "cut":
                lost = backing.cut_power(random.Random(rest))
                _say(f"{lost.files} {lost.names}")
                break
            backing.pace.set(Slowness.from_line(rest) if word == "slow" else None)
        unmount(mount_point)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> int:
    """Run the mount; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m lognode.chaos.powerfs",
        description="Run a file system that loses unsynced data at a power cut, and can be slow.",
    )
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="directory that stores the content"
    )
    parser.add_argument(
        "mount_point", type=Path, metavar="MOUNT_POINT", help="empty directory for the mount"
    )
    arguments = parser.parse_args()
    backing = Backing(arguments.folder.absolute())
    mount_point = arguments.mount_point.absolute()

    def mounted() -> None:
        _say("mounted")
        threading.Thread(target=_obey, args=(backing, mount_point), daemon=True).start()

    try:
        serve(backing, mount_point, mounted)
    except RuntimeError:
        return 1  # libfuse has reported the reason
    return 0


if __name__ == "__main__":
    sys.exit(main())
