"""Remove backups, and then the objects that no backup names.

A sweep removes objects in this order: remove the manifests; put the number of the sweep; look for
claims, and stop if a `create` runs; read the manifests; list the objects; remove those that no
manifest names and that are from before this sweep. Why no backup ever lacks an object:

- A `create` whose claim is older than the look for claims ends the sweep, or cannot make its backup
  any more: one put without `replace` decides between its manifest and the removal.
- A later `create` knows the number of the sweep. It uses an object from before the sweep only if a
  manifest names the object, and the manifests that the sweep removed are gone by then. So an object
  that the sweep may remove is named by no backup ever again. The removal may come at any time, also
  from a process that was stopped for days.

So no step depends on clocks, and a removal that was killed leaves objects that the next one finds.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from ..protocol.errors import CorruptData, InvalidArgument, NotFound
from .claims import OWNERS, Claimed, Clock, begin_sweep, claims, dismiss, now_ms
from .manifest import Manifest
from .owners import Owners
from .store import Store, path_of, sweep_of

AT_ONCE: Final = 16
"""How many objects are removed together."""
_PORTION: Final = 256
Told = Callable[[float, int], None]
"""Called with the part of the objects that is removed, 0 to 1, and their number."""
Kept = Callable[[Manifest], bool]


@dataclass(slots=True)
class Removed:
    """The result. `left`: the backups that remain. `creating`: the `create`s that run, beside which
    no object is removed."""

    removed: list[str] = field(default_factory=list)
    left: int = 0
    objects: int = 0
    freed_bytes: int = 0
    creating: list[Claimed] = field(default_factory=list)


class Removal:
    """Backups that go, and those that stay. All methods block: call them in a thread."""

    def __init__(self, store: Store, clock: Clock, owners: Owners) -> None:
        self.doomed: list[str] = []
        self._store = store
        self._clock = clock
        self._owners = owners
        self._left: dict[str, set[str]] = {}
        """The backups that stay, with the objects that each names."""

    @classmethod
    def of_names(
        cls, store: Store, names: Iterable[str], clock: Clock = now_ms, owners: Owners = OWNERS
    ) -> "Removal":
        """Choose the backups of these ids; their manifests may be damaged. Raises NotFound for an
        unknown id, InvalidArgument if no backup would stay, CorruptData for a damaged manifest of a
        backup that stays."""
        found = cls(store, clock, owners)
        there, doomed = store.backups(), set(names)
        for name in sorted(doomed.difference(there)):
            near = get_close_matches(name, there, n=1)
            raise NotFound(
                f"there is no backup {name!r}{f'; did you mean {near[0]}?' if near else '.'} "
                "`lognode backup list` shows the backups"
            )
        if there and doomed.issuperset(there):
            raise InvalidArgument(
                f"no backup would stay in {store.place}. Leave a backup, or remove the whole "
                "directory or prefix with its own tools",
                what="backup",
            )
        found.doomed = sorted(doomed)
        for backup in there:
            if backup not in doomed:
                found._stays(found._read(backup))
        return found

    @classmethod
    def of_rule(
        cls, store: Store, keep: int, within_ms: int | None, clock: Clock = now_ms,
        owners: Owners = OWNERS,
    ) -> "Removal":  # fmt: skip
        """Choose the backups that are, for each of their logs, neither among the newest `keep` nor
        within `within_ms` before the newest. Raises CorruptData for a damaged manifest."""
        found = cls(store, clock, owners)
        newest: dict[tuple[str, str], int] = {}
        counts: dict[tuple[str, str], int] = {}
        for backup in reversed(store.backups()):
            manifest = found._read(backup)
            if manifest is None:
                continue
            stays = False
            for log in [log.name for log in manifest.logs] or [""]:
                of = manifest.cluster, log
                last_ms = newest.setdefault(of, manifest.created_ms)
                counts[of] = counts.get(of, 0) + 1
                stays |= counts[of] <= keep
                stays |= within_ms is not None and last_ms - manifest.created_ms <= within_ms
            if stays:
                found._stays(manifest)
            else:
                found.doomed.insert(0, backup)
        return found

    def _read(self, backup: str) -> Manifest | None:
        """Return the manifest, None if another removal has removed the backup."""
        try:
            return Manifest.of(backup, self._store.manifest(backup))
        except NotFound:
            return None
        except CorruptData as error:
            raise CorruptData(
                f"{error.message.partition('. Restore')[0]}. No object was removed, because the "
                f"objects of this backup are unknown. Remove the backup first: `lognode backup "
                f"delete STORE {backup}`",
                outcome="not_applied",
            ) from None

    def _stays(self, manifest: Manifest | None) -> None:
        if manifest is not None:
            self._left[manifest.backup] = manifest.objects()

    def preview(self) -> Removed:
        """Return what `run` would remove now."""
        found = self._unnamed()
        running = [each for each in self._claims() if not each.is_stale]
        return self._result(found, running)

    def run(self, told: Told, at_once: int = AT_ONCE) -> Removed:
        """Remove the backups, and then the objects that no backup names.

        While a `create` runs, the objects stay, and a later removal removes them. Files that killed
        writers did not write to their end go too.
        """
        store = self._store
        store.objects.clear()
        for backup in self.doomed:
            store.delete_manifest(backup)
        if not self._unnamed():
            return self._result({}, [])  # without a sweep, a `create` need not read manifests
        number = begin_sweep(store)
        running = []
        for claimed in self._claims():
            if claimed.is_stale:
                dismiss(store, claimed)
            else:
                running.append(claimed)
        if running:
            return self._result({}, running)
        self._read_new()
        found = {n: size for n, size in self._unnamed().items() if sweep_of(n) < number}
        self._delete(list(found), told, at_once)
        return self._result(found, [])

    def _claims(self) -> list[Claimed]:
        return claims(self._store, self._clock, self._owners)

    def _read_new(self) -> None:
        """Read the manifests of backups that were made since the first look."""
        for backup in self._store.backups():
            if backup not in self._left:
                self._stays(self._read(backup))

    def _unnamed(self) -> dict[str, int]:
        """Return the objects that no backup names, with their sizes."""
        named = set[str]().union(*self._left.values())
        return {name: size for name, size in self._store.stored() if name not in named}

    def _delete(self, names: list[str], told: Told, at_once: int) -> None:
        def delete(name: str) -> None:
            self._store.objects.delete(path_of(name))

        with ThreadPoolExecutor(at_once) as threads:
            for at in range(0, len(names), _PORTION):
                some = names[at : at + _PORTION]
                for _ in threads.map(delete, some):
                    pass
                told((at + len(some)) / len(names), at + len(some))

    def _result(self, found: Mapping[str, int], running: list[Claimed]) -> Removed:
        return Removed(self.doomed, len(self._left), len(found), sum(found.values()), running)
