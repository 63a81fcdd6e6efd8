"""Claims: each `create` that runs has the object `creating/ID`, and no sweep runs beside a claim.

`create` puts its claim before it looks for objects. A sweep puts its number before it looks for
claims. So one of the two sees the other: see `sweep`.

A `create` that was killed leaves its claim. A claim is given up in two cases: its process ran on
this machine and has ended, or the claim was not renewed for too long. The first case is sure; in
the second, the `create` may go on later. A request of a killed `create` may also arrive late. So
the run that gives up a claim first puts a mark in the place of the manifest: then a manifest that
comes later is refused, and only then is the claim removed.
"""

import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ..protocol.errors import Conflict, CorruptData, LognodeError, NotFound
from .manifest import Manifest
from .owners import Owners
from .store import Store, backup_at, is_backup, json_of

STALE_MS: Final = 900_000
"""A claim that was not renewed for so long belongs to a `create` that ended. If that `create` still
runs, it ends with Conflict, and makes no backup."""
_SWEEP: Final = re.compile("[1-9][0-9]{0,8}")
_BYTES_MAX: Final = 1 << 16
_OWNER_CHARS_MAX: Final = 200
Clock = Callable[[], int]
OWNERS: Final = Owners()


def now_ms() -> int:
    """Return Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


class Claim:
    """The claim of a `create`. All methods block: call them in a thread."""

    def __init__(self, store: Store, created_ms: int, clock: Clock, owners: Owners) -> None:
        self.backup = backup_at(created_ms)
        self.created_ms = created_ms
        self._store = store
        self._clock = clock
        self._process = owners.told()
        self._token = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._finishes = False
        self._is_released = False

    @classmethod
    def taken(cls, store: Store, clock: Clock = now_ms, owners: Owners = OWNERS) -> "Claim":
        """Claim the id of a new backup, and let the store use no object that a sweep removes.

        What `create`s left that were killed on this machine is removed first: their claims, and
        files that they did not write to their end.
        """
        while True:
            found = cls(store, clock(), clock, owners)
            if store.objects.put(found._path, found._content()):
                break
            time.sleep(0.001)  # another `create` began in the same millisecond
        with suppress(LognodeError):  # the next run removes what is left
            found._tidy(owners)
        try:
            store.begin(newest_sweep(store), _Named(store))
        except LognodeError:
            found.release()
            raise
        return found

    def _tidy(self, owners: Owners) -> None:
        self._store.objects.clear()
        for claimed in claims(self._store, self._clock, owners):
            if claimed.is_gone:
                dismiss(self._store, claimed)

    @property
    def _path(self) -> str:
        return f"creating/{self.backup}"

    def _content(self) -> bytes:
        told = {
            "owner": f"{socket.gethostname()}, process {os.getpid()}"[:_OWNER_CHARS_MAX],
            "token": self._token,
            "renewed_ms": self._clock(),
            "process": self._process,
        }
        return self._store.sealing.seal(self._path, json.dumps(told).encode())

    def renew(self) -> None:
        """Say that the `create` still runs. Errors of the store are left to the next renewal."""
        with suppress(LognodeError):
            self._store.objects.put(self._path, self._content(), replace=True)

    def finish(self, manifest: bytes) -> None:
        """Store the manifest: the backup exists from now on. Raises Conflict if a removal gave up
        this `create`. A claim whose manifest may still appear stays until the claim is stale."""
        with self._lock:
            if self._is_released:
                raise Conflict(f"the backup {self.backup} was cancelled. Make the backup again")
            self._finishes = True
        self._store.put_manifest(self.backup, manifest)
        self._finishes = False

    def release(self) -> None:
        """Remove the claim. A claim that stays is removed by a later removal of backups."""
        with self._lock:
            self._is_released = True
            if not self._finishes:
                with suppress(LognodeError):
                    self._store.objects.delete(self._path)


class _Named:
    """The objects that backups name, read when first asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: set[str] | None = None

    def __call__(self) -> set[str]:
        if self._found is None:
            self._found = set()
            for backup in self._store.backups():
                with suppress(CorruptData, NotFound):  # its objects are stored again
                    self._found |= Manifest.of(backup, self._store.manifest(backup)).objects()
        return self._found


class Claimed(NamedTuple):
    """A claim in a store. `age_ms`: since its last renewal; clocks may differ. `is_gone`: the
    process has surely ended."""

    backup: str
    owner: str
    age_ms: int
    is_gone: bool = False

    @property
    def is_stale(self) -> bool:
        """Whether the `create` ended, or has stood still for too long."""
        return self.is_gone or abs(self.age_ms) > STALE_MS


def claims(store: Store, clock: Clock = now_ms, owners: Owners = OWNERS) -> list[Claimed]:
    """Return the claims. A damaged claim is stale."""
    found = []
    for listed in store.objects.objects("creating"):
        backup = listed.name.rpartition("/")[2]
        if not is_backup(backup):
            continue
        told: dict[str, Any] = {}
        with suppress(CorruptData):
            content = store.objects.get(listed.name, _BYTES_MAX)
            if content is None:  # the `create` ended
                continue
            told = json_of(store.sealing.open(listed.name, content), listed.name)
        renewed = told.get("renewed_ms")
        renewed_ms = renewed if type(renewed) is int else 0
        owner = str(told.get("owner"))[:_OWNER_CHARS_MAX]
        is_gone = owners.has_ended(told.get("process"))
        found.append(Claimed(backup, owner, clock() - renewed_ms, is_gone))
    return found


def dismiss(store: Store, claimed: Claimed) -> None:
    """Remove the claim of a `create` that ended. The `create` can make no backup afterwards."""
    store.give_up(claimed.backup)
    store.objects.delete(f"creating/{claimed.backup}")


def newest_sweep(store: Store) -> int:
    """Return the number of the newest sweep, 0 without a sweep."""
    return max(sweeps(store), default=0)


def sweeps(store: Store) -> list[int]:
    """Return the numbers of the sweeps in the store."""
    names = (listed.name.rpartition("/")[2] for listed in store.objects.objects("sweeps"))
    return [int(name) for name in names if _SWEEP.fullmatch(name)]


def begin_sweep(store: Store) -> int:
    """Begin a sweep and return its number, which is above those of all earlier sweeps."""
    earlier = sweeps(store)
    number = max(earlier, default=0) + 1
    while not store.objects.put(f"sweeps/{number}", uuid.uuid4().hex.encode()):
        number += 1
    for each in earlier:
        store.objects.delete(f"sweeps/{each}")
    return number
