"""The metadata image that a simulated node acts on; an older one never replaces it (x3)."""

from collections.abc import Callable

from ...node.directory import meta_keys
from ...partitions.metadata import Metadata
from .store import Durable


class View:
    """The image of a node; `on_change` is called after the image was replaced, or has changed."""

    def __init__(self, durable: Durable, on_change: Callable[[], None]) -> None:
        self._durable = durable
        self._on_change = on_change
        images = [row["image"] for _, row in durable.meta.items(meta_keys.CONTROLLER)]
        known = [
            Metadata.from_image(image) for image in (durable.meta.get(meta_keys.IMAGE), *images)
        ]
        self.metadata = max(known, key=lambda m: (m.controller.generation, m.version))
        self._seen = self.version
        self.leader: int | None = None
        """The controller's leader, as last heard."""

    @property
    def version(self) -> tuple[int, int]:
        """The order of images: the controller's generation, then its count of changes."""
        return self.metadata.controller.generation, self.metadata.version

    def take(self, metadata: Metadata) -> None:
        """Act on an image from elsewhere, once it is stored."""
        version = metadata.controller.generation, metadata.version
        if version > self.version:
            self._durable.commit({meta_keys.IMAGE: metadata.image()})
            self.metadata = metadata
            self._told()

    def follow(self, metadata: Metadata) -> None:
        """Act on the image of the controller replica here."""
        if (metadata.controller.generation, metadata.version) >= self.version:
            self.metadata = metadata
            self._told()

    def _told(self) -> None:
        if self.version != self._seen:
            self._seen = self.version
            self._on_change()
