"""The objects of a tier. All methods block: call them in a thread.

The docstring of the folder has the contract. Errors are those of the store; each is a LognodeError.
"""

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ...client.objects.store import ObjectStore
from ...client.protocol.errors import CorruptData, InvalidArgument, NotFound, Unavailable
from ...statemachine.file_hash import hash_file
from . import names
from .coverage import Snapshot
from .local_file import PART_BYTES, LocalFile, part_size, parts_of
from .manifest import BYTES_MAX, Held, Manifest
from .names import Chain, StoredFile
from .planning import Own

_VERSION: Final = 1
_TOLD_BYTES_MAX: Final = 1 << 16
_LOOKS: Final = 8
"""How often manifests are listed again because a leader publishes meanwhile."""


class TierStore:
    """The tier of a cluster in a store."""

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects
        self._token: str | None = None
        """What tells the tier apart with which this process has begun."""
        self._heads: dict[Chain, Manifest] = {}
        """The heads of the last snapshot, without their bases: most are those of the next one."""

    @property
    def place(self) -> str:
        """Where the tier is, for people."""
        return self.objects.place

    # The tier itself.

    def begin(self, cluster: str) -> None:
        """Make the tier of a cluster, unless the store has it.

        Raises InvalidArgument for the tier of another cluster, for a store with other objects, and
        for a store that replaces objects although it was asked not to. Raises Unavailable if
        another tier is in the place than when this process began.
        """
        self.check_place()
        content = self._told(cluster)
        told = self.objects.get(names.TIER, _TOLD_BYTES_MAX)
        if told is None:
            others = next(self.objects.objects(), None) is not None
            told = self.objects.get(names.TIER, _TOLD_BYTES_MAX)  # another node may be faster
            if told is None and others:
                raise InvalidArgument(
                    f"{self.place} has other files and no tier. Give --tier an empty directory or "
                    "prefix",
                    what="tier",
                )
            if told is None:
                self.objects.put(names.TIER, content)
                told = self.objects.get(names.TIER, _TOLD_BYTES_MAX)
        found = self._cluster(told)
        if found != cluster:
            raise InvalidArgument(
                f"{self.place} has the tier of cluster {found}; this is cluster {cluster}. Give "
                "--tier an empty directory or prefix",
                what="tier",
            )
        if self.objects.put(names.TIER, self._told(cluster)) or not self.objects.conditional:
            raise self._replaces()
        if self._token is None:
            self._token = self.token()

    def token(self) -> str:
        """Return what tells this tier from every other tier. Raises Unavailable without a tier."""
        told = self.objects.get(names.TIER, _TOLD_BYTES_MAX)
        if told is None:
            raise self.objects.failed(
                Unavailable, "the place has no tier. If it is a directory, check its mount"
            )
        self._cluster(told)
        return str(json.loads(told).get("token", ""))

    def check_place(self) -> None:
        """Raise Unavailable if the tier of this process is not in the place any more.

        A directory may be mounted, unmounted and mounted again while the process runs. So what is
        not listed may be there.
        """
        if self._token is not None and self.token() != self._token:
            raise self.objects.failed(
                Unavailable,
                "the place has another tier than at the start of this process. Mount the first "
                "tier again, or start the process again",
            )

    def cluster(self) -> str:
        """Return the id of the cluster. Raises NotFound without a tier."""
        told = self.objects.get(names.TIER, _TOLD_BYTES_MAX)
        if told is None:
            raise NotFound(f"{self.place} has no tier; nodes with --tier {self.place} make a tier")
        return self._cluster(told)

    def _told(self, cluster: str) -> bytes:
        told = {"version": _VERSION, "cluster": cluster, "token": uuid.uuid4().hex}
        return json.dumps(told).encode()

    def _cluster(self, told: bytes | None) -> str:
        try:
            found = json.loads(told or b"")
            version, cluster = found["version"], str(found["cluster"])
        except (ValueError, KeyError, TypeError):
            raise CorruptData(
                f"{names.TIER} in {self.place} is damaged. Restore the object from a copy",
                outcome="not_applied",
            ) from None
        if version != _VERSION:
            raise InvalidArgument(
                f"the tier in {self.place} has version {version!r}; this lognode knows {_VERSION}. "
                "Use a newer lognode",
                what="tier",
            )
        return cluster

    # Chains.

    def head(self, chain: Chain, own: Own) -> Manifest | None:
        """Return the head of a chain, None without manifests. `own`: what the caller has.

        A damaged head counts as a manifest that holds nothing, so that the leader of the log puts
        another manifest above it.
        """
        number, found = self._newest(chain)
        if not number:
            return None
        return Manifest(chain, number, own.log, own.span, {}) if found is None else found

    def held(self, chain: Chain) -> Mapping[str, Held] | None:
        """Return the files that the head of a chain holds, none for a damaged head; None without
        manifests."""
        number, found = self._newest(chain)
        if not number:
            return None
        return {} if found is None else found.held

    def _newest(self, chain: Chain) -> tuple[int, Manifest | None]:
        """Return the number of a head, 0 without manifests, and the head; None: it is damaged."""
        for _ in range(_LOOKS):
            number = max(self._numbers(chain), default=0)
            if not number:
                return 0, None
            try:
                found = self.manifest(chain, number)
            except CorruptData:
                try:
                    found = self.manifest(chain, number)  # the network may have done the damage
                except CorruptData:
                    return number, None
            if found is not None:
                return number, found
        raise self._busy(names.folder_of(chain))

    def publish(self, manifest: Manifest) -> bool:
        """Put a manifest. False: its number is taken, and the head is another.

        A writer makes a manifest from the head that it knows. So the manifest must not come into
        another tier than that of the head. Raises Unavailable if another tier is in the place.
        """
        self.check_place()
        is_stored = self.objects.put(manifest.name, manifest.to_bytes())
        if not self.objects.conditional:
            raise self._replaces()
        return is_stored

    def _replaces(self) -> InvalidArgument:
        return InvalidArgument(
            f"{self.place} cannot put an object only where there is none. Use an S3 store that "
            "knows If-None-Match: *, or a file system with hard links",
            what="tier",
        )

    def close(
        self, chain: Chain, own: Own, closing: Callable[[Manifest | None], Manifest]
    ) -> Manifest:
        """Close a chain unless it is closed; return its last manifest.

        The listing after the put shows that the manifest is the head, even if the listing before it
        was old.
        """
        for _ in range(_LOOKS):
            head = self.head(chain, own)
            if head is not None and head.closed:
                return head
            self.publish(closing(head))
        raise self._busy(names.folder_of(chain))

    def snapshot(self) -> Snapshot:
        """Return the manifests of one moment: two listings are equal.

        A base is left out, so a whole head has an empty one. Raises CorruptData.
        """
        numbers = self._all_numbers()
        for _ in range(_LOOKS):
            heads = {}
            for chain, some in numbers.items():
                known = self._heads.get(chain)
                if known is not None and known.number == max(some):
                    heads[chain] = known
                elif (found := self.manifest(chain, max(some))) is not None:
                    heads[chain] = replace(found, base=b"" if found.is_whole else None)
            self._heads = heads
            again = self._all_numbers()
            if again == numbers and heads.keys() == numbers.keys():
                return Snapshot(numbers, heads)
            numbers = again
        raise self._busy(names.MANIFESTS)

    def sound_heads(self) -> tuple[list[Manifest], list[str]]:
        """Return the heads that are not damaged, and the names of the damaged ones."""
        sound, damaged = [], []
        for chain, numbers in self._all_numbers().items():
            try:
                found = self.manifest(chain, max(numbers))
            except CorruptData:
                damaged.append(names.manifest_name(chain, max(numbers)))
            else:
                sound += [] if found is None else [found]
        return sound, damaged

    def _numbers(self, chain: Chain) -> list[int]:
        listed = self.objects.objects(names.folder_of(chain))
        found = (names.manifest_of(each.name) for each in listed)
        return [each[1] for each in found if each is not None]

    def _all_numbers(self) -> dict[Chain, list[int]]:
        found: defaultdict[Chain, list[int]] = defaultdict(list)
        for each in self.objects.objects(names.MANIFESTS):
            told = names.manifest_of(each.name)
            if told is not None:
                found[told[0]].append(told[1])
        return dict(found)

    def manifest(self, chain: Chain, number: int) -> Manifest | None:
        """Return a manifest, None if there is none. Raises CorruptData."""
        content = self.objects.get(names.manifest_name(chain, number), BYTES_MAX)
        return None if content is None else Manifest.of(chain, number, content)

    def _busy(self, what: str) -> Exception:
        return self.objects.failed(
            Unavailable, f"{what} changed at each of {_LOOKS} looks. Repeat the command"
        )

    # Files.

    def missing_parts(self, file: StoredFile, size: int) -> list[tuple[int, bool]]:
        """Return the parts that the tier lacks; True: another content is in the place of a part."""
        sizes: dict[int, int] = {}
        for each in self.objects.objects(f"{names.FILES}/{file.path}"):
            told = names.part_of(each.name)
            if told is not None:
                sizes[told[1]] = each.size
        return [
            (at, at in sizes)
            for at in range(parts_of(size))
            if sizes.get(at) != part_size(size, at)
        ]

    def has(self, held: Held) -> bool:
        """Whether the tier has all parts of a file: a listing has them with their sizes."""
        file = names.file_of(held.path)
        return file is not None and not self.missing_parts(file, held.size)

    def put_part(self, local: LocalFile, file: StoredFile, at: int, *, replace: bool) -> int:
        """Upload a part; return its bytes. The store checks or returns the bytes: see `put`."""
        content = local.part(at)
        self.objects.put(file.part(at), content, replace=replace)
        return len(content)

    def part(self, held: Held, at: int) -> bytes:
        """Return a part of a file. Raises CorruptData, which names the object."""
        file = names.file_of(held.path)
        if file is None:
            raise self._damaged(held.path, "the path is not that of a file")
        content = self.objects.get(file.part(at), PART_BYTES)
        if content is None:
            raise self._damaged(file.part(at), "the object is missing")
        return content

    def check(self, held: Held, target: Path) -> None:
        """Raise CorruptData, which names the file, if all parts together are not the file."""
        file, found = names.file_of(held.path), hash_file(target)
        if file is None or found != file.content_id:
            raise self._damaged(held.path, f"its SHA-256 is {found}")

    def fetch(self, held: Held, target: Path) -> None:
        """Write a file of the tier to a path. Raises CorruptData, which names the file."""
        with target.open("wb") as out:
            for at in range(parts_of(held.size)):
                out.write(self.part(held, at))
        self.check(held, target)

    def _damaged(self, name: str, why: str) -> Any:
        return self.objects.failed(
            CorruptData,
            f"file {name} in the tier is damaged: {why}. If the nodes run, repeat the command, "
            "since they may have removed the file",
        )
