"""The directory of backups: `objects/ab/abcd...`, `backups/ID`, and `store.json`.

A file appears whole or not at all: it is written beside its place, synced and renamed.
"""

import json
import os
import re
from pathlib import Path
from typing import Any, Final

from ..protocol.errors import CorruptData, InvalidArgument, NotFound
from .sealing import CONTENT_BYTES_MAX, Sealing, damaged

_OBJECT: Final = re.compile("[0-9a-f]{64}")
_BACKUP: Final = re.compile("[0-9]{8}T[0-9]{6}[0-9]{3}Z")
_VERSION: Final = 1


class Store:
    """Objects and manifests in a directory. All methods block: call them in a thread."""

    def __init__(self, root: Path, sealing: Sealing) -> None:
        self._root = root
        self._sealing = sealing

    @classmethod
    def opened(cls, place: str, secret: bytes | None, *, create: bool = False) -> "Store":
        """Open the store of a directory; `create`: make the store if there is none.

        Raises NotFound without a store, InvalidArgument for a wrong secret or a directory with
        other files, CorruptData.
        """
        root = Path(place)
        told = root / "store.json"
        if told.is_file():
            try:
                found = json.loads(told.read_bytes())
                version = found["version"]
            except (ValueError, KeyError, TypeError):
                raise CorruptData(f"{told} is damaged; restore the file from a copy") from None
            if version != _VERSION:
                raise InvalidArgument(
                    f"{told} has version {version!r}; this lognode knows {_VERSION}", what="store"
                )
            return cls(root, Sealing.described(found, secret))
        if not create:
            raise NotFound(f"{place} has no backups; `lognode backup create` makes the first")
        if root.is_dir() and any(root.iterdir()):
            raise InvalidArgument(
                f"{place} has other files and no backups; give an empty directory", what="store"
            )
        sealing, description = Sealing.new(secret)
        (root / "objects").mkdir(parents=True, exist_ok=True)
        (root / "backups").mkdir(exist_ok=True)
        _write(told, json.dumps({"version": _VERSION, **description}).encode())
        return cls(root, sealing)

    def put_object(self, content: bytes) -> tuple[str, int]:
        """Store a content, unless the object is there. Return its name and the bytes written."""
        name = self._sealing.name(content)
        path = self._object(name)
        if path.is_file():
            return name, 0
        sealed = self._sealing.seal(name, content)
        path.parent.mkdir(exist_ok=True)
        _write(path, sealed)
        return name, len(sealed)

    def object(self, name: str) -> tuple[bytes, int]:
        """Return the checked content of an object, and its stored size. Raises CorruptData, which
        names the object."""
        stored = _read(self._object(name), f"object {name}")
        return self._sealing.open_object(name, stored), len(stored)

    def put_manifest(self, backup: str, content: bytes) -> None:
        """Store the manifest of a backup, which exists from now on."""
        sealed = self._sealing.seal(f"manifest {backup}", _hash(self._sealing, content))
        _write(self._root / "backups" / backup, sealed)

    def manifest(self, backup: str) -> bytes:
        """Return the checked manifest. Raises NotFound, CorruptData."""
        if not _BACKUP.fullmatch(backup) or not (self._root / "backups" / backup).is_file():
            raise NotFound(
                f"there is no backup {backup!r}; `lognode backup list` shows the backups"
            )
        name = f"manifest {backup}"
        content = self._sealing.open(name, _read(self._root / "backups" / backup, name))
        head, _, rest = content.partition(b"\n")
        if head.decode("ascii", "replace") != self._sealing.name(rest):
            raise damaged(name, "the content has another hash")
        return rest

    def backups(self) -> list[str]:
        """Return the ids of the backups, oldest first."""
        names = (path.name for path in (self._root / "backups").iterdir())
        return sorted(name for name in names if _BACKUP.fullmatch(name))

    def _object(self, name: str) -> Path:
        if not _OBJECT.fullmatch(name):
            raise CorruptData(f"{name[:80]!r} is not the name of an object")
        return self._root / "objects" / name[:2] / name


def _hash(sealing: Sealing, content: bytes) -> bytes:
    return sealing.name(content).encode() + b"\n" + content


def _read(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            found = file.read(CONTENT_BYTES_MAX + 1)
    except FileNotFoundError:
        raise damaged(name, "the file is missing") from None
    if len(found) > CONTENT_BYTES_MAX:
        raise damaged(name, f"the file has more than {CONTENT_BYTES_MAX} bytes")
    return found


def _write(path: Path, content: bytes) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def json_of(content: bytes, name: str) -> dict[str, Any]:
    """Return the object in JSON. Raises CorruptData."""
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if type(found) is not dict:
        raise damaged(name, "the content is not an object in JSON")
    return found
