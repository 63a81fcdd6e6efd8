"""A data directory belongs to one user: directories 0700, files 0600.

The process creates its own files so. Files that an older version or a copy left open to others are
tightened at the start, with a warning, since others may have read them until then.
"""

import logging
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o077

log = logging.getLogger("lognode.data")


def tighten(root: Path, directories: Iterable[Path]) -> None:
    """Remove all permissions of the group and of others from the directories and their files.

    `directories` hold only files. In the root only files are changed. Files are checked only when a
    directory was open to others: nobody reaches files in closed directories. Files that cannot be
    changed, as on another user's disk, are logged and left.
    """
    places = [root, *directories]
    opened = [place for place in places if _is_open(place)]
    if not opened:
        return
    left = 0
    for place in places:
        for path in (place, *_files(place)):
            try:
                if _is_open(path):
                    os.chmod(path, DIRECTORY_MODE if path == place else FILE_MODE)
            except OSError:
                left += 1
    fields = {"directories": [str(place) for place in opened], "not_changed": left}
    log.warning(
        ("other users could open the data directory; the node has closed the directory to "
         "them") if not left
        else "other users can open the data directory, and this user may not change that",
        extra={"fields": fields},
    )  # fmt: skip


def _is_open(path: Path) -> bool:
    found = os.stat(path, follow_symlinks=False)
    return bool(not stat.S_ISLNK(found.st_mode) and found.st_mode & _OTHERS)


def _files(directory: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        yield from (Path(entry.path) for entry in entries if entry.is_file(follow_symlinks=False))
