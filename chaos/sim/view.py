"""The metadata image that a simulated node acts on; an older one never replaces it (x3)."""

from collections.abc import Callable, Mapping

from ...client.protocol.levels import LEVEL_MAX, LEVEL_MIN
from ...node.directory import meta_keys
from ...node.rules.heartbeats import has_news, version_of
from ...node.rules.levels import to_note
from ...partitions.levels import Program
from ...partitions.metadata import Metadata
from .store import Durable


class View:
    """The image of a node; `on_change` is called after the image was replaced, or has changed."""

    def __init__(self, node_id: int, durable: Durable, on_change: Callable[[], None]) -> None:
        self._node_id = node_id
        self._durable = durable
        self._on_change = on_change
        images = [row["image"] for _, row in durable.meta.items(meta_keys.CONTROLLER)]
        known = [
            Metadata.from_image(image) for image in (durable.meta.get(meta_keys.IMAGE), *images)
        ]
        self.metadata = max(known, key=version_of)
        self._seen = self.version
        self.leader: int | None = None
        """The controller's leader, as last heard."""
        self.programs: dict[int, Program] = {}
        """The programs of the nodes, as far as they are known here."""
        self.learn_programs({})

    @property
    def noted_level(self) -> int:
        """The feature level that the data directory has noted."""
        return self._durable.meta.get(meta_keys.LEVEL) or LEVEL_MIN

    @property
    def program(self) -> Program:
        """The program of this node, as it is told to others."""
        record = self.metadata.nodes[self._node_id]
        levels = (LEVEL_MIN, LEVEL_MAX, "simulated", self.noted_level)
        return Program(record.boot, record.process, *levels)

    def learn_programs(self, programs: Mapping[int, Program]) -> None:
        """Take the programs that the controller's leader has heard, and this node's own."""
        self.programs = {**programs, self._node_id: self.program}

    def note_level(self) -> None:
        """Note the cluster's feature level in the data directory, as far as it is not noted."""
        level = to_note(self.metadata, self.noted_level)
        if level is not None:
            self._durable.commit({}, level=level)
        self.programs[self._node_id] = self.program

    @property
    def version(self) -> tuple[int, int]:
        """The order of images: the controller's generation, then its count of changes."""
        return version_of(self.metadata)

    def take(self, metadata: Metadata) -> None:
        """Act on an image from elsewhere, once it is stored."""
        if has_news(metadata, self.version):
            image = {meta_keys.IMAGE: metadata.image()}
            self._durable.commit(image, level=metadata.feature_level)
            self.metadata = metadata
            self._told()

    def follow(self, metadata: Metadata) -> None:
        """Act on the image of the controller replica here."""
        if version_of(metadata) >= self.version:
            self.metadata = metadata
            self._told()

    def _told(self) -> None:
        if self.version != self._seen:
            self._seen = self.version
            self._on_change()
