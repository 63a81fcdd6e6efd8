"""Segment files in use that no manifest names: they are being sent, fetched or merged."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class PinnedFiles:
    """The content ids of pinned files, by the name of the work that uses the files."""

    def __init__(self) -> None:
        self._pinned: dict[object, list[str]] = {}

    def __len__(self) -> int:
        return len(self._pinned)

    def pin(self, name: object, content_ids: Iterable[str]) -> None:
        """Keep these files, and no others under this name, until `unpin` gets the name."""
        self._pinned[name] = list(content_ids)

    def unpin(self, name: object) -> None:
        """Undo `pin`; do nothing for a name that pins nothing."""
        self._pinned.pop(name, None)

    @contextmanager
    def during(self, name: object, content_ids: Iterable[str]) -> Iterator[None]:
        """Keep these files while the context lasts."""
        self.pin(name, content_ids)
        try:
            yield
        finally:
            self.unpin(name)

    def content_ids(self) -> Iterator[str]:
        """Return the content ids of all pinned files; an id may come twice."""
        return (content_id for pinned in self._pinned.values() for content_id in pinned)
