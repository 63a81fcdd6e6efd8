"""Names of objects in a tier."""

import re
from typing import Final, NamedTuple

TIER: Final = "tier.json"
MANIFESTS: Final = "manifests"
FILES: Final = "files"
_CHAIN: Final = r"([1-9][0-9]{0,15})\.([1-9][0-9]{0,15})"
_MANIFEST: Final = re.compile(rf"manifests/{_CHAIN}/([0-9]{{12}})")
_FILE: Final = re.compile(rf"{_CHAIN}/([0-9a-f]{{64}})\.([1-9][0-9]{{0,11}})")
_PART: Final = re.compile(rf"files/({_FILE.pattern})/([0-9]{{6}})")


class Chain(NamedTuple):
    """The manifests of one generation of a range."""

    range_id: int
    generation: int

    @property
    def text(self) -> str:
        """The chain as a part of names."""
        return f"{self.range_id}.{self.generation}"


class StoredFile(NamedTuple):
    """A file in a tier. `label`: the number of the manifest that was the head at the upload."""

    chain: Chain
    content_id: str
    label: int

    @property
    def path(self) -> str:
        """The file in manifests, and below `files/`."""
        return f"{self.chain.text}/{self.content_id}.{self.label}"

    def part(self, at: int) -> str:
        """Return the name of the object with a part of the file."""
        return f"{FILES}/{self.path}/{at:06}"


def folder_of(chain: Chain) -> str:
    """Return where the manifests of a chain are."""
    return f"{MANIFESTS}/{chain.text}"


def manifest_name(chain: Chain, number: int) -> str:
    """Return the name of a manifest."""
    return f"{folder_of(chain)}/{number:012}"


def manifest_of(name: str) -> tuple[Chain, int] | None:
    """Return the chain and the number of a manifest by its name; None for another name."""
    found = _MANIFEST.fullmatch(name)
    if found is None or not int(found[3]):
        return None
    return Chain(int(found[1]), int(found[2])), int(found[3])


def file_of(path: str) -> StoredFile | None:
    """Return the file of a path; None for another text."""
    found = _FILE.fullmatch(path)
    if found is None:
        return None
    return StoredFile(Chain(int(found[1]), int(found[2])), found[3], int(found[4]))


def part_of(name: str) -> tuple[StoredFile, int] | None:
    """Return the file and the position of the part with this name; None for another name."""
    found = _PART.fullmatch(name)
    file = None if found is None else file_of(found[1])
    return None if found is None or file is None else (file, int(found[found.re.groups]))
