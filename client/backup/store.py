"""The store of backups: objects `objects/ab/abcd...`, `backups/ID`, and `store.json`."""

import json
import re
from typing import Any, Final

from ..objects.store import ObjectStore
from ..protocol.errors import Conflict, CorruptData, InvalidArgument, NotFound
from .sealing import CONTENT_BYTES_MAX, Sealing, damaged

_OBJECT: Final = re.compile("[0-9a-f]{64}")
_BACKUP: Final = re.compile("[0-9]{8}T[0-9]{6}[0-9]{3}Z")
_VERSION: Final = 1
_TOLD: Final = "store.json"
_TOLD_BYTES_MAX: Final = 1 << 16


class Store:
    """Objects and manifests in a store. All methods block: call them in a thread, one at a time for
    `put_object`."""

    def __init__(self, objects: ObjectStore, sealing: Sealing) -> None:
        self._objects = objects
        self._sealing = sealing
        self._known: dict[str, set[str]] = {}
        """The objects that a listing of their folder named."""

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
        return self._objects.place

    def put_object(self, content: bytes) -> tuple[str, int]:
        """Store a content, unless the object is there. Return its name and the bytes written."""
        name = self._sealing.name(content)
        path = _object(name)
        folder = path.rpartition("/")[0]
        if folder not in self._known:
            self._known[folder] = {listed.name for listed in self._objects.objects(folder)}
        if path in self._known[folder]:
            return name, 0
        sealed = self._sealing.seal(name, content)
        written = self._objects.put(path, sealed)
        self._known[folder].add(path)
        return name, len(sealed) if written else 0

    def object(self, name: str) -> tuple[bytes, int]:
        """Return the checked content of an object, and its stored size. Raises CorruptData, which
        names the object."""
        stored = self._read(_object(name), f"object {name}")
        return self._sealing.open_object(name, stored), len(stored)

    def put_manifest(self, backup: str, content: bytes) -> None:
        """Store the manifest of a backup, which exists from now on. Raises Conflict if the store
        has a backup of this name."""
        sealed = self._sealing.seal(f"manifest {backup}", _hash(self._sealing, content))
        if not self._objects.put(f"backups/{backup}", sealed):
            raise Conflict(f"{self.place} has another backup {backup}; make the backup again")

    def manifest(self, backup: str) -> bytes:
        """Return the checked manifest. Raises NotFound, CorruptData."""
        name = f"manifest {backup}"
        sealed = None
        if _BACKUP.fullmatch(backup):
            sealed = self._objects.get(f"backups/{backup}", CONTENT_BYTES_MAX)
        if sealed is None:
            raise NotFound(
                f"there is no backup {backup!r}; `lognode backup list` shows the backups"
            )
        content = self._sealing.open(name, sealed)
        head, _, rest = content.partition(b"\n")
        if head.decode("ascii", "replace") != self._sealing.name(rest):
            raise damaged(name, "the content has another hash")
        return rest

    def backups(self) -> list[str]:
        """Return the ids of the backups, oldest first."""
        names = (listed.name.rpartition("/")[2] for listed in self._objects.objects("backups"))
        return sorted(name for name in names if _BACKUP.fullmatch(name))

    def _read(self, path: str, name: str) -> bytes:
        found = self._objects.get(path, CONTENT_BYTES_MAX)
        if found is None:
            raise damaged(name, "the file is missing")
        return found


def _object(name: str) -> str:
    if not _OBJECT.fullmatch(name):
        raise CorruptData(f"{name[:80]!r} is not the name of an object")
    return f"objects/{name[:2]}/{name}"


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
