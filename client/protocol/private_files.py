"""Files that hold a secret: only their owner may read them."""

import os
import stat
from typing import TYPE_CHECKING, Final

from .errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    from pathlib import Path  # this import takes long

_OTHERS: Final = 0o077
_OWN: Final = 0o600


def read_private(path: "Path", what: str) -> bytes:
    """Return the content of a file that holds a secret; `what` names it in errors.

    Raises InvalidArgument when the file cannot be read, or when its group or others have any
    permission on it. A pipe has no such permissions and is read without the check.
    """
    try:
        with open(path, "rb") as file:
            _check(os.fstat(file.fileno()).st_mode, path, what)
            return file.read()
    except OSError as error:
        raise InvalidArgument(
            f"cannot read {what} {path}: {error.strerror}; check the path and its owner", what=what
        ) from None


def write_private(path: "Path", data: bytes, owner: "os.stat_result | None" = None) -> None:
    """Make or replace a file that only its owner may read, durably and atomically.

    `owner`: the status of another file, whose owner also owns this file when the superuser writes
    it. Raises Unavailable when the file cannot be written.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        new.unlink(missing_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWN)
        with open(fd, "wb") as file:
            if owner is not None and os.geteuid() == 0:
                os.fchown(fd, owner.st_uid, owner.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}; check the directory") from None


def _check(mode: int, path: "Path", what: str) -> None:
    if stat.S_ISREG(mode) and mode & _OTHERS:
        raise InvalidArgument(
            f"{what} {path} has mode {stat.S_IMODE(mode):04o}, and other users may use the "
            f"file; only its owner may. Run chmod 600 {path}",
            what=what,
        )
