"""The meta store: small mutable rows, each with a checksum, changed in synced transactions.

Identity, descriptors, manifests, applied indexes and tables live here. A transaction is atomic, and
durable when `commit` returns. Every row carries a crc32c over its key and its value, so that a
flipped bit is found and not believed (promise S12, x28).
"""

import os
import struct
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import google_crc32c
import lmdb
import msgpack

from ..client.protocol import limits
from ..client.protocol.errors import CorruptData
from ..client.protocol.invariants import DiskFailure

_CRC: Final = struct.Struct(">I")
_RESERVED_BYTES: Final = 4 << 20
"""Free pages of a new environment: rows can be committed to them on a full disk."""
_RESERVE: Final = b"reserve"
_LOCK_FILE_BYTES: Final = 8192
"""More than LMDB needs; LMDB uses what is there."""


class MetaStore(Protocol):
    """Rows by text key; values are anything that msgpack packs.

    One thread calls `get` and `items`. One thread, maybe another, calls `commit`.
    """

    def get(self, key: str) -> Any | None:
        """Return the row's value, or None. Raises CorruptData."""

    def items(self, prefix: str) -> list[tuple[str, Any]]:
        """Return the rows whose key begins with the prefix, sorted by key. Raises CorruptData."""

    def commit(
        self, puts: Mapping[str, Any], deletes: Iterable[str] = (), prefixes: Iterable[str] = ()
    ) -> None:
        """Commit one transaction: first the deletes, then the puts. Blocks until it is durable.

        `deletes` are keys. `prefixes` delete all rows whose key begins with one of them.

        Raises DiskFailure, after which the process must end: the rows are the old or the new ones.
        """


class LmdbMeta(MetaStore):
    """A meta store in one LMDB environment, a file at `path`. Raises CorruptData, DiskFailure."""

    def __init__(self, path: Path, *, map_bytes: int = limits.meta_map_bytes) -> None:
        self._path = path
        _reserve_lock_file(path)
        if not path.exists():
            _make(path, map_bytes)
        try:
            self._environment = _opened(path, map_bytes)
        except lmdb.Error as error:
            if isinstance(error, lmdb.DiskError):
                raise DiskFailure(f"opening {path} failed: {error}") from error
            raise CorruptData(f"{path} cannot be opened: {error}") from None

    def get(self, key: str) -> Any | None:
        try:
            with self._environment.begin() as transaction:
                data = transaction.get(key.encode())
        except lmdb.Error as error:
            raise CorruptData(f"{self._path} cannot be read: {error}") from None
        return None if data is None else decode_row(key.encode(), data)

    def items(self, prefix: str) -> list[tuple[str, Any]]:
        begin = prefix.encode()
        found = []
        try:
            with self._environment.begin() as transaction, transaction.cursor() as cursor:
                if cursor.set_range(begin):
                    for key, data in cursor:
                        if not key.startswith(begin):
                            break
                        found.append((key.decode(), decode_row(key, data)))
        except (lmdb.Error, UnicodeDecodeError) as error:
            raise CorruptData(f"{self._path} cannot be read: {error}") from None
        return found

    def commit(
        self, puts: Mapping[str, Any], deletes: Iterable[str] = (), prefixes: Iterable[str] = ()
    ) -> None:
        try:
            with self._environment.begin(write=True) as transaction:
                for prefix in prefixes:
                    _delete_all(transaction, prefix.encode())
                for key in deletes:
                    transaction.delete(key.encode())
                for key, value in puts.items():
                    transaction.put(key.encode(), _encode(key.encode(), value))
        except lmdb.Error as error:
            raise DiskFailure(f"writing {self._path} failed: {error}") from error

    def sync(self) -> None:
        """Make durable what a killed process may have left in the page cache."""
        try:
            self._environment.sync(True)
        except lmdb.Error as error:
            raise DiskFailure(f"syncing {self._path} failed: {error}") from error

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


def _make(path: Path, map_bytes: int) -> None:
    """Make an environment whose pages are free for later transactions.

    The file gets its name once it is durable: LMDB writes its first pages without a sync, and a
    loss of power may leave an invalid environment.
    """
    new, lock = Path(f"{path}.new"), Path(f"{path}.new-lock")
    try:
        new.unlink(missing_ok=True)
        _reserve_lock_file(new)
        with closing(_opened(new, map_bytes)) as environment:
            with environment.begin(write=True) as transaction:
                transaction.put(_RESERVE, bytes(min(_RESERVED_BYTES, map_bytes // 4)))
            with environment.begin(write=True) as transaction:
                transaction.delete(_RESERVE)
        new.rename(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except (lmdb.Error, OSError) as error:
        raise DiskFailure(f"making {path} failed: {error}") from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)


def _opened(path: Path, map_bytes: int) -> lmdb.Environment:
    return lmdb.open(
        str(path), map_size=map_bytes, subdir=False, metasync=True, sync=True, max_readers=16,
        lib_version=0, mode=0o600,
    )  # fmt: skip


def _delete_all(transaction: lmdb.Transaction, prefix: bytes) -> None:
    """Delete the rows whose key begins with the prefix."""
    with transaction.cursor() as cursor:
        there = cursor.set_range(prefix)
        while there and bytes(cursor.key()).startswith(prefix):
            there = cursor.delete()


def _reserve_lock_file(path: Path) -> None:
    """Allocate LMDB's lock file.

    LMDB writes it through a map: on a full disk that would be SIGBUS.
    """
    lock = Path(f"{path}-lock")
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, _LOCK_FILE_BYTES)
        finally:
            os.close(fd)
    except OSError as error:
        raise DiskFailure.of("making", error, str(lock)) from error


class MemoryMeta(MetaStore):
    """A meta store in memory, for simulation and tests. Its bytes are as on disk.

    A commit is atomic and counts as durable.
    """

    def __init__(self) -> None:
        self._rows: dict[str, bytes] = {}

    def get(self, key: str) -> Any | None:
        data = self._rows.get(key)
        return None if data is None else decode_row(key.encode(), data)

    def items(self, prefix: str) -> list[tuple[str, Any]]:
        return [
            (key, decode_row(key.encode(), self._rows[key]))
            for key in sorted(self._rows)
            if key.startswith(prefix)
        ]

    def commit(
        self, puts: Mapping[str, Any], deletes: Iterable[str] = (), prefixes: Iterable[str] = ()
    ) -> None:
        rows = {key: _encode(key.encode(), value) for key, value in puts.items()}
        begins = tuple(prefixes)
        for key in [key for key in self._rows if key.startswith(begins)] if begins else ():
            del self._rows[key]
        for key in deletes:
            self._rows.pop(key, None)
        self._rows.update(rows)


def _encode(key: bytes, value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return _CRC.pack(google_crc32c.value(key + packed)) + packed


def decode_row(key: bytes, data: bytes) -> Any:
    """Return a row's value. Raises CorruptData when the checksum does not fit the key and value."""
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != google_crc32c.value(key + data[4:]):
        raise CorruptData(f"meta row {key.decode(errors='replace')} has a wrong checksum")
    return msgpack.unpackb(data[4:], strict_map_key=False)
