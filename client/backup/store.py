"""The store of backups: objects `objects/ab/abcd...`, `backups/ID`, and `store.json`.

The name of an object is its hash, with `.` and the number of the newest sweep when the object was
stored, if there was a sweep: see `sweep`.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from ..objects.store import Listed, ObjectStore
from ..protocol.errors import Conflict, CorruptData, InvalidArgument, NotFound
from .sealing import CONTENT_BYTES_MAX, Sealing, damaged

_OBJECT: Final = re.compile("([0-9a-f]{64})(?:[.]([1-9][0-9]{0,8}))?")
_BACKUP: Final = re.compile("[0-9]{8}T[0-9]{6}[0-9]{3}Z")
_VERSION: Final = 1
_TOLD: Final = "store.json"
_TOLD_BYTES_MAX: Final = 1 << 16
_GIVEN_UP: Final = b"given up"
"""The content in place of the manifest of a `create` that a removal gave up. Each manifest is
longer."""


def _no_names() -> set[str]:
    return set()


class Store:
    """Objects and manifests in a store. All methods block: call them in a thread, one at a time for
    `put_object`."""

    def __init__(self, objects: ObjectStore, sealing: Sealing) -> None:
        self.objects = objects
        self.sealing = sealing
        self._known: dict[str, dict[str, str]] = {}
        """The names of objects by their hash, from listings of their folders."""
        self._sweep = 0
        self._named: Callable[[], set[str]] = _no_names

    @classmethod
    def opened(cls, objects: ObjectStore, secret: bytes | None, *, create: bool = False) -> "Store":
        """Open the backups of a store; `create`: begin them if there are none.

        Raises NotFound without backups, InvalidArgument for a wrong secret or a store with other
        objects, CorruptData, and the errors of the store.
        """
        told = objects.get(_TOLD, _TOLD_BYTES_MAX)
        if told is None:
            if not create:
                raise NotFound(
                    f"{objects.place} has no backups; `lognode backup create` makes the first"
                )
            if next(objects.objects(), None) is not None:
                raise InvalidArgument(
                    f"{objects.place} has other files and no backups; give an empty directory or "
                    "prefix",
                    what="store",
                )
            sealing, description = Sealing.new(secret)
            if objects.put(_TOLD, json.dumps({"version": _VERSION, **description}).encode()):
                return cls(objects, sealing)
            told = objects.get(_TOLD, _TOLD_BYTES_MAX) or b""  # another `create` was earlier
        try:
            found = json.loads(told)
            version = found["version"]
        except (ValueError, KeyError, TypeError):
            raise CorruptData(
                f"{_TOLD} in {objects.place} is damaged; restore the file from a copy"
            ) from None
        if version != _VERSION:
            raise InvalidArgument(
                f"{_TOLD} in {objects.place} has version {version!r}; this lognode knows "
                f"{_VERSION}. Use a newer lognode",
                what="store",
            )
        return cls(objects, Sealing.described(found, secret))

    @property
    def place(self) -> str:
        """Where the store is, for people."""
        return self.objects.place

    def begin(self, sweep: int, named: Callable[[], set[str]]) -> None:
        """From now on `put_object` stores objects of this sweep, and uses no object of an earlier
        sweep but those that `named` returns. Called before the first `put_object`."""
        self._sweep = sweep
        self._named = named

    def put_object(self, content: bytes) -> tuple[str, int]:
        """Store a content, unless the object is there. Return its name and the bytes written."""
        found = self.sealing.name(content)
        known = self._known.get(found[:2])
        if known is None:
            known = self._known[found[:2]] = self._usable(found[:2])
        if found in known:
            return known[found], 0
        name = f"{found}.{self._sweep}" if self._sweep else found
        sealed = self.sealing.seal(found, content)
        written = self.objects.put(path_of(name), sealed)
        known[found] = name
        return name, len(sealed) if written else 0

    def _usable(self, folder: str) -> dict[str, str]:
        """Return the objects of a folder that a new backup may name, by their hash."""
        found = {}
        for name, _ in self.stored(folder):
            if sweep_of(name) >= self._sweep or name in self._named():
                found[hash_of(name)] = name
        return found

    def stored(self, folder: str = "") -> Iterator[Listed]:
        """Yield name and size of the objects, or of those in a folder of two digits."""
        for listed in self.objects.objects(f"objects/{folder}" if folder else "objects"):
            name = listed.name.rpartition("/")[2]
            if _OBJECT.fullmatch(name) and listed.name == path_of(name):
                yield Listed(name, listed.size)

    def object(self, name: str) -> tuple[bytes, int]:
        """Return the checked content of an object, and its stored size. Raises CorruptData, which
        names the object."""
        stored = self.stored_object(name)
        return self.opened_object(name, stored), len(stored)

    def stored_object(self, name: str) -> bytes:
        """Return an object as it is stored. Raises CorruptData for a missing object."""
        found = self.objects.get(path_of(name), CONTENT_BYTES_MAX)
        if found is None:
            raise damaged(f"object {name}", "the file is missing")
        return found

    def opened_object(self, name: str, stored: bytes) -> bytes:
        """Return the checked content of a stored object. Raises CorruptData."""
        return self.sealing.open_object(name, stored, hash_of(name))

    def put_manifest(self, backup: str, content: bytes) -> None:
        """Store the manifest of a backup, which exists from now on. Raises Conflict if the store
        has a backup of this name."""
        sealed = self.sealing.seal(f"manifest {backup}", _hash(self.sealing, content))
        if self.objects.put(f"backups/{backup}", sealed):
            return
        if self.objects.get(f"backups/{backup}", CONTENT_BYTES_MAX) == _GIVEN_UP:
            raise Conflict(
                f"a removal of backups in {self.place} gave up the backup {backup}, because its "
                "claim was not renewed for too long. Make the backup again"
            )
        raise Conflict(f"{self.place} has another backup {backup}; make the backup again")

    def give_up(self, backup: str) -> bool:
        """Make sure that no backup of this name will exist. Return False if the backup exists."""
        name = f"backups/{backup}"
        if self.objects.put(name, _GIVEN_UP):
            return True
        return self.objects.get(name, CONTENT_BYTES_MAX) == _GIVEN_UP

    def delete_manifest(self, backup: str) -> None:
        """Remove a backup, but not its objects."""
        self.objects.delete(f"backups/{backup}")

    def manifest(self, backup: str) -> bytes:
        """Return the checked manifest. Raises NotFound, CorruptData."""
        name = f"manifest {backup}"
        sealed = None
        if is_backup(backup):
            sealed = self.objects.get(f"backups/{backup}", CONTENT_BYTES_MAX)
        if sealed is None or sealed == _GIVEN_UP:
            raise NotFound(
                f"there is no backup {backup!r}; `lognode backup list` shows the backups"
            )
        content = self.sealing.open(name, sealed)
        head, _, rest = content.partition(b"\n")
        if head.decode("ascii", "replace") != self.sealing.name(rest):
            raise damaged(name, "the content has another hash")
        return rest

    def backups(self) -> list[str]:
        """Return the ids of the backups, oldest first."""
        found = (each for each in self.objects.objects("backups") if each.size != len(_GIVEN_UP))
        names = (listed.name.rpartition("/")[2] for listed in found)
        return sorted(filter(is_backup, names))


def backup_at(created_ms: int) -> str:
    """Return the id of the backup that was begun at this Unix time."""
    moment = datetime.fromtimestamp(created_ms / 1000, UTC)
    return moment.strftime("%Y%m%dT%H%M%S") + f"{created_ms % 1000:03}Z"


def is_backup(name: str) -> bool:
    """Whether this is the id of a backup."""
    return _BACKUP.fullmatch(name) is not None


def path_of(name: str) -> str:
    """Return where an object is in the store. Raises CorruptData for another name."""
    if not _OBJECT.fullmatch(name):
        raise CorruptData(f"{name[:80]!r} is not the name of an object")
    return f"objects/{name[:2]}/{name}"


def hash_of(name: str) -> str:
    """Return the hash in the name of an object."""
    return name.partition(".")[0]


def sweep_of(name: str) -> int:
    """Return the number of the sweep in the name of an object, 0 without a number."""
    return int(name.partition(".")[2] or 0)


def _hash(sealing: Sealing, content: bytes) -> bytes:
    return sealing.name(content).encode() + b"\n" + content


def json_of(content: bytes, name: str) -> dict[str, Any]:
    """Return the object in JSON. Raises CorruptData."""
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if type(found) is not dict:
        raise damaged(name, "the content is not an object in JSON")
    return found
