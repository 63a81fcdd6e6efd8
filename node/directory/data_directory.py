"""A node's data directory: its layout, the lock that one process holds, and its identity.

wal/        the shared write-ahead log
meta.mdb    one LMDB environment: identity, replicas, manifests, tables
files/      immutable segments, named by content
tmp/        files being built, emptied at start; partial files that are being fetched stay
lock        held by the one process that owns the directory
admin.token the first token of the cluster, if this node founded the cluster with --auth
admin.recovery
            a request for another token, from `lognode token recover` to the next start
"""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...client.protocol.errors import Conflict, CorruptData, InvalidArgument, Unavailable
from ...client.protocol.invariants import DiskFailure
from ...statemachine.meta import MetaStore
from .private_directory import DIRECTORY_MODE, FILE_MODE, tighten

IDENTITY = "identity"
PARTIAL = "fetch-"
"""Prefix of the name of a partial file in tmp/; its content id follows."""
ADMIN_TOKEN = "admin.token"
RECOVERY = "admin.recovery"
_OURS = frozenset({
    "wal", "meta.mdb", "files", "tmp", "lock", "meta.mdb-lock", "meta.mdb.new",
    "meta.mdb.new-lock", ADMIN_TOKEN, f".{ADMIN_TOKEN}.new",
    RECOVERY, f".{RECOVERY}.new",
})  # fmt: skip
_OF_A_DISK = frozenset({"lost+found"})
"""Entries that a mounted file system always has."""
_TOLD_MAX = 3


class DirectoryInUse(Conflict):
    """Another process owns the data directory."""

    code = "DIRECTORY_IN_USE"


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of this node. The boot counter rises at every start, durably (x2.24)."""

    cluster_id: str
    node_id: int
    incarnation: int
    boot: int


class DataDirectory:
    """Paths and the lock. `open` creates missing parts; `close` releases the lock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wal = root / "wal"
        self.meta = root / "meta.mdb"
        self.files = root / "files"
        self.tmp = root / "tmp"
        self.admin_token = root / ADMIN_TOKEN
        self._lock_fd = -1

    def open(self) -> None:
        """Create the layout and take the lock.

        Raises DirectoryInUse, Unavailable, or InvalidArgument for a directory of another program.
        """
        self._check_ours()
        try:
            for path in (self.root, self.wal, self.files):
                path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, 64, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise DirectoryInUse(
                f"process {holder} uses data directory {self.root}; stop the process, or "
                "give another directory with --data"
            ) from None
        self._lock_fd = fd
        with contextlib.suppress(OSError):
            # On a full disk the lock is held all the same; only its message is less precise.
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        try:
            self._clear_tmp()
            tighten(self.root, (self.wal, self.files, self.tmp))
        except OSError as error:
            self.close()
            raise self._unusable(error) from None

    def _check_ours(self) -> None:
        """Raise InvalidArgument for a directory of another program.

        A node among the files of another program would be taken for a part of it, and be backed up
        and cleaned up with it.
        """
        try:
            there = set(os.listdir(self.root))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unusable(error) from None
        strange = sorted(there - _OURS - _OF_A_DISK)
        if strange and not there & _OURS:
            told = ", ".join(strange[:_TOLD_MAX])
            more = f" and {len(strange) - _TOLD_MAX} more" if len(strange) > _TOLD_MAX else ""
            raise InvalidArgument(
                f"{self.root} is not empty and is not the data directory of a node: the "
                f"directory contains {told}{more}; give an empty or a new directory with "
                "--data",
                what="data",
            )

    def _clear_tmp(self) -> None:
        self.tmp.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        for path in self.tmp.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif not path.name.startswith(PARTIAL):
                path.unlink()

    def _unusable(self, error: OSError) -> Unavailable:
        advice = (
            "free space on its disk, then start the node again"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else "give a directory that this user may write with --data"
        )
        return Unavailable(f"cannot use data directory {self.root}: {error.strerror}; {advice}")

    def sync(self) -> None:
        """Make the directory and its entries durable. Raises DiskFailure.

        Otherwise a power loss could remove meta.mdb or the WAL as a whole, however often they were
        synced.
        """
        for path in (self.root, self.root.absolute().parent):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                if path is not self.root and error.errno == errno.EACCES:
                    continue  # a directory that may be passed through but not read
                raise DiskFailure.of("fsync of", error, str(path)) from error

    def check_fresh(self) -> None:
        """Raise CorruptData for a directory that has a WAL but no identity.

        The identity of the node and its promises are lost, and nothing may begin on top of them
        (x2).
        """
        if any(self.wal.iterdir()):
            raise CorruptData(
                f"{self.root} contains a write-ahead log but no identity: meta.mdb is lost; "
                "restore meta.mdb, or give the node an empty directory and --join"
            )

    def close(self) -> None:
        """Release the lock."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the lock of a node's directory without writing into the directory.

    Raises DirectoryInUse, InvalidArgument for a directory without a lock file.
    """
    try:
        fd = os.open(root / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidArgument(
            f"{root} is not the data directory of a node: its lock file: {error.strerror}",
            what="DIR",
        ) from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, 64, 0).decode("ascii", "replace").strip() or "unknown"
            raise DirectoryInUse(
                f"process {holder} uses data directory {root}; stop the node first"
            ) from None
        yield
    finally:
        os.close(fd)


def load_identity(meta: MetaStore) -> Identity | None:
    """Return the stored identity, or None in a fresh directory. Raises CorruptData."""
    row = meta.get(IDENTITY)
    if row is None:
        return None
    try:
        return Identity(row["cluster"], row["node"], row["incarnation"], row["boot"])
    except (KeyError, TypeError):
        raise CorruptData("the identity row of meta is not valid") from None


def identity_row(identity: Identity) -> dict[str, dict[str, str | int]]:
    """Return the meta row that stores an identity."""
    return {
        IDENTITY: {
            "cluster": identity.cluster_id,
            "node": identity.node_id,
            "incarnation": identity.incarnation,
            "boot": identity.boot,
        }
    }


def new_cluster_id() -> str:
    """Return 128 random bits, as text."""
    return secrets.token_hex(16)


def new_incarnation() -> int:
    """Return 63 random bits, which tell one life of a data directory from another."""
    return secrets.randbits(63)
